"""Emu3 against stored outputs of the official code: passes, guided scores, whole images, and legal ids by position."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxspec
from jaxspec import methods
from jaxspec.models.conditions import Prefixed, Prompt
from jaxspec.models.guidance import Guided, guided
from jaxspec.models.language.emu3 import TRUNK, Emu3Config, emu3_fns, null_prompt
from jaxspec.models.language.image_rows import ImageRows
from jaxspec.run.loading import load_pipeline
from tests.helpers import slow_but
from tests.models import emu3_golden as golden

STORED = golden.arrays("gen")
ROWS, COLUMNS = golden.TEXT["image_size"]
PROMPTS = [row["text"] for row in golden.TEXT["prompts"]]
# Image tokens before which the stored rows of hidden states and logits stand.
AT = [0, 9, 18, 27]


@pytest.fixture(scope="module")
def pipe(tmp_path_factory):
  return load_pipeline(golden.convert(tmp_path_factory.mktemp("emu3")))


def _tokens(pipe, name):
  """Stored image tokens ``[3, 28]`` as local ids."""
  return golden.local(STORED[f"{name}_tokens"][:, :28], pipe.family.target.config)


def test_prompts_are_the_official_ones(pipe):
  encoded = pipe.encode(PROMPTS)
  rows = [tokens[mask].tolist() for tokens, mask in zip(encoded.condition.tokens, encoded.condition.mask)]
  assert rows == [row["ids"] for row in golden.TEXT["prompts"]]
  null = null_prompt(pipe.family.target.config, encoded.condition)
  rows = [np.asarray(tokens)[np.asarray(mask)].tolist() for tokens, mask in zip(null.tokens, null.mask)]
  assert rows == [golden.TEXT["negative_ids"]] * 3
  text = pipe.family.text
  assert [text.encode(row["text"]).ids for row in golden.TEXT["texts"]] == [row["ids"] for row in golden.TEXT["texts"]]
  with pytest.raises(ValueError, match="at least 124 slots for the negative prompt, we instead got 8"):
    null_prompt(pipe.family.target.config, Prompt(jnp.zeros((1, 8), jnp.int32), jnp.ones((1, 8), bool)))


def test_passes_agree(pipe):
  """Both halves with padded prompts, all blocks; the whole vocabulary, and the rows that draw."""
  network, condition = pipe.family.target, pipe.encode(PROMPTS).condition
  config, slots = network.config, condition.tokens.shape[1]
  ids = jnp.asarray(STORED["sampled_tokens"][:, :27])
  local = jnp.asarray(_tokens(pipe, "sampled")[:, :27])
  at, layers = [slots - 1 + place for place in AT], emu3_fns(config).layers

  @jax.jit
  def run(params, drawing_params, prompt):
    whole = emu3_fns(config).apply(params, Prefixed(prompt, ids), None, positions=None)[0]
    drawing = TRUNK.fns(config).apply(drawing_params, Prefixed(prompt, local), None, positions=None)[0]
    x, context = layers.embed(params, Prefixed(prompt, ids), None)
    hidden = []
    for layer in range(config.num_layers):
      hidden.append(x)
      x, _ = layers.blocks(params, x, context, None, layer, layer + 1)
    return whole, drawing.logits, hidden

  for kind, prompt in (("cond", condition), ("uncond", null_prompt(config, condition))):
    found, drawn, hidden = jax.device_get(run(network.params, pipe.target.params, prompt))
    np.testing.assert_allclose(found.logits[:, at], STORED[f"{kind}_logits"], atol=2e-5)
    np.testing.assert_allclose(found.features[:, at], STORED[f"{kind}_hidden2"], atol=2e-5)
    np.testing.assert_allclose(drawn[:, at], STORED[f"{kind}_logits"][..., config.drawn_ids], atol=2e-5)
    for layer, x in enumerate(hidden):
      np.testing.assert_allclose(x[:, at], STORED[f"{kind}_hidden{layer}"], atol=2e-5)


@pytest.mark.parametrize("name", slow_but(["greedy", "sampled"], ["greedy"]))
def test_guided_scores_agree(pipe, name):
  """Guidance 3 and the constraint, with the official top-k where one was used, before every token of an image."""
  condition, config = pipe.encode(PROMPTS).condition, pipe.family.target.config
  tokens = _tokens(pipe, name)
  fns, top_k = guided(TRUNK.fns(config)), {"greedy": 0, "sampled": 5}[name]
  params = Guided(pipe.target.params, jnp.float32(3.0))
  apply = jax.jit(lambda inputs: fns.apply(params, inputs, None, positions=None)[0].logits)
  logits = apply(Prefixed(condition, jnp.asarray(tokens[:, :27])))
  logits = logits[:, condition.tokens.shape[1] - 1 :]
  warp = jaxspec.Warp(top_k=top_k, legal=config.image_rows)
  found = jax.nn.log_softmax(warp(logits, jaxspec.sampling_params(), jnp.arange(28)[None]), axis=-1)
  stored = STORED[f"{name}_scores"][:, :28, :-1]  # the last id is padding
  np.testing.assert_array_equal(np.isfinite(found), np.isfinite(stored))
  official = np.asarray(jax.nn.log_softmax(stored, axis=-1))
  np.testing.assert_allclose(np.where(np.isfinite(stored), found, 0), np.where(np.isfinite(stored), official, 0), atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["ar", methods.Sjd(window=5)], ids=["ar", "sjd"])
def test_greedy_images_are_the_official_ones(pipe, method):
  """Batch of three prompts; what follows the last row end is forced in the official code."""
  found = pipe(PROMPTS, key=0, method=method, temperature=0.0, top_k=0)
  np.testing.assert_array_equal(found.tokens, _tokens(pipe, "greedy"))
  special = golden.TEXT["special"]
  assert (STORED["greedy_tokens"][:, 28:] == [special[name] for name in ("eof", "eoi", "eos")]).all()


@pytest.mark.slow
def test_pixels_are_the_official_ones(pipe):
  image = pipe.family.decode(_tokens(pipe, "sampled")[:1])[0]
  apart = np.abs(image.astype(int) - STORED["sampled_image"].astype(int))
  assert image.shape == (2 * ROWS, 2 * COLUMNS, 3) and apart.max() <= 1 and np.mean(apart > 0) < 1e-2


def test_legal_ids_are_the_official_ones():
  for name, stored in golden.arrays("legal").items():
    height, width = map(int, name.split("x"))
    rows = ImageRows(24, height, width, num_ends=3)
    num = rows.num_tokens + 3
    found = np.asarray(jax.jit(rows)(np.arange(num + 9)))
    np.testing.assert_array_equal(found[:num], stored[:num, :-1], err_msg=name)
    assert not stored[:num, -1].any()  # padding
    assert found[num:].any(-1).all()  # windows that go beyond the end
  assert rows.codes(jnp.arange(25)[None]).shape == (1, 20)


def test_configs():
  config = Emu3Config()
  assert config.grid == (90, 91) and config.image_rows.num_tokens == 8190 and len(config.drawn_ids) == 32772
  assert config.drawn_ids[-5:].tolist() == [184621, 151846, 151847, 151853, 151850]
  assert config.prompt_ids([7]) == [151849, 7, 151852, 24, 15, 9, 24, 15, 151851]
  for fields, words in (
    ({"numerals": (1, 2)}, "11 ids as numerals, we instead got 2"),
    ({"rows": 0}, "rows, columns and codes, we instead got 0, 90, 32768"),
    ({"num_heads": 33}, "width divisible by the heads"),
    ({"num_kv_heads": 5}, "heads divisible by kv heads"),
  ):
    with pytest.raises(ValueError, match=words):
      Emu3Config(**fields)
