"""Power analysis: detectable differences, and the number of prompts that a given difference needs."""

from __future__ import annotations

import math
from statistics import NormalDist

from jaxspec.statistics.differences import Difference
from jaxspec.statistics.quantiles import check_level, t_quantile


def detectable_difference(difference: Difference, *, tests: int = 1, level: float = 0.95, power: float = 0.8) -> float:
  """Smallest true difference that a two-sided test with this standard error detects with the given power.

  ``(t(1 - (1 - level) / (2 tests)) + t(power)) standard_error`` with Student's t of the clusters (Bloom 1995). The
  correction is Holm's first step, the strictest, which applies if a table has only one true difference.

  Args:
    tests: comparisons of the table.
  """
  return _detectable(difference.clusters - 1, tests, level, power) * difference.standard_error


def required_clusters(
  difference: Difference, wanted: float, *, tests: int = 1, level: float = 0.95, power: float = 0.8
) -> int:
  """Clusters needed to detect a true difference of ``wanted``, given the standard error of this comparison.

  The number of samples per cluster stays fixed. More samples of the same prompts help less than more prompts.

  Raises:
    ValueError: unless ``wanted`` is above 0.
  """
  if not wanted > 0:
    raise ValueError(f"Must have a difference above 0, we instead got {wanted}")
  deviation = difference.standard_error * math.sqrt(difference.clusters)
  enough = lambda count: _detectable(count - 1, tests, level, power) * deviation / math.sqrt(count) <= wanted
  return _first(enough, start=2)


def required_equivalent_clusters(
  difference: Difference, margin: float, *, tests: int = 1, level: float = 0.95, power: float = 0.8
) -> int:
  """Clusters with which `equivalence` shows two equal methods to be within a margin, given this standard error.

  Both one-sided tests have to be significant, and an equal pair may fail either by chance: ``(t(level) + t((1 + power) / 2))
  standard_error <= margin`` with Student's t (Julious 2004).

  Args:
    margin: largest difference that does not matter, above 0.
    tests: simultaneous claims of equality, each at ``1 - (1 - level) / tests``.
  Raises:
    ValueError: unless ``margin`` is above 0.
  """
  if not margin > 0:
    raise ValueError(f"Must have a margin above 0, we instead got {margin}")
  check_level(power)
  deviation = difference.standard_error * math.sqrt(difference.clusters)
  errors = lambda degrees: t_quantile(1 - 2 * (1 - level) / tests, degrees) + t_quantile(power, degrees)
  return _first(lambda count: errors(count - 1) * deviation / math.sqrt(count) <= margin, start=2)


def detectable_share(base: float, count: float, *, tests: int = 1, level: float = 0.95, power: float = 0.8) -> float:
  """Smallest difference from the share ``base`` that two independent samples of ``count`` trials detect with this power.

  Two-sided test of two shares (Fleiss, Levin & Paik 2003, equation 4.14 without the correction for continuity), with the
  other share on the side of one half, where differences are harder to detect. Methods on the same prompts are paired: take
  `detectable_difference` of their `paired_share_difference`.

  Args:
    count: trials of each sample, or `Share.effective`.
  Returns:
    The difference; infinity if no share is far enough.
  """
  farthest = max(base, 1 - base)
  needed = lambda gap: _share_count(base, gap, tests, level, power)
  if not needed(farthest) <= count:
    return math.inf
  low, high = 0.0, farthest
  for _ in range(60):
    middle = (low + high) / 2
    low, high = (low, middle) if needed(middle) <= count else (middle, high)
  return high


def required_share_count(base: float, wanted: float, *, tests: int = 1, level: float = 0.95, power: float = 0.8) -> int:
  """Independent trials that each of two samples needs to detect a difference of ``wanted``; see `detectable_share`.

  Raises:
    ValueError: if no share differs from ``base`` by that much.
  """
  if not 0 < wanted <= max(base, 1 - base):
    raise ValueError(f"Must have a difference from 0 to {max(base, 1 - base):g}, we instead got {wanted}")
  return math.ceil(_share_count(base, wanted, tests, level, power))


def _share_count(base: float, gap: float, tests: int, level: float, power: float) -> float:
  if gap <= 0:
    return math.inf
  other = base + gap if base <= 0.5 else base - gap
  middle = (base + other) / 2
  spread = lambda p: max(p * (1 - p), 0.0)
  normal = NormalDist().inv_cdf
  sides = normal(1 - (1 - level) / (2 * tests)) * math.sqrt(2 * spread(middle))
  return ((sides + normal(power) * math.sqrt(spread(base) + spread(other))) / gap) ** 2


def _detectable(degrees: int, tests: int, level: float, power: float) -> float:
  """Smallest detectable difference in standard errors."""
  if tests < 1:
    raise ValueError(f"Must have at least one test, we instead got {tests}")
  check_level(power)
  strict = t_quantile(1 - (1 - level) / tests, degrees)
  return strict + math.copysign(t_quantile(abs(2 * power - 1), degrees), power - 0.5)


def _first(enough, *, start: int) -> int:
  """Smallest integer from ``start`` for which a monotone condition holds."""
  high = start
  while not enough(high):
    high *= 2
  low = max(high // 2, start - 1)
  while high - low > 1:
    middle = (low + high) // 2
    low, high = (low, middle) if enough(middle) else (middle, high)
  return high
