"""Distances between feature sets are compared with closed forms and brute force."""

import numpy as np
import pytest

from jaxspec.metrics.bootstrap import bootstrap
from jaxspec.metrics.distances import (
  coverage,
  frechet_distance,
  kernel_distance,
  kernel_distance_interval,
  precision_recall,
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


def test_bootstrap_interval_covers_the_mean_about_as_often_as_it_says():
  covered = 0
  for seed in range(100):
    sample = np.random.default_rng(seed).normal(size=60)
    low, high = bootstrap(np.mean, sample, repeats=200, level=0.9, seed=seed)[1:]
    covered += low <= 0 <= high
  assert 80 <= covered <= 97


def test_kernel_interval_holds_its_value_and_tells_distant_sets_apart():
  a, b = _features(0, 60), _features(1, 60)
  near, far = kernel_distance_interval(a, b), kernel_distance_interval(a, _features(1, 60, shift=2.0))
  np.testing.assert_allclose(near.value, kernel_distance(a, b), rtol=1e-3)
  assert near.low < near.value < near.high and far.low > near.high


def test_kernel_interval_covers_zero_for_equal_distributions():
  """At 95 %: 200 pairs of sets, of which an interval that is too short would miss many."""
  found = [kernel_distance_interval(_features(s, 60), _features(s + 500, 60)) for s in range(200)]
  assert 0.9 <= np.mean([interval.low <= 0 <= interval.high for interval in found])


def test_centred_bootstrap_holds_the_value_of_a_biased_statistic():
  a, b = _features(0, 80, width=8), _features(1, 80, width=8)
  plain = bootstrap(frechet_distance, a, b, repeats=50)
  centred = bootstrap(frechet_distance, a, b, repeats=50, centred=True)
  assert plain.low > plain.value
  assert centred.low < centred.value < centred.high
  np.testing.assert_allclose(centred.high - centred.low, plain.high - plain.low, rtol=1e-9)


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
  with pytest.raises(ValueError, match="level"):
    bootstrap(np.mean, np.zeros(3), level=1.0)
