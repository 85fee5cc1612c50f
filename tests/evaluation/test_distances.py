"""Distances between feature sets are compared with closed forms and brute force."""

import numpy as np
import pytest

from jaxspec.evaluation.distances import (
  coverage,
  frechet_distance,
  frechet_interval,
  kernel_distance,
  kernel_distance_interval,
  precision_recall,
  precision_recall_interval,
)


def _features(seed, rows, width=6, shift=0.0, scale=1.0):
  return (np.random.default_rng(seed).normal(size=(rows, width)) * scale + shift).astype(np.float32)


def test_kernel_distance_is_the_unbiased_double_sum():
  a, b = _features(0, 7), _features(1, 5, shift=0.3)
  kernel = lambda x, y: (float(x @ y) / x.size + 1) ** 3
  mean = lambda pairs: np.mean([kernel(x, y) for x, y in pairs])
  others = lambda s: [(x, y) for i, x in enumerate(s) for j, y in enumerate(s) if i != j]
  expected = mean(others(a)) + mean(others(b)) - 2 * mean([(x, y) for x in a for y in b])
  np.testing.assert_allclose(kernel_distance(a, b), expected, rtol=1e-4)


def test_kernel_distance_of_equal_distributions_is_zero_in_the_mean_and_grows_with_a_shift():
  same = [float(kernel_distance(_features(s, 80), _features(s + 100, 80))) for s in range(20)]
  assert abs(np.mean(same)) < 3 * np.std(same) / np.sqrt(len(same))
  near, far = (float(kernel_distance(_features(0, 80), _features(1, 80, shift=d))) for d in (0.5, 1.0))
  assert max(same) < near < far


def test_frechet_distance_of_sets_with_chosen_moments():
  """Whitened sets get given means and diagonal covariances; the distance equals the closed form of two Gaussians."""

  def shaped(seed, mean, deviation):
    x = _features(seed, 400, width=3).astype(np.float64)
    x -= x.mean(0)
    x = x @ np.linalg.inv(np.linalg.cholesky(np.cov(x, rowvar=False)).T)
    return x * deviation + mean

  a = shaped(0, np.array([0.0, 1.0, 2.0]), np.array([1.0, 2.0, 0.5]))
  b = shaped(1, np.array([1.0, 1.0, 0.0]), np.array([2.0, 2.0, 1.5]))
  np.testing.assert_allclose(frechet_distance(a, b), (1 + 0 + 4) + (1 + 0 + 1), rtol=1e-9)
  assert abs(frechet_distance(a, a)) < 1e-9


def test_frechet_distance_of_vectors_that_are_wider_than_sets_are_large():
  for rows, others in ((9, 30), (30, 9)):
    a, b = _features(0, rows, width=20), _features(1, others, width=20, shift=0.4)
    first, second = (np.cov(x.astype(np.float64), rowvar=False) for x in (a, b))
    product = np.maximum(np.linalg.eigvals(first @ second).real, 0.0)
    gap = a.mean(0, dtype=np.float64) - b.mean(0, dtype=np.float64)
    expected = gap @ gap + np.trace(first) + np.trace(second) - 2 * np.sum(np.sqrt(product))
    np.testing.assert_allclose(frechet_distance(a, b), expected, rtol=1e-6)
    found = frechet_interval(a, b)
    assert found.low < found.value < found.high and found.value == pytest.approx(expected, rel=1e-6)


def test_precision_and_recall_of_a_collapsed_and_of_a_wide_generator():
  real = _features(0, 200, width=2)
  collapsed = real[:1] + 0.01 * _features(1, 200, width=2)
  wide = 30 * _features(2, 200, width=2)
  narrow = precision_recall(collapsed, real)
  assert narrow.precision > 0.9 and narrow.recall < 0.1
  broad = precision_recall(wide, real)
  assert broad.precision < 0.1 and broad.recall > 0.5
  same = precision_recall(real, real)
  assert same == (1.0, 1.0, 1.0)


def test_kernel_interval_holds_its_value_and_tells_distant_sets_apart():
  a, b = _features(0, 60), _features(1, 60)
  near, far = kernel_distance_interval(a, b), kernel_distance_interval(a, _features(1, 60, shift=2.0))
  np.testing.assert_allclose(near.value, kernel_distance(a, b), rtol=1e-3)
  assert near.low < near.value < near.high and far.low > near.high


def test_kernel_interval_covers_zero_for_equal_distributions():
  """At 95 %, with 200 pairs of sets."""
  found = [kernel_distance_interval(_features(s, 60), _features(s + 500, 60)) for s in range(200)]
  assert 0.9 <= np.mean([interval.low <= 0 <= interval.high for interval in found])


def test_coverage_is_what_precision_and_recall_count():
  generated, real = _features(0, 50, width=3), _features(1, 40, width=3, shift=0.7)
  covered = coverage(generated, real)
  found = precision_recall(generated, real)
  assert (covered.generated.mean(), covered.real.mean()) == (found.precision, found.recall)
  assert 0 < found.precision < 1
  assert not coverage(generated + 100, real).generated.any()


def test_bad_inputs_are_named():
  with pytest.raises(ValueError, match="one width"):
    kernel_distance(_features(0, 4, 3), _features(0, 4, 2))
  with pytest.raises(ValueError, match="at least 4 vectors"):
    precision_recall(_features(0, 3), _features(0, 9))
  with pytest.raises(ValueError, match="at least 4 clusters"):
    frechet_interval(_features(0, 3), _features(0, 9))
  with pytest.raises(ValueError, match="set size from 4 to 5"):
    precision_recall_interval(_features(0, 10), _features(0, 20))
  with pytest.raises(ValueError, match="level"):
    kernel_distance_interval(_features(0, 9), _features(1, 9), level=1.0)
