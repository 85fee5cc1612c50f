"""Retrieval among a fixed number of candidates is compared with enumeration of all draws."""

import itertools

import numpy as np
import pytest

from jaxspec.metrics.retrieval import first_among, nearest_is_own


def _enumerated(similarity, own, eligible, candidates):
  others = [j for j in range(len(similarity)) if j != own and eligible[j]]
  draws = list(itertools.combinations(others, candidates - 1))
  return np.mean([all(similarity[own] > similarity[j] for j in draw) for draw in draws])


@pytest.mark.parametrize("candidates", [2, 3, 5])
def test_the_probability_is_the_share_of_draws(candidates):
  generator = np.random.default_rng(0)
  similarity = generator.integers(0, 8, (7, 12)).astype(float)  # with ties
  own = generator.integers(0, 12, 7)
  eligible = generator.random((7, 12)) < 0.8
  expected = [_enumerated(s, o, e, candidates) for s, o, e in zip(similarity, own, eligible)]
  np.testing.assert_allclose(first_among(similarity, own, eligible, candidates=candidates), expected, atol=1e-12)
  assert 0 < np.mean(expected) < 1


def test_identical_features_are_always_found_and_equal_ones_never():
  x = np.random.default_rng(1).normal(size=(40, 8))
  x /= np.linalg.norm(x, axis=1, keepdims=True)
  own = np.arange(40)
  assert (first_among(x @ x.T, own) == 1).all() and nearest_is_own(x @ x.T, own).all()
  collapsed = np.ones((40, 40))
  assert (first_among(collapsed, own) == 0).all() and not nearest_is_own(collapsed, own).any()


def test_chance_is_one_in_the_candidates():
  similarity = np.random.default_rng(2).normal(size=(4000, 60))
  own = np.random.default_rng(3).integers(0, 60, 4000)
  assert abs(first_among(similarity, own, candidates=32).mean() - 1 / 32) < 0.006


def test_too_few_candidates():
  with pytest.raises(ValueError, match="31 other items, we instead got 32 and 9"):
    first_among(np.zeros((2, 10)), np.zeros(2, int))
