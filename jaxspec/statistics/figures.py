"""One figure and its interval: a share, a mean, a ratio of two sums."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from jaxspec.statistics.clusters import cluster_index, left_out_variance, ratio_variance, vector
from jaxspec.statistics.quantiles import normal_quantile, t_quantile

# Clusters below which `ratio` and `bounded_ratio` have no interval: the error of fewer is hardly known (with 2, the quantile
# of Student's t is 12.7 errors), and no test of 5 pairs can reach 95 percent either (`time_ratio`).
FEWEST_CLUSTERS = 6


class Interval(NamedTuple):
  """A figure and its interval; low and high are nan where there are too few samples."""

  value: float
  low: float
  high: float


class Share(NamedTuple):
  """A share in [0, 1], its interval, and its counts."""

  value: float
  low: float
  high: float
  successes: float
  count: float  # trials
  effective: float  # effective number of independent trials


def share(
  successes: np.ndarray,
  trials: np.ndarray | None = None,
  *,
  clusters: np.ndarray | None = None,
  level: float = 0.95,
  method: str = "wilson",
) -> Share:
  """A share with the interval of Wilson (1927) or Clopper and Pearson (1934); neither is ever a single point.

  Estimand: ``E[successes] / E[trials]`` over clusters. Independent single trials that succeed or fail have the textbook
  interval. Anything else (several samples of a prompt, several trials of a sample, scores between 0 and 1) has the same
  interval for the effective number of trials ``p (1 - p) / v``, where v is the cluster-robust variance of the ratio, and
  Student's t with one degree of freedom less than clusters (Korn & Graubard 1998; Dean & Pagano 2015). Where all clusters
  agree, v is 0 and the effective number is the number of clusters. A cluster bootstrap is no alternative: without a success
  its interval is [0, 0].

  The coverage of Clopper and Pearson's interval is at least the level for every share. That of Wilson's is the level in the
  mean over shares, and less for some shares near 0 and 1.

  Args:
    successes: ``[N]`` numbers from 0 to ``trials``, such as bool hits, scores in [0, 1], or counts.
    trials: ``[N]`` numbers with a sum above 0; 1 by default.
    clusters: ``[N]`` labels.
    method: ``wilson`` or ``exact`` (Clopper and Pearson).
  Raises:
    ValueError: for numbers out of range, no trials, or an unknown method.
  """
  successes = vector(successes, "successes")
  ones = np.ones(len(successes))
  trials = ones if trials is None else vector(trials, "trials")
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
    effective, quantile = count, normal_quantile(level)
  else:
    _, variance, groups = ratio_variance(successes, trials, clusters)
    spread = value * (1 - value)
    effective = max(spread / variance, 1.0) if groups > 1 and variance > 1e-12 * spread > 0 else float(groups)
    quantile = t_quantile(level, groups - 1) if groups > 1 else normal_quantile(level)
  if method == "exact":
    fewer = effective * (normal_quantile(level) / quantile) ** 2
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
  from scipy import special

  tail, failures = (1 - level) / 2, count - successes
  low = float(special.betaincinv(successes, failures + 1, tail)) if successes > 0 else 0.0
  high = float(special.betaincinv(successes + 1, failures, 1 - tail)) if failures > 1e-9 * count else 1.0
  return low, high


def mean(
  values: np.ndarray, *, clusters: np.ndarray | None = None, level: float = 0.95, resamples: int = 999, seed: int = 0
) -> Interval:
  """Mean over samples with an interval over clusters; for shares and scores in [0, 1], take `share`.

  Estimand: ``E[sum of a cluster] / E[size of a cluster]``, the mean over the population of prompts if all clusters are of
  one size. Interval: value ± q s with the cluster-robust standard error s (Liang & Zeger 1986). The quantile q is that of
  the absolute studentized mean over a cluster bootstrap (Hall 1988), and at least that of Student's t with one degree of
  freedom less than clusters. The coverage of plain percentiles and BCa is too low for few clusters (88 to 92 % for 16
  clusters, nominally 95 %).

  Args:
    values: ``[N]`` finite numbers.
    clusters: ``[N]`` labels, at least 2 different ones.
    resamples: of the bootstrap; 0 uses the quantile of Student's t alone.
  """
  values = vector(values, "values")
  value, variance, _ = ratio_variance(values, np.ones(len(values)), clusters, at_least=2)
  half = math.sqrt(variance) * studentized_quantile(values, clusters, level, resamples, seed)
  return Interval(value, value - half, value + half)


def ratio(above: np.ndarray, below: np.ndarray, *, clusters: np.ndarray | None = None, level: float = 0.95) -> Interval:
  """``sum(above) / sum(below)`` with an interval over clusters, such as tokens per pass; for shares, take `share`.

  Estimand: ``E[above] / E[below]`` over clusters, not the mean of ratios. Interval: Student's t on the logarithm with the
  linearized (delta method) variance, so that it stays above 0 and the inverse ratio has the inverse interval. If the sum
  above is 0, figure and interval are 0; if it is infinite, they are infinite. Fewer than `FEWEST_CLUSTERS` have no interval.

  Args:
    above: ``[N]`` numbers from 0; ``below`` ``[N]`` numbers from 0, not all 0.
    clusters: ``[N]`` labels.
  """
  above, below = np.asarray(above, np.float64), vector(below, "numbers below")
  if above.shape != below.shape or np.any(above < 0) or np.any(below < 0) or not below.sum() > 0:
    raise ValueError("Must have numbers from 0, not all below 0, we instead got others")
  if not np.isfinite(above).all() or not above.any():
    value = float(above.sum() / below.sum())
    return Interval(value, value, value)
  value, variance, groups = ratio_variance(above, below, clusters)
  if groups < FEWEST_CLUSTERS:
    return Interval(value, math.nan, math.nan)
  factor = math.exp(t_quantile(level, groups - 1) * math.sqrt(variance) / value)
  return Interval(value, value / factor, value * factor)


def bounded_ratio(
  above: np.ndarray, below: np.ndarray, *, clusters: np.ndarray | None = None, level: float = 0.95
) -> Interval:
  """`ratio` that is between 0 and 1 in every sample, such as a mean of total variations; its interval stays in [0, 1].

  Interval: Student's t on the log-odds, with the jackknife variance over clusters, because the distribution of a mean near 0
  is skewed and cluster sizes differ. Where all clusters agree it is a single point, unlike that of a share: these figures
  have no sampling error within a cluster, and are 0 for an exact method.

  Args:
    above: ``[N]`` numbers from 0 to ``below``; ``below`` ``[N]`` numbers from 0, not all 0.
    clusters: ``[N]`` labels; fewer than `FEWEST_CLUSTERS` have no interval.
  """
  above, below = vector(above, "numbers above"), vector(below, "numbers below")
  if above.shape != below.shape or np.any(above < 0) or np.any(above > below * (1 + 1e-9)) or not below.sum() > 0:
    raise ValueError("Must have numbers from 0 to those below, not all below 0, we instead got others")
  value, variance, groups = left_out_variance(above, below, clusters)
  value = min(value, 1.0)
  spread = value * (1 - value)
  if groups < FEWEST_CLUSTERS:
    return Interval(value, math.nan, math.nan)
  if not variance > 1e-12 * spread > 0:
    return Interval(value, value, value)
  centre, half = math.log(value / (1 - value)), t_quantile(level, groups - 1) * math.sqrt(variance) / spread
  return Interval(value, *(1 / (1 + math.exp(-np.clip(end, -700, 700))) for end in (centre - half, centre + half)))


def studentized_quantile(values: np.ndarray, clusters: np.ndarray | None, level: float, resamples: int, seed: int) -> float:
  """Quantile of ``|mean* - mean| / error*`` over resamples of whole clusters, at least that of Student's t."""
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
