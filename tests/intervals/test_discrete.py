"""Entropies of a set of distributions: solvers are compared with each other and with random members of the set."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.intervals.discrete import (
  DiscreteSet,
  entropy,
  largest_entropy,
  merged,
  smallest_entropy,
  water_level_distribution,
)
from jaxspec.intervals.inter_fuse import inter_fuse


@functools.partial(jax.jit, static_argnums=2)
def _merged(centre, radius, k):
  bounds = inter_fuse(centre, radius)
  return merged(bounds, centre, k), bounds


def sets(k, rows=20, vocab=9, seed=0):
  generator = np.random.default_rng(seed)
  centre = np.float32(generator.normal(size=(rows, vocab)) * 2)
  return *_merged(centre, np.float32(generator.gamma(1, 0.7, size=(rows, vocab))), k), centre


@pytest.mark.slow
def test_solvers_agree():
  (lower, upper), _, _ = sets(5)
  np.testing.assert_allclose(largest_entropy(lower, upper, "waterfill"), largest_entropy(lower, upper, "generic"), atol=1e-4)


@pytest.mark.slow
def test_entropies_enclose_those_of_random_members():
  (lower, upper), _, _ = sets(4, rows=8)
  low, high = np.float64(lower), np.float64(upper)
  most, least = np.asarray(largest_entropy(lower, upper, "waterfill")), np.asarray(smallest_entropy(lower, upper))
  generator = np.random.default_rng(1)
  middle = np.float64(water_level_distribution(lower, upper))
  seen = np.full((8, 2), (np.inf, -np.inf))
  plain = lambda p: -np.sum(np.where(p > 0, p * np.log(np.maximum(p, 1e-30)), 0))
  for row in range(8):
    for _ in range(800):
      distribution = low[row].copy()
      for i in generator.permutation(5):  # a vertex, filled in random order, mixed with another member
        distribution[i] += min(high[row, i] - distribution[i], 1 - distribution.sum())
      mix = generator.choice((0, 1, generator.uniform()))
      value = plain((1 - mix) * distribution + mix * middle[row])
      seen[row] = min(seen[row, 0], value), max(seen[row, 1], value)
  np.testing.assert_allclose(
    entropy(jnp.asarray(middle, jnp.float32)), [plain(distribution) for distribution in middle], rtol=1e-4
  )
  assert (seen[:, 0] >= least - 1e-4).all() and (seen[:, 1] <= most + 1e-4).all()
  np.testing.assert_allclose(seen[:, 0], least, atol=0.02)  # and both extremes are reached
  np.testing.assert_allclose(seen[:, 1], most, atol=0.02)


def test_the_rest_class_merges_all_other_tokens():
  sides, bounds, centre = sets(3)
  lower, upper = map(np.asarray, sides)
  top = np.argsort(-np.asarray(centre), axis=-1)[:, :3]
  taken_low, taken_high = (np.take_along_axis(np.asarray(x), top, 1) for x in (bounds.lower, bounds.upper))
  np.testing.assert_allclose(lower[:, :3], taken_low)
  np.testing.assert_allclose(lower[:, 3], np.maximum(0, 1 - taken_high.sum(1)), atol=1e-6)
  np.testing.assert_allclose(upper[:, 3], 1 - taken_low.sum(1), atol=1e-6)
  assert (lower.sum(1) <= 1 + 1e-6).all() and (upper.sum(1) >= 1 - 1e-6).all()


@pytest.mark.slow
def test_greedy_is_used_for_many_tokens_and_radius_zero_has_no_gap():
  centre = jnp.asarray(np.random.default_rng(0).normal(size=(4, 40)), jnp.float32)
  flat = inter_fuse(centre, jnp.zeros_like(centre))
  gap = DiscreteSet(20, "gap")(flat, centre)
  np.testing.assert_allclose(gap, 0, atol=1e-4)
  assert (np.asarray(DiscreteSet(20, "gap")(inter_fuse(centre, jnp.ones_like(centre)), centre)) > 0.1).all()


def test_bad_settings_are_errors():
  for bad in (dict(k=0), dict(form="lower"), dict(solver="lp")):
    with pytest.raises(ValueError, match="Must have"):
      DiscreteSet(**bad)
  (lower, upper), _, _ = sets(8, vocab=30)
  many = jnp.broadcast_to(lower[:, :1], (20, 11))
  with pytest.raises(ValueError, match="at most 8 tokens"):
    largest_entropy(many, many, "generic")
