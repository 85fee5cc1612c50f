"""Imposed acceptance: the number of accepted drafts has the distribution that was asked for, for chains and for trees."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxspec
from jaxspec import methods
from jaxspec.decoder import Decoder
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.llamagen import LlamaGenConfig, llamagen_fns
from jaxspec.network import Network
from jaxspec.sampling import VectorSampling
from jaxspec.types import Draft
from jaxspec.verifiers.imposed import Imposed, ImposedTables

ROWS, VOCAB, WINDOW = 20_000, 5, 4


def judge(rule, acceptance, num_drafted=WINDOW, parents=None):
  """Verdicts of many rows about random drafts."""
  keys = jax.random.split(jax.random.key(0), ROWS)
  tokens = jnp.zeros((ROWS, WINDOW), jnp.int32)
  target = jnp.broadcast_to(jnp.log(jnp.arange(1.0, VOCAB + 1)), (ROWS, WINDOW + 1, VOCAB))
  parents = None if parents is None else jnp.broadcast_to(jnp.asarray(parents, jnp.int32), (ROWS, WINDOW))
  draft = Draft(tokens, target[:, :WINDOW], jnp.full((ROWS,), num_drafted, jnp.int32), parents)
  return jax.jit(Imposed(rule))(ImposedTables((), jnp.asarray(acceptance, jnp.float32)), keys, draft, target)


def shares(num_accepted, most):
  return np.bincount(np.asarray(num_accepted), minlength=most + 1) / ROWS


@pytest.mark.parametrize(
  "acceptance, num_drafted, expected",
  [
    (0.7, 4, [0.3, 0.21, 0.147, 0.1029, 0.2401]),
    (0.7, 2, [0.3, 0.21, 0.49, 0, 0]),
    (0.0, 4, [1, 0, 0, 0, 0]),
    (1.0, 4, [0, 0, 0, 0, 1]),
    ((0.9, 0.5), 4, [0.1, 0.45, 0.225, 0.1125, 0.1125]),
  ],
)
def test_chains(acceptance, num_drafted, expected):
  found = shares(judge(jaxspec.lossless, acceptance, num_drafted).num_accepted, WINDOW)
  # Five standard deviations of a share of 20,000 rows.
  np.testing.assert_allclose(found, expected, atol=5 * 0.5 / ROWS**0.5)
  np.testing.assert_array_equal(found == 0, np.asarray(expected) == 0)


def test_trees():
  """Nodes 0 and 1 continue the root, 2 continues node 1, 3 continues node 0: the first children are 0 and 3."""
  verdict = judge(jaxspec.verifiers.tree.tree_rule(max_path=3), 0.6, num_drafted=2, parents=[-1, -1, 1, 0])
  np.testing.assert_allclose(shares(verdict.num_accepted, 2), [0.4, 0.24, 0.36], atol=5 * 0.5 / ROWS**0.5)
  path = np.asarray(verdict.path)
  for length, nodes in ((0, []), (1, [0]), (2, [0, 3])):
    rows = np.asarray(verdict.num_accepted) == length
    assert (path[rows][:, :length] == nodes).all()


CONFIG = LlamaGenConfig(num_layers=1, dim=16, num_heads=2, vocab_size=8, num_tokens=64, num_classes=3, multiple_of=8)


@pytest.mark.slow
def test_a_decode_counts_what_was_imposed():
  """Random networks agree by chance only; other acceptances need no other program."""
  fns = llamagen_fns(CONFIG)
  target, draft = (Network(fns, fns.init(jax.random.key(seed)), CONFIG, name=str(seed)) for seed in (0, 1))
  decoder = Decoder(target, methods.Speculative(draft=draft, gamma=3), num_tokens=64)
  labels = ClassLabels(jnp.zeros((32,), jnp.int32))
  assert dataclasses.replace(decoder, imposed=0.2).parts.verifier is dataclasses.replace(decoder, imposed=0.9).parts.verifier
  for acceptance in (0.5, 0.9):
    counters = dataclasses.replace(decoder, imposed=acceptance)(labels, key=jax.random.key(2)).counters
    per_round = 1 + float(counters.accepted.sum()) / float(counters.rounds.sum())
    # The last round of a row is cut: a row has about 20 rounds.
    assert per_round == pytest.approx((1 - acceptance**4) / (1 - acceptance), rel=0.06)


def test_what_cannot_be_imposed():
  fns = llamagen_fns(CONFIG)
  network = Network(fns, {}, CONFIG)
  for wrong in (1.5, -0.1, (), (0.5, 2.0)):
    with pytest.raises(ValueError, match="an imposed acceptance from 0 to 1"):
      Decoder(network, methods.Sjd(), imposed=wrong)
  vectors = Decoder(network, methods.Cspd(draft=network), sampling=VectorSampling(steps="10"), num_tokens=64, imposed=0.5)
  with pytest.raises(ValueError, match="a method for ids to impose its acceptance, we instead got cspd"):
    _ = vectors.parts
