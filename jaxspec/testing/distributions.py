"""Statistical tests of samples against a distribution, in float64 and without SciPy."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np

from jaxspec.core.types import HostArray


def assert_same_distribution(
  samples: HostArray, probs: np.ndarray, *, min_p: float = 0.01, min_expected: float = 5.0
) -> float:
  """Chi-square test of samples against a distribution, in float64. Cells with few expected samples are pooled.

  Args:
    samples: ``[R]`` or ``[R, n]`` integers; n neighbouring tokens are tested jointly.
    probs: probability of every sample, ``[V]`` or ``[V] * n``; they are scaled to add up to 1.
    min_p: smallest p-value that passes. Fix the key of the samples: the test is then deterministic.
    min_expected: fewest expected samples of a cell.
  Returns:
    The p-value.
  Raises:
    AssertionError: if a sample is impossible, or the p-value is too small.
    ValueError: for samples and probabilities whose shapes do not fit, or that leave fewer than two cells.
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
  if pooled[1][-1] < min_expected:  # too few for a cell of their own: they join the smallest one
    smallest = np.argmin(pooled[1][:-1]) if large.any() else 0
    for counts in pooled:
      counts[smallest] += counts[-1]
    pooled = [counts[:-1] for counts in pooled]
  observed, expected = pooled
  if len(expected) < 2:
    raise ValueError(f"Must have samples for at least two cells of {min_expected:g}, we instead got {len(samples)} samples")
  statistic = float(np.sum((observed - expected) ** 2 / expected))
  p_value = _chi_square_tail(statistic, len(expected) - 1)
  if not p_value > min_p:
    raise AssertionError(
      f"same distribution: Must have a p-value above {min_p:g}, we instead got {p_value:.2g} "
      f"(chi-square {statistic:.1f} in {len(expected)} cells)"
    )
  return p_value


def assert_same_cdf(samples: HostArray, cdf: Callable[[np.ndarray], np.ndarray], *, min_p: float = 0.01) -> float:
  """Kolmogorov-Smirnov test of continuous samples ``[R]`` against a distribution function (asymptotic, R of 100 at least).

  Returns:
    The p-value.
  Raises:
    AssertionError: if it is too small.
  """
  ordered = np.sort(np.asarray(samples, np.float64).ravel())
  size, values = len(ordered), np.asarray(cdf(ordered), np.float64)
  distance = max(np.max(np.arange(1, size + 1) / size - values), np.max(values - np.arange(size) / size))
  scaled = distance * (math.sqrt(size) + 0.12 + 0.11 / math.sqrt(size))
  p_value = min(max(2 * sum((-1) ** (j - 1) * math.exp(-2 * (j * scaled) ** 2) for j in range(1, 101)), 0.0), 1.0)
  if scaled < 0.2:  # the series converges too slowly there
    p_value = 1.0
  if not p_value > min_p:
    raise AssertionError(
      f"same distribution: Must have a p-value above {min_p:g}, we instead got {p_value:.2g} (distance {distance:.4f})"
    )
  return p_value


def _chi_square_tail(statistic: float, freedom: int) -> float:
  """P(chi-square > statistic): the regularised upper incomplete gamma function at ``(freedom / 2, statistic / 2)``."""
  a, x = freedom / 2, statistic / 2
  if x <= 0:
    return 1.0
  scale = math.exp(a * math.log(x) - x - math.lgamma(a))
  if x < a + 1:  # the series of the lower function
    term = total = 1 / a
    for n in itertools.count(1):
      term *= x / (a + n)
      total += term
      if term < total * 1e-16:
        return max(1.0 - scale * total, 0.0)
  b, c = x + 1 - a, 1e300  # the continued fraction of the upper function (modified Lentz)
  d = h = 1 / b
  for n in itertools.count(1):
    b += 2
    d, c = 1 / (n * (a - n) * d + b), b + n * (a - n) / c
    h *= c * d
    if abs(c * d - 1) < 1e-15:
      return scale * h
  raise AssertionError("unreachable")
