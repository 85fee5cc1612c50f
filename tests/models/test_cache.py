"""The cache: any split of a sequence gives the logits of one pass, and a rolled-back cache equals a fresh one."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxspec
from jaxspec.models.conditions import Caption, ClassLabels, Prefixed
from jaxspec.models.llamagen import LlamaGenConfig, llamagen_fns
from tests.helpers import random_params

N = 9
CONFIGS = {
  "classes": LlamaGenConfig(num_layers=2, dim=16, num_heads=2, vocab_size=11, num_tokens=N, num_classes=3, multiple_of=8),
  "captions": LlamaGenConfig(
    model_type="t2i", num_layers=2, dim=16, num_heads=2, vocab_size=11, num_tokens=N, prefix_len=5, caption_dim=6,
    multiple_of=8,
  ),
  "grouped": LlamaGenConfig(
    num_layers=1, dim=32, num_heads=4, num_kv_heads=2, vocab_size=11, num_tokens=N, num_classes=3, multiple_of=8
  ),
}  # fmt: skip


@functools.cache
def _setup(name):
  config = CONFIGS[name]
  fns = llamagen_fns(config)
  params = random_params(fns, 5)
  generator = np.random.default_rng(1)
  tokens = jnp.asarray(generator.integers(0, 11, (2, N)), jnp.int32)
  if name == "captions":
    mask = jnp.asarray([[False] * 3 + [True] * 2, [True] * 5])
    condition = Caption(jnp.asarray(generator.normal(size=(2, 5, 6)), jnp.float32) * mask[..., None], mask)
  else:
    condition = ClassLabels(jnp.asarray([2, 0], jnp.int32))
  full, _ = jax.jit(lambda p: fns.apply(p, Prefixed(condition, tokens), None))(params)
  return fns, params, condition, tokens, np.asarray(full.logits)


@functools.cache
def _step(name):
  fns = _setup(name)[0]
  return jax.jit(lambda p, x, c, positions: fns.apply(p, x, c, positions=positions))


def _prefill(name, extra=0):
  fns, params, condition, tokens, full = _setup(name)
  prefix = fns.prefix_len(condition)
  cache = fns.init_cache(2, prefix + N + extra)
  output, cache = _step(name)(params, condition, cache, jnp.arange(prefix)[None])
  return prefix, output, cache


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
@settings(max_examples=8, deadline=None)
@given(cuts=st.lists(st.integers(1, 3), min_size=3, max_size=9), ragged=st.booleans())
def test_any_split_gives_the_same_logits(name, cuts, ragged):
  fns, params, condition, tokens, full = _setup(name)
  prefix, output, cache = _prefill(name)
  valid = np.asarray(condition.mask) if isinstance(condition, Caption) else np.ones((2, prefix), bool)
  np.testing.assert_allclose(np.asarray(output.logits)[valid], full[:, :prefix][valid], atol=2e-5)
  at = 0
  for size in cuts:
    if at + size > N:
      break
    positions = prefix + at + jnp.arange(size)[None]
    positions = jnp.broadcast_to(positions, (2, size)) if ragged else positions
    output, cache = _step(name)(params, tokens[:, at : at + size], cache, positions)
    np.testing.assert_allclose(output.logits, full[:, prefix + at : prefix + at + size], atol=2e-5)
    at += size


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_a_rolled_back_cache_equals_a_fresh_one(name):
  """Rows of different lengths feed wrong drafts, are rolled back, and feed the correct tokens from there."""
  fns, params, condition, tokens, full = _setup(name)
  prefix, _, cache = _prefill(name, extra=3)
  _, cache = _step(name)(params, tokens[:, :4], cache, jnp.broadcast_to(prefix + jnp.arange(4)[None], (2, 4)))
  cut = jnp.asarray([4, 2])
  wrong = (tokens[:, 4:7] + 1) % 11
  _, cache = _step(name)(params, wrong, cache, prefix + cut[:, None] + jnp.arange(3)[None])
  again = jnp.stack([tokens[row, c : c + 3] for row, c in enumerate((4, 2))])
  output, _ = _step(name)(params, again, cache, prefix + cut[:, None] + jnp.arange(3)[None])
  for row, c in enumerate((4, 2)):
    np.testing.assert_allclose(output.logits[row], full[row, prefix + c : prefix + c + 3], atol=2e-5)


@pytest.mark.slow
def test_one_output_can_be_requested_alone():
  fns, params, condition, tokens, full = _setup("classes")
  prefix, _, cache = _prefill("classes")
  step = jax.jit(lambda *args: fns.apply(*args[:3], positions=args[3], logits_at=args[4]))
  output, _ = step(params, tokens[:, :3], cache, prefix + jnp.arange(3)[None], jnp.asarray([2, 0]))
  assert output.logits.shape == (2, 1, 11)
  np.testing.assert_allclose(output.logits[:, 0], np.stack([full[0, prefix + 2], full[1, prefix]]), atol=2e-5)


def test_the_loop_updates_caches_in_place():
  """Temporary memory of the compiled loop stays near the caches themselves; no copy of cache size in the body."""
  config = LlamaGenConfig(num_layers=4, dim=64, num_heads=2, vocab_size=64, num_tokens=1024, num_classes=3, multiple_of=8)
  fns = llamagen_fns(config)
  verifier = jaxspec.TargetVerifier(fns, jaxspec.lossless, warp=jaxspec.Warp())
  params = jaxspec.SpecParams((), jaxspec.ModelParams(random_params(fns, 0), jaxspec.sampling_params()))
  run = jax.jit(lambda p, k, c: jaxspec.autoregress(p, k, c, verifier=verifier, max_len=1024).tokens)
  compiled = run.lower(params, jax.random.key(0), ClassLabels(jnp.zeros((1,), jnp.int32))).compile()
  layer = 2 * 1032 * 32 * 4  # bytes of one key buffer: heads x slots x head size
  total = 2 * config.num_layers * layer
  assert compiled.memory_analysis().temp_size_in_bytes < total + 4 * layer
  body = [line for line in compiled.as_text().splitlines() if "f32[2,1032,32]" in line and " copy(" in line]
  assert len(body) <= 2 * config.num_layers, body  # at most one before the loop for each buffer
