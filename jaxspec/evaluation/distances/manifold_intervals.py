"""Manifold precision and recall of sets of a fixed size, with intervals that include the randomness of the manifolds.

A figure of whole sets has no interval: its manifolds are drawn once, and their effect depends on the sizes of the sets. Here
both sets are repeatedly split into parts of a fixed size. The estimand does not depend on the number of parts, and the
influence of every vector on the mean over parts is known.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy import special

from jaxspec.core.types import Array
from jaxspec.evaluation.distances.features import check_pairs, check_widths, mixing_of, squared_distances
from jaxspec.evaluation.distances.manifolds import PrecisionRecall, harmonic_mean, radii
from jaxspec.statistics import Difference, Interval, cluster_index, t_quantile, wilson

SET_SIZE = 16
_BLOCK = 2_000_000  # distances at a time


class PrecisionRecallIntervals(NamedTuple):
  """Figures of sets of ``set_size`` vectors."""

  precision: Interval
  recall: Interval
  f1: Interval
  set_size: int


def precision_recall_interval(
  generated: Array,
  real: Array,
  *,
  clusters: np.ndarray | None = None,
  neighbours: int = 3,
  set_size: int = SET_SIZE,
  level: float = 0.95,
  splits: int = 100,
  seed: int = 0,
) -> PrecisionRecallIntervals:
  """Manifold precision, recall and F1 of sets of a fixed size, with intervals that include the randomness of the manifolds.

  Estimand: precision is the probability that a generated vector lies in the manifold (`precision_recall`) of ``set_size``
  real ones; recall is the probability that a real vector lies in the manifold of ``set_size`` generated ones of different
  prompts; F1 is their harmonic mean. These are expectations at the size ``set_size``, so that sets of any size are
  comparable and the interval has a fixed target. Precision and recall of whole sets depend on their sizes: with growing sets
  both go to 1 wherever the distributions overlap. For equal distributions the figures are below 1.

  Estimate: the mean over random splits of each set into parts of that size (an incomplete U-statistic). Variance: every
  cluster influences the figure as a point, by its own share of hits, and as a part of manifolds, by the mean of these
  manifolds. The variance of this sum over clusters (Hoeffding's projections, with the infinitesimal jackknife's correction
  for subsets: Wager, Hastie & Efron 2014; Wager & Athey 2018) is corrected for the finite number of splits. Interactions
  between a cluster in a manifold and a point of the other set are counted twice, so they are subtracted once. The variance
  of the mean over splits is added. Interval: Student's t on the log odds. At exactly 0 or 1 it is that of a share, with the
  number of clusters of the smaller set as trials.

  In simulations of 95 % intervals the coverage is 93 to 97 %, also for parts of half of the vectors and for equal
  distributions (95 % for precision and recall, 97 % for F1 with 64 vectors and parts of 16).

  Args:
    generated: ``[n, D]``; ``real`` is ``[m, D]``.
    clusters: ``[n]`` prompts of the generated vectors.
    set_size: above ``neighbours``; at most half of the clusters of either set.
    splits: number of splits of each set; more is slower and less noisy.
  Raises:
    ValueError: for sets that are too small.
  """
  check_widths(generated, real, at_least=2 * (neighbours + 1))
  draws = _ManifoldDraws([generated], real, clusters, neighbours, set_size, splits, seed)
  found = draws.figures[0]
  intervals = {}
  for name, gradient in zip(PrecisionRecall._fields, _gradients(found)):
    intervals[name] = _log_odds_interval(getattr(found, name), draws.variance([gradient]), draws.fewest, level)
  return PrecisionRecallIntervals(**intervals, set_size=set_size)


class PrecisionRecallDifferences(NamedTuple):
  """Differences of the figures of sets of ``set_size`` vectors."""

  precision: Difference
  recall: Difference
  f1: Difference
  set_size: int


def precision_recall_difference(
  first: Array,
  second: Array,
  real: Array,
  *,
  clusters: np.ndarray | None = None,
  neighbours: int = 3,
  set_size: int = SET_SIZE,
  level: float = 0.95,
  splits: int = 100,
  seed: int = 0,
) -> PrecisionRecallDifferences:
  """Figures of `precision_recall_interval` of ``first`` minus those of ``second``, two methods with the same prompts.

  Both methods use the same draws of prompts and real vectors, so that common variance cancels. Interval and p value are
  those of Student's t.

  Args:
    first: ``[n, D]``; ``second`` ``[n, D]`` of the same prompts in the same order; ``real`` is ``[m, D]``.
    clusters: ``[n]`` labels of the prompts. The others as in `precision_recall_interval`.
  """
  check_pairs(first, second, real)
  check_widths(first, real, at_least=2 * (neighbours + 1))
  draws = _ManifoldDraws([first, second], real, clusters, neighbours, set_size, splits, seed)
  one, two = draws.figures
  degrees, differences = draws.fewest - 1, {}
  for name, plus, minus in zip(PrecisionRecall._fields, _gradients(one), _gradients(two)):
    value = getattr(one, name) - getattr(two, name)
    error = math.sqrt(draws.variance([plus, -minus]))
    half = t_quantile(level, degrees) * error
    p_value = 2 * float(special.stdtr(degrees, -abs(value) / error)) if error > 0 else float(value == 0)
    differences[name] = Difference(value, value - half, value + half, p_value, error, draws.fewest)
  return PrecisionRecallDifferences(**differences, set_size=set_size)


def _gradients(found: PrecisionRecall) -> list[np.ndarray]:
  """Derivatives ``[2]`` of precision, recall and F1 by precision and recall."""
  total = found.precision + found.recall
  of_f1 = 2 * np.array([found.recall, found.precision]) ** 2 / total**2 if total else np.full(2, 0.5)
  return [np.array([1.0, 0.0]), np.array([0.0, 1.0]), of_f1]


def _log_odds_interval(value: float, variance: float, groups: int, level: float) -> Interval:
  quantile, spread = t_quantile(level, groups - 1), value * (1 - value)
  if not variance > 1e-12 * spread > 0:
    return Interval(value, *wilson(value, groups, quantile))
  shift, odds = quantile * math.sqrt(variance) / spread, math.log(value / (1 - value))
  expit = lambda x: 1 / (1 + math.exp(-x)) if x > -700 else 0.0
  return Interval(value, expit(odds - shift), expit(odds + shift))


class _Side(NamedTuple):
  """Statistics with one set as manifolds and the other as points, for each of M methods.

  G clusters of the first set, H of the other, T drawn parts.
  """

  member: np.ndarray  # [T, s] clusters of each drawn part
  inside: np.ndarray  # [T, M] share of the other set's points in the part's manifold
  point: np.ndarray  # [M, H] share of the parts whose manifold holds the point, mean over each cluster
  pair: np.ndarray  # [M, G, H] the same over the parts with a cluster of the first set
  pair_noise: np.ndarray  # [M, M] covariance of an entry of ``pair`` from the finite number of parts, mean over entries
  noise: np.ndarray  # [M, M] covariance of the mean of ``inside`` from the finite number of splits


class _ManifoldDraws:
  """Random parts of the generated sets and of the real one, and the influence of each cluster on the figures."""

  def __init__(self, generated, real, clusters, neighbours: int, set_size: int, splits: int, seed: int):
    generated = [np.asarray(x, np.float64) for x in generated]
    real = np.asarray(real, np.float64)
    mixing = mixing_of(clusters, len(generated[0]))
    index = cluster_index(clusters, len(generated[0]))[0]
    self.fewest = min(len(mixing), len(real))
    if not neighbours < set_size <= self.fewest // 2 or splits < 2:
      raise ValueError(
        f"Must have a set size from {neighbours + 1} to {self.fewest // 2}, half of the clusters, and splits >= 2, "
        f"we instead got {set_size} and {splits}"
      )
    options = (set_size, neighbours, splits)
    self._set_size = set_size
    # Recall: manifolds of generated vectors, points are real. Precision: the reverse.
    generator = np.random.default_rng(seed)
    self._generated = _draw_side(generated, [real], index, np.eye(len(real)), *options, generator)
    self._real = _draw_side([real], generated, np.arange(len(real)), mixing, *options, generator)
    self.figures = []
    for precision, recall in zip(self._real.inside.mean(0), self._generated.inside.mean(0)):
      f1 = harmonic_mean(float(precision), float(recall))
      self.figures.append(PrecisionRecall(float(precision), float(recall), f1))

  def variance(self, gradients: list[np.ndarray]) -> float:
    """Variance of ``sum_M gradient_M (precision_M, recall_M)``."""
    precision, recall = np.array(gradients).T  # [M] each
    single = self._of_set(self._generated, recall, self._real, precision)
    single += self._of_set(self._real, precision, self._generated, recall)
    # The interaction of a cluster of one set with points of the other was counted twice: subtract it once.
    pairs = self._of_pairs(self._generated, recall) + self._of_pairs(self._real, precision)
    chance = recall @ self._generated.noise @ recall + precision @ self._real.noise @ precision
    return max(single - pairs, single / 2) + float(chance)

  def _scale(self, side: _Side) -> float:
    """Ratio of a cluster's influence on the mean over parts to its influence on its own parts."""
    count = side.pair.shape[1]
    return self._set_size * (count - 1) / (count - self._set_size)

  def _of_set(self, side: _Side, as_manifold: np.ndarray, other: _Side, as_points: np.ndarray) -> float:
    """Influence of the clusters of one set, as parts of manifolds in ``side`` and as points in ``other``."""
    count, scale = side.pair.shape[1], self._scale(side)
    values = side.inside @ as_manifold  # [T]
    times = np.bincount(side.member.ravel(), minlength=count)
    total = np.bincount(side.member.ravel(), np.repeat(values, side.member.shape[1]), count)
    moved = scale * (total / np.maximum(times, 1) - values.mean()) + as_points @ other.point
    noise = scale**2 * float(np.var(values, ddof=1) * np.mean(1 / np.maximum(times, 1)))
    return max(float(np.var(moved, ddof=1)) - noise, 0.0) / count

  def _of_pairs(self, side: _Side, as_manifold: np.ndarray) -> float:
    """Interactions of a cluster in the manifolds with a cluster of points."""
    pair = np.tensordot(as_manifold, side.pair, 1)  # [G, H]
    beyond = pair - pair.mean(0) - pair.mean(1)[:, None] + pair.mean()
    square = float(np.sum(beyond**2)) / ((pair.shape[0] - 1) * (pair.shape[1] - 1))
    noise = float(as_manifold @ side.pair_noise @ as_manifold)
    return self._scale(side) ** 2 * max(square - noise, 0.0) / pair.size


def _draw_side(
  sets: list[np.ndarray], others: list[np.ndarray], index: np.ndarray, mixing: np.ndarray, set_size: int, neighbours: int,
  splits: int, generator: np.random.Generator,
) -> _Side:  # fmt: skip
  """Repeatedly splits the clusters of a set into parts; a random vector represents each cluster.

  Args:
    sets: ``[n, D]`` of one or more methods with the same rows; or one set for all methods.
    others: ``[m, D]`` points of one or more methods; or one for all.
    index: ``[n]`` cluster of each row of ``sets``; ``mixing`` ``[H, m]`` means of the clusters of ``others``.
  """
  groups, rows = int(index.max()) + 1, np.argsort(index, kind="stable")
  sizes = np.bincount(index)
  starts = np.cumsum(sizes) - sizes
  parts = groups // set_size
  methods = max(len(sets), len(others))
  across = [squared_distances(sets[i % len(sets)], others[i % len(others)]) for i in range(methods)]
  member, inside = [], []
  pair, squares = np.zeros((methods, groups, len(mixing))), np.zeros((methods, methods, groups))
  # If the size does not divide the number of clusters, every split leaves out different ones.
  for block in _blocks(splits, across[0].size):
    order = np.argsort(generator.random((block, groups)), axis=1)[:, : parts * set_size].reshape(block * parts, set_size)
    chosen = rows[starts[order] + (generator.random(order.shape) * sizes[order]).astype(int)]  # [T, s]
    reach = [radii(x[chosen], neighbours) for x in sets]
    held = [np.any(d[chosen] <= reach[i % len(sets)][..., None], axis=1) @ mixing.T for i, d in enumerate(across)]
    drawn = np.zeros((len(order), groups))
    np.put_along_axis(drawn, order, 1.0, axis=1)
    for i in range(methods):
      pair[i] += drawn.T @ held[i]  # [G, H]
      for j in range(methods):
        squares[i, j] += drawn.T @ np.sum(held[i] * held[j], axis=1)
    member.append(order)
    inside.append(np.stack([h.mean(1) for h in held], axis=1))
  member, inside = np.concatenate(member), np.concatenate(inside)
  times = np.bincount(member.ravel(), minlength=groups)[:, None]
  point = pair.sum(1) / member.size
  pair /= np.maximum(times, 1)
  within = squares / np.maximum(times[:, 0], 1) - np.einsum("igh,jgh->ijg", pair, pair)
  pair_noise = np.mean(within / np.maximum(times[:, 0] - 1, 1), axis=2) / len(mixing)
  by_split = inside.reshape(splits, parts, methods).mean(1)
  noise = np.atleast_2d(np.cov(by_split, rowvar=False)) / splits
  return _Side(member, inside, point, pair, pair_noise, noise)


def _blocks(total: int, size: int) -> Iterator[int]:
  """Sizes of blocks that sum to ``total``; a block with ``size`` entries per item has at most ``_BLOCK`` entries."""
  block = max(_BLOCK // size, 1)
  for start in range(0, total, block):
    yield min(block, total - start)
