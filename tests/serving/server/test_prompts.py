"""Prompts of any length are read by programs of a few lengths, and give the tokens of plain decoding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxspec
from jaxspec.core.loop import NO_DRAFTER
from jaxspec.models.conditions import ClassLabels, Prompt
from jaxspec.models.language.llama import LlamaConfig, llama_fns
from jaxspec.serving.edge.edge_stream import Edge
from jaxspec.serving.server.engine import Engine, EngineSettings
from jaxspec.serving.server.in_process import LocalCloud
from jaxspec.serving.server.served_profile import ServedProfile
from jaxspec.serving.server.server_programs import Programs
from jaxspec.serving.server.step_arrays import Sizes
from jaxspec.serving.wire.sqs_codec import PlainCodec
from tests.helpers import random_params, side

CONFIG = LlamaConfig(13, dim=16, num_layers=1, num_heads=2, num_kv_heads=1, ffn_hidden=24)
LONGEST, NEW = 12, 6
EXAMPLE = Prompt(np.ones((1, LONGEST), np.int32), np.ones((1, LONGEST), bool))


def prompt_of(length):
  tokens = np.random.default_rng(length).integers(0, 13, (1, length)).astype(np.int32)
  return Prompt(tokens, np.ones((1, length), bool))


@pytest.mark.slow
def test_prompts_of_several_lengths():
  """Two lengths are compiled for prompts of four; top-k is that of the kind from token 0 on."""
  fns, warp = llama_fns(CONFIG), jaxspec.Warp(top_k=4)
  params = side(random_params(fns, 3))
  profiles = [ServedProfile(PlainCodec(13)), ServedProfile(PlainCodec(13), warp)]
  sizes = dict(max_streams=2, max_rows=2, max_len=NEW, widths=(8,))
  cloud = LocalCloud(Engine(params, fns, profiles, example=EXAMPLE, settings=EngineSettings(**sizes)))
  lengths = (1, 7, 9, LONGEST)
  keys = jax.vmap(jax.random.key)(jnp.arange(len(lengths)))
  padded = [np.pad(prompt_of(length), ((0, 0), (0, 0), (0, LONGEST - length))) for length in lengths]
  batch = Prompt(
    jnp.asarray(np.concatenate([tokens for tokens, _ in padded])), jnp.asarray(np.concatenate([m for _, m in padded]) > 0)
  )
  verifier = jaxspec.TargetVerifier(fns, jaxspec.lossless, warp=warp)
  out = jaxspec.autoregress(jaxspec.SpecParams((), params), keys, batch, verifier=verifier, max_len=NEW)
  edge = Edge((), NO_DRAFTER, PlainCodec(13), NEW, profile=1)
  for row, length in enumerate(lengths):
    found, _ = edge.run(prompt_of(length), keys[row : row + 1], cloud)
    np.testing.assert_array_equal(found.tokens[0], out.tokens[row])


def test_conditions_that_are_compiled():
  fns = llama_fns(CONFIG)._replace(prefix_len=lambda prompt: prompt.tokens.shape[1])
  programs = Programs(side({}), fns, (ServedProfile(PlainCodec(13)),), Sizes(2, 2, NEW, (8,)), EXAMPLE)
  assert [condition.tokens.shape for condition in programs.conditions()] == [(1, 8), (1, LONGEST)]
  assert programs.num_cache_slots == LONGEST + NEW + 8
  five = programs.condition(prompt_of(5))
  np.testing.assert_array_equal(five.tokens[0, 3:], prompt_of(5).tokens[0])
  assert five.mask.tolist() == [[False] * 3 + [True] * 5] and five.tokens.dtype == np.int32
  assert programs.condition(prompt_of(9)).tokens.shape == (1, LONGEST)
  nothing = Prompt(np.ones((1, 3), np.int32), np.zeros((1, 3), bool))
  two = Prompt(np.ones((2, 3), np.int32), np.ones((2, 3), bool))
  for refused in (prompt_of(LONGEST + 1), nothing, two, ClassLabels(np.zeros(1, np.int32))):
    with pytest.raises(ValueError, match="Must have"):
      programs.condition(refused)
