"""Comparison of two methods: differences of figures and of times, paired by prompt and key where both share them."""

from __future__ import annotations

import functools
import itertools
import math
from typing import NamedTuple

import numpy as np

from jaxspec.statistics.clusters import checked_index, cluster_index, ratio_variance, vector
from jaxspec.statistics.figures import Interval, Share, studentized_quantile
from jaxspec.statistics.quantiles import t_quantile

_MOST_ENUMERATED = 12  # clusters; beyond, signs are drawn
_BLOCK = 1 << 16  # signs converted to float64 at a time: half a megabyte, where those of a thousand clusters have 80


class Difference(NamedTuple):
  """A difference of two figures, first minus second, or of their logarithms where stated."""

  value: float
  low: float
  high: float
  p_value: float  # two-sided, of no difference
  standard_error: float
  clusters: int


class TimeRatio(NamedTuple):
  """Median of the ratios of paired times."""

  value: float
  low: float
  high: float
  level: float  # coverage of the interval: at least the requested level, less if there are too few pairs
  p_value: float  # two-sided, of a ratio of 1
  count: int  # pairs


def paired_difference(
  first: np.ndarray,
  second: np.ndarray,
  *,
  clusters: np.ndarray | None = None,
  level: float = 0.95,
  resamples: int = 999,
  permutations: int = 9999,
  seed: int = 0,
  largest: float | None = None,
) -> Difference:
  """Mean of ``first - second``, sample by sample, with an interval and a p value over clusters.

  Estimand and interval are those of `mean` of the differences. The p value is that of all or ``permutations`` random flips
  of the signs of whole clusters: exact where swapping the two methods on a prompt changes no probability, and asymptotically
  correct where only the means are equal. For hits and misses, take `paired_share_difference`.

  Args:
    first: ``[N]`` finite numbers of one method; ``second`` of the other, of the same prompts, keys and order.
    clusters: ``[N]`` labels, at least 2 different ones.
    largest: bound of the absolute difference of a sample, if there is one. Where all clusters have the same difference, the
      interval is then widened for unseen prompts: with confidence ``level``, at most the share ``1 - (1 - level)^(1 /
      clusters)`` of them differ from it, by at most twice the bound.
  """
  difference = vector(first, "first") - vector(second, "second", len(first))
  value, variance, groups = ratio_variance(difference, np.ones(len(difference)), clusters, at_least=2)
  error = math.sqrt(variance)
  quantile = studentized_quantile(difference, clusters, level, resamples, seed)
  if largest is not None and error <= 1e-12 * largest:
    unseen = 1 - (1 - level) ** (1 / groups)
    error = unseen * (largest if value == 0 else 2 * largest) / quantile
  index, groups = cluster_index(clusters, len(difference))
  p_value = sign_flip_p_value(np.bincount(index, difference, groups), permutations=permutations, seed=seed)
  return Difference(value, value - quantile * error, value + quantile * error, p_value, error, groups)


def paired_share_difference(
  first: np.ndarray,
  second: np.ndarray,
  *,
  clusters: np.ndarray | None = None,
  level: float = 0.95,
  permutations: int = 9999,
  seed: int = 0,
) -> Difference:
  """Difference of two hit rates on the same prompts; its interval is never a single point.

  Estimand: mean over clusters of the difference of the shares of a cluster. Interval: Student's t after two clusters were
  added, one that differs by +w and one by -w. With one sample per prompt w is 1, the interval of Agresti & Min (2005) and
  Bonett & Price (2012). With more, w is the typical size of a difference (sum of squares over sum of sizes), 1 where nothing
  differs. ``value`` is the observed difference, the middle of the interval is nearer to 0. In simulations of 95 % intervals
  the coverage is 95 to 97 % where ten clusters or more differ, 97 to 99 % where three do, and 100 % where one or none does.
  The p value is that of `paired_difference`.

  Args:
    first: ``[N]`` bool or 0 and 1, hits of one method; ``second`` of the other, of the same prompts, keys and order.
    clusters: ``[N]`` labels, at least 2 different ones.
  """
  first, second = vector(first, "first"), vector(second, "second", len(first))
  if not np.isin(np.concatenate([first, second]), (0.0, 1.0)).all():
    raise ValueError("Must have hits and misses, we instead got other numbers")
  index, groups = checked_index(clusters, len(first), at_least=2)
  differences = np.bincount(index, first - second, groups) / np.bincount(index, minlength=groups)
  size = np.abs(differences).sum()
  added = float(np.sum(differences**2) / size) if size else 1.0  # w
  middle = float(differences.sum()) / (groups + 2)
  variance = (float(np.sum(differences**2)) + 2 * added**2) / (groups + 2) - middle**2
  error = math.sqrt(variance / (groups + 2))
  half = t_quantile(level, groups - 1) * error
  p_value = sign_flip_p_value(differences, permutations=permutations, seed=seed)
  return Difference(float(differences.mean()), max(middle - half, -1.0), min(middle + half, 1.0), p_value, error, groups)


def independent_difference(first: Interval | Share, second: Interval | Share) -> Interval:
  """Difference of two figures that share no prompt, from their intervals (MOVER: Newcombe 1998; Zou & Donner 2008)."""
  value = first.value - second.value
  below = math.hypot(first.value - first.low, second.high - second.value)
  above = math.hypot(first.high - first.value, second.value - second.low)
  return Interval(value, value - below, value + above)


def time_ratio(
  first_s: np.ndarray, second_s: np.ndarray, *, level: float = 0.95, permutations: int = 9999, seed: int = 0
) -> TimeRatio:
  """Median of ``first_s / second_s`` over pairs of alternating runs.

  Estimand: median of the ratio of a pair. Interval: order statistics of the ratios (Thompson 1936), distribution-free; its
  exact coverage is `TimeRatio.level`. Fewer than 6 pairs have no interval of 95 percent: the interval then spans all ratios,
  with a lower level. The p value flips signs of the logarithms of the ratios.

  Args:
    first_s: ``[N]`` seconds above 0; ``second_s`` ``[N]``, the other times of the pairs.
  """
  first_s, second_s = vector(first_s, "first_s"), vector(second_s, "second_s", len(first_s))
  if min(first_s.min(), second_s.min()) <= 0:
    raise ValueError("Must have times above 0, we instead got others")
  logs = np.sort(np.log(first_s) - np.log(second_s))
  count = len(logs)
  # The median lies between the k-th smallest and the k-th largest ratio unless fewer than k ratios are on one side of it.
  tails = np.cumsum([math.comb(count, k) / 2**count for k in range(count // 2 + 1)])
  outside = 0
  while outside + 1 <= (count - 1) // 2 and 2 * tails[outside + 1] <= 1 - level + 1e-12:
    outside += 1
  low, value, high = np.exp([logs[outside], np.median(logs), logs[count - 1 - outside]])
  p_value = sign_flip_p_value(logs, permutations=permutations, seed=seed)
  return TimeRatio(float(value), float(low), float(high), max(1 - 2 * float(tails[outside]), 0.0), p_value, count)


def sign_flip_p_value(sums: np.ndarray, *, permutations: int = 9999, seed: int = 0) -> float:
  """Two-sided p value of a sum of symmetric terms: the share of sign flips whose sum is at least as far from 0 (Fisher
  1935).

  All flips are tried for up to 12 terms that are not 0; otherwise ``permutations`` random ones, with the observed one
  counted among them (Phipson & Smyth 2010), so that the p value is valid and never 0. The studentized sum has the same p
  value.

  Args:
    sums: ``[G]``, one number per cluster.
  """
  sums = np.asarray(sums, np.float64)
  sums = sums[sums != 0]
  if not len(sums):
    return 1.0
  if len(sums) <= _MOST_ENUMERATED:
    signs = np.array(list(itertools.product((-1.0, 1.0), repeat=len(sums))))
    return float(np.mean(np.abs(signs @ sums) >= _reached(sums)))
  return _random_flips_p_value(sums.tobytes(), permutations, seed)


@functools.lru_cache(maxsize=4096)  # tables, figures and pages repeat comparisons of the same rows
def _random_flips_p_value(data: bytes, permutations: int, seed: int) -> float:
  sums = np.frombuffer(data)
  reached = _reached(sums)
  positive = np.random.default_rng(seed).integers(0, 2, size=(permutations, len(sums)), dtype=np.int8)
  size = max(_BLOCK // len(sums), 1)
  kept = [positive[at : at + size].astype(np.float64) @ sums for at in range(0, permutations, size)]
  flipped = 2 * np.concatenate(kept) - sums.sum()
  return (1 + int(np.sum(np.abs(flipped) >= reached))) / (1 + permutations)


def _reached(sums: np.ndarray) -> float:
  """The distance from 0 that counts as that of the observed sum, up to rounding."""
  return abs(sums.sum()) - 1e-9 * np.abs(sums).sum()
