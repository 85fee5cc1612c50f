"""Statistical tests of samples against a distribution, in float64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import special

from jaxspec.core.types import HostArray


def assert_same_distribution(
  samples: HostArray, probs: np.ndarray, *, min_p: float = 0.01, min_expected: float = 5.0
) -> float:
  """Chi-square test of samples against a distribution, in float64. Cells with few expected samples are pooled.

  Args:
    samples: ``[R]`` or ``[R, n]`` integers; n neighbouring tokens are tested jointly.
    probs: probability of every sample, ``[V]`` or ``[V] * n``; they are scaled to add up to 1.
    min_p: smallest p-value that passes. With a fixed key of the samples the test is deterministic.
    min_expected: smallest expected number of samples in a cell.
  Returns:
    The p-value.
  Raises:
    AssertionError: if a sample is impossible, or the p-value is too small.
    ValueError: if the shapes do not fit, or fewer than two cells remain.
  """
  probs = np.asarray(probs, np.float64)
  samples = np.asarray(samples).reshape(len(samples), -1)
  if probs.ndim != samples.shape[1]:
    raise ValueError(f"Must have probs with {samples.shape[1]} axes, one for each token, we instead got {probs.ndim}")
  observed = np.bincount(np.ravel_multi_index(tuple(samples.T), probs.shape), minlength=probs.size).astype(np.float64)
  expected = probs.ravel() / probs.sum() * len(samples)
  if (impossible := observed[expected == 0].sum()) > 0:
    raise AssertionError(f"same distribution: Must have no sample of probability 0, we instead got {impossible:.0f}")
  large = expected >= min_expected
  pooled = [np.append(counts[large], counts[~large].sum()) for counts in (observed, expected)]
  if pooled[1][-1] < min_expected:  # too few for a separate cell: merged with the smallest one
    smallest = np.argmin(pooled[1][:-1]) if large.any() else 0
    for counts in pooled:
      counts[smallest] += counts[-1]
    pooled = [counts[:-1] for counts in pooled]
  observed, expected = pooled
  if len(expected) < 2:
    raise ValueError(f"Must have samples for at least two cells of {min_expected:g}, we instead got {len(samples)} samples")
  statistic = float(np.sum((observed - expected) ** 2 / expected))
  p_value = float(special.chdtrc(len(expected) - 1, statistic))
  if not p_value > min_p:
    raise AssertionError(
      f"same distribution: Must have a p-value above {min_p:g}, we instead got {p_value:.2g} "
      f"(chi-square {statistic:.1f} in {len(expected)} cells)"
    )
  return p_value


def assert_same_cdf(samples: HostArray, cdf: Callable[[np.ndarray], np.ndarray], *, min_p: float = 0.01) -> float:
  """Kolmogorov-Smirnov test of continuous samples ``[R]`` against a distribution function.

  Returns:
    The p-value.
  Raises:
    AssertionError: if it is too small.
  """
  from scipy import stats  # slow to import

  distance, p_value = map(float, stats.kstest(np.asarray(samples, np.float64).ravel(), cdf))
  if not p_value > min_p:
    raise AssertionError(
      f"same distribution: Must have a p-value above {min_p:g}, we instead got {p_value:.2g} (distance {distance:.4f})"
    )
  return p_value
