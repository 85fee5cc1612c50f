"""The naive rules and the lossless one against stored outputs and closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxspec
from jaxspec.core import rng
from jaxspec.rules.exact_distribution import exact_distribution
from jaxspec.rules.scaled_rule import ScaledRule, always
from jaxspec.rules.static_groups import StaticGroupsRule
from tests.rules import golden
from tests.rules.rules_reference import random_distributions


def test_golden_single_positions():
  case = golden.load("sd_lossless_single")
  rule, token = ScaledRule(1.0), jnp.asarray(case["token"], jnp.int32)
  p, q = jnp.asarray(case["p"]), jnp.asarray(case["q"])
  np.testing.assert_allclose(rule.accept_prob((), token, p, q), case["accept_prob"], atol=1e-6)
  weights = np.asarray(rule.residual_weights((), token, p, q))
  total = weights.sum(-1, keepdims=True)
  np.testing.assert_allclose(np.where(total > 1e-6, weights / np.maximum(total, 1e-6), 0), case["residual"], atol=1e-5)


@pytest.mark.slow
def test_golden_single_positions_through_the_lossless_rule(monkeypatch):
  """A uniform just below the stored acceptance accepts the draft; one just above emits the residual's median."""
  case = golden.load("sd_lossless_single")
  rows = case["token"].size
  log = lambda distribution: jnp.log(jnp.asarray(distribution))[:, None]
  full = jnp.ones((rows,), jnp.int32)
  draft = jaxspec.Draft.chain(jnp.asarray(case["token"], jnp.int32)[:, None], log(case["q"]), full, 0)
  target = jnp.concatenate([log(case["p"]), log(case["p"])], axis=1)
  monkeypatch.setattr(rng, "final_uniform", lambda keys: jnp.full((rows,), 0.5))
  accept = case["accept_prob"]
  for offset, expected in ((-1e-4, accept > 1e-4), (1e-4, accept > 1 - 1e-4)):
    uniform = jnp.clip(jnp.asarray(accept) + offset, 0.0, 1 - 1e-7)[:, None]
    monkeypatch.setattr(rng, "uniforms", lambda keys, num, uniform=uniform: uniform)
    for rule in (jaxspec.lossless, ScaledRule()):
      verdict = rule((), rng.row_keys(jax.random.key(0), rows), draft, target)
      np.testing.assert_array_equal(verdict.num_accepted, expected)
      rejected = ~expected
      distribution = case["residual"][rejected]
      median = np.argmax(np.cumsum(distribution, -1) > 0.5, axis=-1)
      np.testing.assert_array_equal(np.asarray(verdict.next_tokens[:, 0])[rejected], median)
  assert 0 < expected.sum() < rows


def test_closed_forms():
  p, q = random_distributions(3, 5, 16)
  distribution = exact_distribution(always, (), p, q)
  np.testing.assert_allclose(distribution.distribution, q, atol=1e-6)
  np.testing.assert_allclose(distribution.alpha, 1.0, atol=1e-6)
  # For factors of at least 1 the bias equals the acceptance gained, which is the least possible.
  previous = np.zeros(5)
  for factor in (1.0, 1.5, 4.0):
    distribution = exact_distribution(ScaledRule(factor), (), p, q)
    np.testing.assert_allclose(distribution.alpha, np.minimum(factor * p, q).sum(-1), atol=1e-6)
    np.testing.assert_allclose(distribution.tv, distribution.alpha - distribution.alpha_sd, atol=2e-6)
    assert (np.asarray(distribution.tv) >= previous).all()
    previous = np.asarray(distribution.tv)
  # Below 1 only the optimal residual corrects for the additional rejections.
  assert float(exact_distribution(ScaledRule(0.5), (), p, q).tv.min()) > 0.01
  np.testing.assert_allclose(exact_distribution(ScaledRule(0.5, residual="optimal"), (), p, q).tv, 0.0, atol=2e-6)


@pytest.mark.slow
def test_a_window_of_zero_drafts_samples_the_target():
  """A window of 0 draws from the target, with and without tables."""
  rows = 4
  target = jnp.log(jnp.asarray([[[0.0, 0.0, 1.0]]] * rows))
  full = jnp.zeros((rows,), jnp.int32)
  draft = jaxspec.Draft.chain(jnp.zeros((rows, 0), jnp.int32), jnp.zeros((rows, 0, 3)), full, 0)
  for rule, tables in ((ScaledRule(2.0), ()), (jaxspec.lossless, ()), (StaticGroupsRule(), jnp.arange(3))):
    verdict = rule(tables, rng.row_keys(jax.random.key(0), rows), draft, target)
    np.testing.assert_array_equal(verdict.next_tokens, 2)
    np.testing.assert_array_equal(verdict.num_accepted, 0)


def test_settings_out_of_range_are_errors():
  for factor in (0.0, -1.0, float("nan"), float("inf")):
    with pytest.raises(ValueError, match="Must have a finite factor above 0"):
      ScaledRule(factor)
  with pytest.raises(ValueError, match="Must have a residual in paper, optimal"):
    ScaledRule(2.0, residual="compat")
