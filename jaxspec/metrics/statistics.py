"""Intervals, tests and sample sizes of figures: what a table of methods may say, and what it cannot show.

Prompts are the units. Several samples of one prompt are a *cluster*: prompts are drawn from a population, samples of one
prompt resemble each other, and every interval here counts clusters. ``clusters`` is an ``[N]`` array with the prompt of
each sample; None makes every sample a cluster of its own. Clusters are taken to be independent of each other and drawn
alike.

1. One figure: `share` (between 0 and 1), `mean`, `ratio` (of two sums).
2. Two methods on the same prompts with the same keys: `paired_difference`, `paired_share_difference`, `time_ratio`.
   Two figures without a prompt in common: `independent_difference`.
3. A table of differences: `correct_table` has the p values of Holm and the smallest difference that each comparison could
   have shown.
4. Planning: `required_clusters`, `detectable_share`, `required_share_count`. Claims of equality: `equivalence`.

Distances of feature sets have their intervals in `jaxspec.metrics.distances`. How often the intervals cover is simulated in
``tests/metrics/test_statistics.py``. Everything is numpy; random numbers come from ``seed``, so a figure is the same twice.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Hashable, Mapping, Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

_MOST_ENUMERATED = 12  # clusters; beyond, signs are drawn


class Interval(NamedTuple):
  """A figure and its interval."""

  value: float
  low: float
  high: float


class Share(NamedTuple):
  """A share in [0, 1], its interval, and what it was counted from."""

  value: float
  low: float
  high: float
  successes: float
  count: float  # trials
  effective: float  # independent trials that would tell as much


class Difference(NamedTuple):
  """A difference of two figures, first minus second; or of their logarithms, where that is said."""

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
  level: float  # coverage of the interval: at least what was asked for, less if there are too few pairs for that
  p_value: float  # two-sided, of a ratio of 1
  count: int  # pairs


class Corrected(NamedTuple):
  """One comparison of a table."""

  difference: Difference
  adjusted: float  # p value of Holm over the table
  detectable: float  # smallest true difference that this comparison would have shown with the power asked for


class Equivalence(NamedTuple):
  """Outcome of two one-sided tests."""

  p_value: float  # of a difference as large as the margin
  low: float  # the interval that has to lie within the margin
  high: float
  margin: float
  equivalent: bool


# One figure


def share(
  successes: np.ndarray,
  trials: np.ndarray | None = None,
  *,
  clusters: np.ndarray | None = None,
  level: float = 0.95,
  method: str = "wilson",
) -> Share:
  """A share with the interval of Wilson (1927) or of Clopper and Pearson (1934); neither is ever a single point.

  Estimand: ``E[successes] / E[trials]`` over clusters. Independent single trials that succeed or fail have the textbook
  interval. Anything else (several samples of a prompt, several trials of a sample, scores between 0 and 1) has the same
  interval with the effective number of trials ``p (1 - p) / v``, where v is the cluster-robust variance of the ratio, and
  Student's t with one degree of freedom less than clusters (Korn & Graubard 1998; Dean & Pagano 2015). Where all clusters
  agree, v is 0 and the effective number is that of the clusters, as if the samples of a cluster were copies. A cluster
  bootstrap is no alternative: it has the interval [0, 0] for no success.

  The interval of Clopper and Pearson covers at least at the level for every share; that of Wilson covers at the level in the
  mean over shares, and less than that for some shares near 0 and 1.

  Args:
    successes: ``[N]`` numbers from 0 to ``trials``, such as bool hits, scores in [0, 1], or counts.
    trials: ``[N]`` numbers above 0 in sum; 1 by default.
    clusters: ``[N]`` labels.
    method: ``wilson`` or ``exact`` (Clopper and Pearson).
  Raises:
    ValueError: for numbers out of range, no trials, or an unknown method.
  """
  successes = _vector(successes, "successes")
  ones = np.ones(len(successes))
  trials = ones if trials is None else _vector(trials, "trials")
  if trials.shape != successes.shape or np.any(successes < 0) or np.any(successes > trials * (1 + 1e-9)):
    raise ValueError("Must have successes from 0 to trials, we instead got others")
  if method not in ("wilson", "exact"):
    raise ValueError(f"Must have method wilson or exact, we instead got {method!r}")
  total, count = float(successes.sum()), float(trials.sum())
  if not count > 0:
    raise ValueError("Must have at least one trial, we instead got none")
  value = min(total / count, 1.0)
  simple = clusters is None and np.array_equal(trials, ones) and bool(np.isin(successes, (0.0, 1.0)).all())
  if simple:
    effective, quantile = count, _normal_quantile(level)
  else:
    _, variance, groups = _ratio_variance(successes, trials, clusters)
    spread = value * (1 - value)
    effective = max(spread / variance, 1.0) if groups > 1 and variance > 1e-12 * spread > 0 else float(groups)
    quantile = t_quantile(level, groups - 1) if groups > 1 else _normal_quantile(level)
  if method == "exact":
    fewer = effective * (_normal_quantile(level) / quantile) ** 2
    low, high = _clopper_pearson(value * fewer, fewer, level)
  else:
    low, high = wilson(value, effective, quantile)
  return Share(value, low, high, total, count, effective)


def wilson(value: float, count: float, quantile: float) -> tuple[float, float]:
  """Score interval of a share (Wilson 1927): the shares p with ``|value - p| <= quantile sqrt(p (1 - p) / count)``."""
  square = quantile**2 / count
  middle = (value + square / 2) / (1 + square)
  half = math.sqrt(square * (value * (1 - value) + square / 4)) / (1 + square)
  return (0.0 if value <= 0 else max(middle - half, 0.0), 1.0 if value >= 1 else min(middle + half, 1.0))


def _clopper_pearson(successes: float, count: float, level: float) -> tuple[float, float]:
  tail, failures = (1 - level) / 2, count - successes
  low = beta_quantile(tail, successes, failures + 1) if successes > 0 else 0.0
  high = beta_quantile(1 - tail, successes + 1, failures) if failures > 1e-9 * count else 1.0
  return low, high


def mean(
  values: np.ndarray, *, clusters: np.ndarray | None = None, level: float = 0.95, resamples: int = 999, seed: int = 0
) -> Interval:
  """Mean over samples with an interval over clusters; for shares and scores in [0, 1], take `share`.

  Estimand: ``E[sum of a cluster] / E[size of a cluster]``, the mean over the population of prompts where all have as many
  samples. Interval: value ± q s with the cluster-robust standard error s (Liang & Zeger 1986). The quantile q is that of
  the absolute studentized mean over a cluster bootstrap (Hall 1988), and at least that of Student's t with one degree of
  freedom less than clusters. Plain percentiles and BCa cover too seldom for few clusters (88 to 92 percent of 16 clusters,
  nominally 95).

  Args:
    values: ``[N]`` finite numbers.
    clusters: ``[N]`` labels, at least 2 different ones.
    resamples: of the bootstrap; 0 has the quantile of Student's t alone.
  """
  values = _vector(values, "values")
  value, variance, _ = _ratio_variance(values, np.ones(len(values)), clusters, at_least=2)
  half = math.sqrt(variance) * _studentized_quantile(values, clusters, level, resamples, seed)
  return Interval(value, value - half, value + half)


def ratio(above: np.ndarray, below: np.ndarray, *, clusters: np.ndarray | None = None, level: float = 0.95) -> Interval:
  """``sum(above) / sum(below)`` with an interval over clusters, such as tokens per pass; for shares, take `share`.

  Estimand: ``E[above] / E[below]`` over clusters, not the mean of ratios. Interval: Student's t on the logarithm with the
  linearized (delta method) variance, so that it stays above 0 and the inverse ratio has the inverse interval. Without
  anything above, all three are 0; with an infinite sum above, all are infinite.

  Args:
    above: ``[N]`` numbers from 0; ``below`` ``[N]`` numbers from 0, not all 0.
    clusters: ``[N]`` labels, at least 2 different ones.
  """
  above, below = np.asarray(above, np.float64), _vector(below, "numbers below")
  if above.shape != below.shape or np.any(above < 0) or np.any(below < 0) or not below.sum() > 0:
    raise ValueError("Must have numbers from 0, not all below 0, we instead got others")
  if not np.isfinite(above).all() or not above.any():
    value = float(above.sum() / below.sum())
    return Interval(value, value, value)
  value, variance, groups = _ratio_variance(above, below, clusters, at_least=2)
  factor = math.exp(t_quantile(level, groups - 1) * math.sqrt(variance) / value)
  return Interval(value, value / factor, value * factor)


# Two methods


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
  of the signs of whole clusters: exact where swapping the two methods on a prompt changes no probability, and right for
  many clusters where only the means are equal. For hits and misses, take `paired_share_difference`.

  Args:
    first: ``[N]`` finite numbers of one method; ``second`` of the other, of the same prompts, keys and order.
    clusters: ``[N]`` labels, at least 2 different ones.
    largest: bound of the absolute difference of a sample, if there is one. Where all clusters have the same difference, the
      interval is then widened by what the unseen prompts may do: with confidence ``level``, at most the share
      ``1 - (1 - level)^(1 / clusters)`` of them differ from it, by at most twice the bound.
  """
  difference = _vector(first, "first") - _vector(second, "second", len(first))
  value, variance, groups = _ratio_variance(difference, np.ones(len(difference)), clusters, at_least=2)
  error = math.sqrt(variance)
  quantile = _studentized_quantile(difference, clusters, level, resamples, seed)
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
  """Difference of two shares of hits on the same prompts; its interval is never a single point.

  Estimand: mean over clusters of the difference of the shares of a cluster. Interval: Student's t after two clusters were
  added, one that differs by +w and one by -w. With one sample per prompt w is 1, the interval of Agresti & Min (2005) and
  Bonett & Price (2012). With more, w is the square root of the typical size of a difference (sum of squares over sum), 1
  where nothing differs. ``value`` is the observed difference, the middle of the interval is nearer to 0. It covers more
  often than the level where fewer than about three clusters differ. The p value is that of `paired_difference`.

  Args:
    first: ``[N]`` bool or 0 and 1, hits of one method; ``second`` of the other, of the same prompts, keys and order.
    clusters: ``[N]`` labels, at least 2 different ones.
  """
  first, second = _vector(first, "first"), _vector(second, "second", len(first))
  if not np.isin(np.concatenate([first, second]), (0.0, 1.0)).all():
    raise ValueError("Must have hits and misses, we instead got other numbers")
  index, groups = _checked_index(clusters, len(first), at_least=2)
  differences = np.bincount(index, first - second, groups) / np.bincount(index, minlength=groups)
  size = np.abs(differences).sum()
  added = float(np.sum(differences**2) / size) if size else 1.0  # w squared
  middle = float(differences.sum()) / (groups + 2)
  variance = (float(np.sum(differences**2)) + 2 * added) / (groups + 2) - middle**2
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
  """Median of ``first_s / second_s`` over pairs of times that were taken in turn.

  Estimand: median of the ratio of a pair. Interval: order statistics of the ratios (Thompson 1936), free of any
  distribution; its exact coverage is `TimeRatio.level`. Fewer than 6 pairs have no interval of 95 percent: then it spans
  all ratios and the level says how little that is. The p value flips signs of the logarithms of the ratios.

  Args:
    first_s: ``[N]`` seconds above 0; ``second_s`` ``[N]`` of the same runs.
  """
  first_s, second_s = _vector(first_s, "first_s"), _vector(second_s, "second_s", len(first_s))
  if min(first_s.min(), second_s.min()) <= 0:
    raise ValueError("Must have times above 0, we instead got others")
  logs = np.sort(np.log(first_s) - np.log(second_s))
  count = len(logs)
  # Between the k-th smallest and the k-th largest lies the median unless fewer than k ratios are on one side of it.
  tails = np.cumsum([math.comb(count, k) / 2**count for k in range(count // 2 + 1)])
  outside = 0
  while outside + 1 <= (count - 1) // 2 and 2 * tails[outside + 1] <= 1 - level + 1e-12:
    outside += 1
  low, value, high = np.exp([logs[outside], np.median(logs), logs[count - 1 - outside]])
  p_value = sign_flip_p_value(logs, permutations=permutations, seed=seed)
  return TimeRatio(float(value), float(low), float(high), max(1 - 2 * float(tails[outside]), 0.0), p_value, count)


def sign_flip_p_value(sums: np.ndarray, *, permutations: int = 9999, seed: int = 0) -> float:
  """Two-sided p value of a sum of symmetric terms: the share of sign flips with a sum as far from 0 (Fisher 1935).

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
  reached = abs(sums.sum()) - 1e-9 * np.abs(sums).sum()
  if len(sums) <= _MOST_ENUMERATED:
    signs = np.array(list(itertools.product((-1.0, 1.0), repeat=len(sums))))
    return float(np.mean(np.abs(signs @ sums) >= reached))
  positive = np.random.default_rng(seed).integers(0, 2, size=(permutations, len(sums)), dtype=np.int8)
  flipped = 2 * (positive.astype(np.float64) @ sums) - sums.sum()
  return (1 + int(np.sum(np.abs(flipped) >= reached))) / (1 + permutations)


# A table


def holm(p_values: Sequence[float]) -> np.ndarray:
  """Adjusted p values ``[M]`` (Holm 1979): those below 0.05 hold together with an error of any of them below 0.05.

  Nothing is assumed about how the tests depend on each other. NaN stands for a test that was not made and stays NaN.
  """
  p_values = np.asarray(p_values, np.float64)
  adjusted = np.full(p_values.shape, np.nan)
  order = [i for i in np.argsort(p_values, kind="stable") if not np.isnan(p_values[i])]
  reached = 0.0
  for rank, i in enumerate(order):
    reached = max(reached, min((len(order) - rank) * p_values[i], 1.0))
    adjusted[i] = reached
  return adjusted


def correct_table(
  differences: Mapping[Hashable, Difference], *, level: float = 0.95, power: float = 0.8
) -> dict[Hashable, Corrected]:
  """The comparisons of a table, with what holds after correction for all of them.

  Every comparison that the table invites belongs in it: all methods against the baseline, all columns. Differences of
  several kinds go together; what is detectable is in the unit of each.

  Args:
    differences: of `paired_difference`, `paired_share_difference`, or of `jaxspec.metrics.distances`, by any name.
    level: 1 minus the error of the whole table.
  """
  adjusted = holm([difference.p_value for difference in differences.values()])
  tests = len(differences)
  return {
    name: Corrected(difference, float(p), detectable_difference(difference, tests=tests, level=level, power=power))
    for (name, difference), p in zip(differences.items(), adjusted)
  }


def detectable_difference(difference: Difference, *, tests: int = 1, level: float = 0.95, power: float = 0.8) -> float:
  """Smallest true difference that a two-sided test with this standard error finds with the given power.

  ``(t(1 - (1 - level) / (2 tests)) + t(power)) standard_error`` with Student's t of the clusters (Bloom 1995). The
  correction is that of the first step of Holm, the strictest: the only true difference of a table meets it.

  Args:
    tests: comparisons of the table.
  """
  return _detectable(difference.clusters - 1, tests, level, power) * difference.standard_error


def required_clusters(
  difference: Difference, wanted: float, *, tests: int = 1, level: float = 0.95, power: float = 0.8
) -> int:
  """Clusters that a comparison needs to find a true difference of ``wanted``, given the spread seen in this one.

  The samples of a cluster stay as many. Further samples of the same prompts help less than further prompts.

  Raises:
    ValueError: unless ``wanted`` is above 0.
  """
  if not wanted > 0:
    raise ValueError(f"Must have a difference above 0, we instead got {wanted}")
  deviation = difference.standard_error * math.sqrt(difference.clusters)
  enough = lambda count: _detectable(count - 1, tests, level, power) * deviation / math.sqrt(count) <= wanted
  return _first(enough, start=2)


def detectable_share(base: float, count: float, *, tests: int = 1, level: float = 0.95, power: float = 0.8) -> float:
  """Smallest difference from the share ``base`` that two independent samples of ``count`` trials find with the given power.

  Two-sided test of two shares (Fleiss, Levin & Paik 2003, equation 4.14 without the correction for continuity), with the
  other share on the side of one half, where differences are harder to see. Methods on the same prompts are paired: take
  `detectable_difference` of their `paired_share_difference`.

  Args:
    count: trials of each sample, or `Share.effective`.
  Returns:
    Infinity if no share is far enough.
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
  """Independent trials that each of two samples needs to find a difference of ``wanted``; see `detectable_share`.

  Raises:
    ValueError: if no share is so far from ``base``.
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


def equivalence(difference: Difference, margin: float, *, level: float = 0.95) -> Equivalence:
  """Whether two methods differ by less than a margin: two one-sided tests (TOST; Schuirmann 1987).

  A large p value of a difference shows nothing; this does. Choose the margin before the figures are seen. The tests are
  Student's t about the middle of the difference's interval, so for shares of hits they are those of
  `paired_share_difference`. They are significant exactly if the interval of twice the error (90 percent for a ``level`` of
  95) lies within the margin.

  Args:
    difference: of `paired_difference`, `paired_share_difference` or `jaxspec.metrics.distances`.
    margin: largest difference that does not matter, above 0.
    level: 1 minus the chance to call methods equivalent whose true difference is the margin.
  """
  if not margin > 0:
    raise ValueError(f"Must have a margin above 0, we instead got {margin}")
  middle, error = (difference.low + difference.high) / 2, difference.standard_error
  degrees = difference.clusters - 1
  half = t_quantile(2 * level - 1, degrees) * error
  room = margin - abs(middle)
  p_value = 1 - t_cdf(room / error, degrees) if error > 0 else float(room <= 0)
  return Equivalence(p_value, middle - half, middle + half, margin, p_value <= 1 - level)


# Clusters


def cluster_index(clusters: np.ndarray | None, count: int) -> tuple[np.ndarray, int]:
  """Number ``[N]`` of the cluster of each sample, from 0 in the order of the labels, and how many clusters there are."""
  if clusters is None:
    return np.arange(count), count
  labels, index = np.unique(np.asarray(clusters), return_inverse=True)
  if index.shape != (count,):
    raise ValueError(f"Must have one cluster for each of {count} samples, we instead got shape {np.shape(clusters)}")
  return index, len(labels)


def _checked_index(clusters: np.ndarray | None, count: int, *, at_least: int) -> tuple[np.ndarray, int]:
  index, groups = cluster_index(clusters, count)
  if groups < at_least:
    raise ValueError(f"Must have at least {at_least} clusters, we instead got {groups}")
  return index, groups


def _ratio_variance(
  above: np.ndarray, below: np.ndarray, clusters: np.ndarray | None, *, at_least: int = 1
) -> tuple[float, float, int]:
  """``sum(above) / sum(below)``, its cluster-robust (linearized) variance, and the number of clusters."""
  index, groups = _checked_index(clusters, len(above), at_least=at_least)
  value = float(above.sum() / below.sum())
  residuals = np.bincount(index, above - value * below, groups)
  variance = groups / max(groups - 1, 1) * float(residuals @ residuals) / float(below.sum()) ** 2
  return value, variance, groups


def _studentized_quantile(values: np.ndarray, clusters: np.ndarray | None, level: float, resamples: int, seed: int) -> float:
  """Quantile of ``|mean* - mean| / error*`` over resamples of whole clusters, at least Student's."""
  index, groups = cluster_index(clusters, len(values))
  least = t_quantile(level, groups - 1)
  centred = np.bincount(index, values - values.mean(), groups)
  if resamples == 0 or not np.abs(centred).max() > 1e-12 * max(np.abs(values).max(), 1e-300):
    return least
  sizes = np.bincount(index, minlength=groups).astype(np.float64)
  generator = np.random.default_rng(seed)
  times = generator.multinomial(groups, np.full(groups, 1 / groups), size=resamples).astype(np.float64)
  total = times @ sizes
  shift = (times @ centred) / total
  squares = times @ centred**2 - 2 * shift * (times @ (centred * sizes)) + shift**2 * (times @ sizes**2)
  errors = np.sqrt(np.maximum(squares, 0.0) * groups / (groups - 1)) / total
  usable = errors > 1e-9 * np.abs(centred).max() / sizes.sum()
  if not usable.any():
    return least
  return max(float(np.quantile(np.abs(shift[usable]) / errors[usable], level)), least)


def _vector(values: np.ndarray, name: str, length: int | None = None) -> np.ndarray:
  values = np.asarray(values, np.float64)
  if values.ndim != 1 or not len(values) or not np.isfinite(values).all():
    raise ValueError(f"Must have a vector of finite numbers for {name}, we instead got shape {values.shape} or others")
  if length is not None and len(values) != length:
    raise ValueError(f"Must have pairs of numbers, we instead got {length} and {len(values)}")
  return values


def _first(enough, *, start: int) -> int:
  """Smallest integer from ``start`` that is enough; beyond it all are."""
  high = start
  while not enough(high):
    high *= 2
  low = max(high // 2, start - 1)
  while high - low > 1:
    middle = (low + high) // 2
    low, high = (low, middle) if enough(middle) else (middle, high)
  return high


# Quantiles


def _normal_quantile(level: float) -> float:
  _check_level(level)
  return NormalDist().inv_cdf((1 + level) / 2)


def _detectable(degrees: int, tests: int, level: float, power: float) -> float:
  """Standard errors between no difference and the smallest detectable one."""
  if tests < 1:
    raise ValueError(f"Must have at least one test, we instead got {tests}")
  _check_level(power)
  strict = t_quantile(1 - (1 - level) / tests, degrees)
  return strict + math.copysign(t_quantile(abs(2 * power - 1), degrees), power - 0.5)


@functools.lru_cache(maxsize=4096)
def t_quantile(level: float, degrees: int) -> float:
  """The t with probability ``level`` between -t and t, for Student's t with ``degrees`` degrees of freedom."""
  if level == 0:
    return 0.0
  _check_level(level)
  if degrees < 1:
    raise ValueError(f"Must have at least one degree of freedom, we instead got {degrees}")
  # degrees / (degrees + t^2) has the beta distribution.
  x = beta_quantile(1 - level, degrees / 2, 0.5)
  return math.sqrt(degrees * (1 - x) / x)


def t_cdf(t: float, degrees: int) -> float:
  """Probability that Student's t with ``degrees`` degrees of freedom is at most ``t``."""
  tail = 0.5 * beta_cdf(degrees / (degrees + t * t), degrees / 2, 0.5)
  return tail if t <= 0 else 1 - tail


def beta_quantile(probability: float, a: float, b: float) -> float:
  """The x with `beta_cdf` of ``probability``, by bisection to the last digit."""
  low, high = 0.0, 1.0
  while low < (middle := (low + high) / 2) < high:
    low, high = (middle, high) if beta_cdf(middle, a, b) < probability else (low, middle)
  return high


def beta_cdf(x: float, a: float, b: float) -> float:
  """Regularized incomplete beta function by its continued fraction (Abramowitz & Stegun 26.5.8; Lentz 1976)."""
  if x <= 0 or x >= 1:
    return float(x >= 1)
  if x > (a + 1) / (a + b + 2):
    return 1 - beta_cdf(1 - x, b, a)
  log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
  tiny, result, c, d = 1e-300, 1.0, 1.0, 0.0
  for i in range(10_000):
    m = i // 2
    if i == 0:
      step = 1.0
    elif i % 2:
      step = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
    else:
      step = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
    d = 1 / (1 + step * d or tiny)
    c = 1 + step / c or tiny
    result *= c * d
    if i and abs(c * d - 1) < 1e-15:
      break
  return math.exp(log_front) * (result - 1) / a


def _check_level(level: float) -> None:
  if not 0 < level < 1:
    raise ValueError(f"Must have a level in (0, 1), we instead got {level}")
