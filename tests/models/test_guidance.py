"""Guidance as a wrapper: official arithmetic, the interval's offset, and both halves on one batch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.models.conditions import ClassLabels
from jaxspec.models.guidance import Guided, guided
from jaxspec.models.llamagen import llamagen_fns
from tests.helpers import TARGET, markov_fns, random_params

FNS = llamagen_fns(TARGET)
PARAMS = random_params(FNS, 3)
LABELS = ClassLabels(jnp.asarray([0, 1], jnp.int32))
TOKENS = jnp.asarray(np.random.default_rng(0).integers(0, 13, (2, 6)), jnp.int32)


def _logits(fns, params, labels):
  cache = fns.init_cache(2, 17)
  apply = jax.jit(fns.apply)
  first, cache = apply(params, labels, cache, positions=jnp.arange(1)[None])
  rest, _ = apply(params, TOKENS, cache, positions=1 + jnp.arange(6)[None])
  return np.concatenate([first.logits, rest.logits], 1)  # row i is the distribution of token i


def _halves():
  null = ClassLabels(jnp.full((2,), TARGET.num_classes, jnp.int32))
  return _logits(FNS, PARAMS, LABELS), _logits(FNS, PARAMS, null)


@pytest.mark.slow
def test_guided_logits_follow_the_formula():
  cond, uncond = _halves()
  out = _logits(guided(FNS), Guided(PARAMS, jnp.float32(4.0)), LABELS)
  np.testing.assert_allclose(out, uncond + (cond - uncond) * 4.0, atol=2e-4)


@pytest.mark.slow
@pytest.mark.parametrize("interval", [0, 2])
def test_interval_guides_tokens_up_to_interval_plus_one(interval):
  cond, _ = _halves()
  always = _logits(guided(FNS), Guided(PARAMS, jnp.float32(3.0)), LABELS)
  out = _logits(guided(FNS, interval=interval), Guided(PARAMS, jnp.float32(3.0)), LABELS)
  on = interval + 2
  np.testing.assert_allclose(out[:, :on], always[:, :on], atol=1e-5)
  np.testing.assert_allclose(out[:, on:], cond[:, on:], atol=2e-5)


def test_a_model_without_an_unconditional_half_is_an_error():
  with pytest.raises(ValueError, match="unconditional"):
    guided(markov_fns(5))
