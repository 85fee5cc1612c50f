"""GPT-Neo and Llama agree with the transformers library on stored arrays, in one pass and through the cache."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxspec
from conversion import llama
from jaxspec.models.conditions import Prefixed, Prompt
from jaxspec.models.language.llama import llama_fns
from tests.helpers import side, slow_but
from tests.models import text_golden as golden

TOLERANCE = golden.TOLERANCE
MODELS = slow_but(golden.MODELS, ["gpt_neo", "llama_untied"])  # tied weights alone are another kind of file


@functools.cache
def _apply(fns):
  return jax.jit(lambda params, inputs, cache, positions: fns.apply(params, inputs, cache, positions=positions))


def _prompt(arrays, right: bool = False) -> Prompt:
  """The stored prompts, padded on the left or on the right."""
  ids, mask = arrays["prompt_ids"], arrays["prompt_mask"]
  if right:
    index = np.argsort(~mask, axis=1, kind="stable")
    ids, mask = np.take_along_axis(ids, index, 1), np.take_along_axis(mask, index, 1)
    assert mask[:, 0].all()
  return Prompt(jnp.asarray(ids), jnp.asarray(mask))


@pytest.mark.parametrize("name", MODELS)
def test_one_pass_agrees(name):
  model, arrays = golden.load(name), golden.arrays(name)
  tokens = jnp.asarray(arrays["tokens"])
  output, cache = _apply(model.fns)(model.params, tokens, None, None)
  assert cache is None
  np.testing.assert_allclose(output.logits, arrays["logits"], atol=TOLERANCE)
  prompt = Prompt(tokens[:, :5], jnp.ones((2, 5), bool))
  prefixed, _ = _apply(model.fns)(model.params, Prefixed(prompt, tokens[:, 5:]), None, None)
  np.testing.assert_allclose(prefixed.logits, output.logits, atol=TOLERANCE)


@pytest.mark.parametrize("name", MODELS)
def test_pieces_through_the_cache_agree(name):
  """Prefill, then pieces of several sizes, in rows that are at different positions."""
  model, arrays = golden.load(name), golden.arrays(name)
  tokens, expected = arrays["tokens"], arrays["logits"]
  fns, params = model.fns, model.params
  prompt = Prompt(jnp.asarray(tokens[:, :4]), jnp.ones((2, 4), bool))
  cache = fns.init_cache(2, tokens.shape[1] + 3)
  output, cache = _apply(fns)(params, prompt, cache, jnp.arange(4)[None])
  np.testing.assert_allclose(output.logits, expected[:, :4], atol=TOLERANCE)
  at = np.array([4, 4])
  for sizes in ((3, 1), (3, 3), (3, 2), (3, 3)):
    # Both rows feed three tokens. The second row rolls back and overwrites some of them in the next piece.
    piece = np.stack([row[i : i + 3] for row, i in zip(tokens, at)])
    output, cache = _apply(fns)(params, jnp.asarray(piece), cache, jnp.asarray(at[:, None] + np.arange(3)))
    for row, (i, size) in enumerate(zip(at, sizes)):
      np.testing.assert_allclose(output.logits[row, :size], expected[row, i : i + size], atol=TOLERANCE)
    at = at + np.array(sizes)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("right", [False, True])
def test_prompts_of_different_lengths(name, right):
  model, arrays = golden.load(name), golden.arrays(name)
  prompt = _prompt(arrays, right)
  output, _ = _apply(model.fns)(model.params, prompt, None, None)
  np.testing.assert_allclose(output.logits[:, -1], arrays["prompt_logits"], atol=TOLERANCE)


@pytest.mark.slow
@pytest.mark.parametrize(
  "name", [name if name == "gpt_neo" else pytest.param(name, marks=pytest.mark.slow) for name in golden.MODELS]
)
def test_greedy_continuations(name):
  """Speculative decoding continues ragged prompts as ``generate`` of the library does."""
  model, arrays = golden.load(name), golden.arrays(name)
  expected = arrays["greedy"]
  own = side(model.params, temperature=0.0)
  # A draft of the same family with other weights, so that some of its tokens are rejected.
  noisy = side(jax.tree.map(lambda leaf: leaf + 0.02 * jnp.sin(jnp.arange(leaf.size).reshape(leaf.shape)), model.params))
  verifier = jaxspec.TargetVerifier(model.fns, jaxspec.lossless, warp=jaxspec.Warp())
  drafter = jaxspec.SmallModelDrafter(model.fns, window=3, warp=jaxspec.Warp())
  params, prompt = jaxspec.SpecParams(noisy, own), _prompt(arrays, right=True)
  out = jaxspec.speculate(params, jax.random.key(0), prompt, drafter=drafter, verifier=verifier, max_len=expected.shape[1])
  np.testing.assert_array_equal(out.tokens, expected)
  assert 0 < int(out.counters.accepted.sum()) < int(out.counters.drafted.sum())


@pytest.mark.parametrize(
  "scaling", [pytest.param(name, marks=() if name == "yarn" else pytest.mark.slow) for name in golden.ROPE_CONFIGS]
)
def test_rotary_scalings(scaling):
  """One pass, and two pieces through a cache."""
  weights, arrays = golden.load("llama_rope"), golden.arrays("llama_rope")
  rope = llama.read_rope(golden.ROPE_CONFIGS[scaling])
  fns = llama_fns(dataclasses.replace(weights.config, rope=rope))
  tokens, expected = jnp.asarray(arrays["tokens"]), arrays[scaling]
  full, _ = _apply(fns)(weights.params, tokens, None, None)
  np.testing.assert_allclose(full.logits, expected, atol=TOLERANCE)
  cache, parts, half = fns.init_cache(1, tokens.shape[1]), [], tokens.shape[1] // 2
  for at in (0, half):
    piece, positions = tokens[:, at : at + half], at + jnp.arange(half)[None]
    output, cache = _apply(fns)(weights.params, piece, cache, positions)
    parts.append(output.logits)
  np.testing.assert_allclose(jnp.concatenate(parts, axis=1), expected, atol=TOLERANCE)
