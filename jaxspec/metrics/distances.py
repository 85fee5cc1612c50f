"""Distances between two sets of feature vectors, with intervals: kernel, Frechet, precision and recall.

None of them is FID: that name belongs to one feature network. Call a figure by its distance and its encoder.

Every interval is for a stated estimand, and counts prompts (`jaxspec.metrics.statistics`): several images of one prompt are
a cluster, and pairs within a cluster are no independent draws.

| figure | estimand | interval |
|---|---|---|
| `kernel_distance_interval` | squared maximum mean discrepancy of the two distributions | inverted score test |
| `frechet_interval` | expected distance of sets of these sizes | jackknife over groups, of the root |
| `precision_recall_interval` | precision and recall of sets of ``set_size`` vectors | projections of a U-statistic |

Two methods with the same prompts are compared by `kernel_distance_difference` and `precision_recall_difference`; their
intervals are narrower than those of the two figures, which share the real images and the prompts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxspec.metrics.statistics import (
  Difference,
  Interval,
  cluster_index,
  sign_flip_p_value,
  t_cdf,
  t_quantile,
  wilson,
)
from jaxspec.types import Array

SET_SIZE = 16
_FEWEST = 4  # clusters of a kernel distance
_GROUPS = 16  # of the jackknife
_BLOCK = 2_000_000  # distances at a time


# Kernel distance


def kernel_distance(a: Array, b: Array) -> Array:
  """Unbiased squared maximum mean discrepancy with the kernel ``(x y / D + 1)^3`` (KID; Binkowski et al. 2018).

  Args:
    a: ``[n, D]`` features, n >= 2.
    b: ``[m, D]`` features, m >= 2.
  Returns:
    Scalar float32; 0 in the mean for equal distributions, and slightly negative at times.
  Raises:
    ValueError: for fewer than two vectors or different widths.
  """
  _check(a, b, at_least=2)
  aa, bb, ab = _kernel(a, a), _kernel(b, b), _kernel(a, b)
  inside = lambda k: (jnp.sum(k) - jnp.trace(k)) / (k.shape[0] * (k.shape[0] - 1))
  return inside(aa) + inside(bb) - 2 * jnp.mean(ab)


class KernelDistance(NamedTuple):
  """A kernel distance and its interval.

  The variance of the estimate at a true distance d is modelled as ``null_variance + slope d``.
  """

  value: float
  low: float
  high: float
  null_variance: float  # where the two distributions are equal
  slope: float
  clusters: int  # the fewer of both sets

  @property
  def standard_error(self) -> float:
    return math.sqrt(self.null_variance + self.slope * max(self.value, 0.0))


def kernel_distance_interval(
  a: Array, b: Array, *, clusters: np.ndarray | None = None, other_clusters: np.ndarray | None = None, level: float = 0.95
) -> KernelDistance:
  """`kernel_distance` with an interval that covers from equal distributions to distant ones.

  Estimand: squared maximum mean discrepancy d between the distribution of ``a`` and that of ``b``, over prompts and
  samples, each cluster with the same weight. Pairs of vectors of one cluster are left out, so the estimate is unbiased.
  Clusters that both sets share are prompts that both drew: their cross pairs are left out too, and the prompts are the only
  units (Gretton et al. 2012, Lemma 7).

  Interval: all d with ``|estimate - d| <= t sqrt(v0 + c d)``. For equal distributions the estimate is a degenerate
  U-statistic with the variance v0 (Hoeffding's second-order terms, unbiased by U-centring, Szekely & Rizzo 2014); the
  first-order terms grow with the distance, ``c d``. The slope c is the mean of its plug-in and its bias-corrected estimate.
  A bootstrap would take the first-order terms of equal distributions for real, and Student's t with the estimated variance
  is too short below the value.

  Args:
    a: ``[n, D]``; ``b`` is ``[m, D]``.
    clusters: ``[n]`` labels; ``other_clusters`` ``[m]``. Both sets of labels must be equal or have none in common.
  Raises:
    ValueError: for fewer than 4 clusters, or labels of which only some are shared.
  """
  null_variance, slope, value, groups = _kernel_model(*_cluster_kernels(a, b, clusters, other_clusters))
  quantile = t_quantile(level, groups - 1)
  null_half = quantile * math.sqrt(null_variance)
  # Roots of (value - d)^2 = quantile^2 (null_variance + slope d); below 0 the variance stays null_variance.
  middle = value + quantile**2 * slope / 2
  half = math.sqrt(max(middle**2 - value**2 + null_half**2, 0.0))
  low = value - null_half if value <= null_half else middle - half
  high = value + null_half if value + null_half <= 0 else middle + half
  return KernelDistance(value, low, high, null_variance, slope, groups)


def kernel_distance_p_value(
  a: Array,
  b: Array,
  *,
  clusters: np.ndarray | None = None,
  other_clusters: np.ndarray | None = None,
  permutations: int = 999,
  seed: int = 0,
) -> float:
  """P value of equal distributions: the share of relabellings with a `kernel_distance` as large (Gretton et al. 2012).

  Clusters that both sets share swap their two sides; clusters of one set only are dealt out to the two sets anew. Exact
  where the relabellings are equally likely, as they are if the two distributions are equal; never 0. Arguments as in
  `kernel_distance_interval`.
  """
  aa, bb, ab = _cluster_kernels(a, b, clusters, other_clusters)
  generator = np.random.default_rng(seed)
  if ab is None:
    np.fill_diagonal(aa, 0.0)
    signs = 2.0 * generator.integers(0, 2, size=(permutations, len(aa))) - 1
    value, draws = float(aa.sum()), np.sum((signs @ aa) * signs, axis=1)
  else:
    n, m = ab.shape
    whole = np.block([[aa, ab], [ab.T, bb]])
    np.fill_diagonal(whole, 0.0)
    first = np.argsort(generator.random((permutations, n + m)), axis=1) < n
    first = np.concatenate([np.arange(n + m)[None] < n, first]).astype(np.float64)
    rest = 1 - first
    inside, outside = first @ whole, rest @ whole
    value, *draws = (
      np.sum(inside * first, 1) / (n * (n - 1))
      + np.sum(outside * rest, 1) / (m * (m - 1))
      - 2 * np.sum(inside * rest, 1) / (n * m)
    )
  reached = value - 1e-9 * abs(value)
  return (1 + int(np.sum(np.asarray(draws) >= reached))) / (1 + permutations)


def kernel_distance_difference(
  first: Array,
  second: Array,
  reference: Array,
  *,
  clusters: np.ndarray | None = None,
  level: float = 0.95,
  permutations: int = 9999,
  seed: int = 0,
) -> Difference:
  """Kernel distance of ``first`` to the reference minus that of ``second``, two methods with the same prompts.

  Estimand: the difference of the two squared discrepancies. Interval: Student's t with both orders of the U-statistic's
  variance over prompts and reference vectors; the reference's distance to itself cancels. P value: swaps of whole prompts
  between the methods, under which the difference is a sum with signs, so that it is exact where the swap changes no
  probability.

  Args:
    first: ``[n, D]``; ``second`` ``[n, D]`` of the same prompts in the same order; ``reference`` ``[m, D]``.
    clusters: ``[n]`` labels of the prompts.
  """
  _check_pairs(first, second, reference)
  one, two, real = (np.asarray(x, np.float64) for x in (first, second, reference))
  mixing = _mixing(clusters, len(one))
  kernel = lambda x, y: mixing @ _kernel(x, y) @ mixing.T
  across = mixing @ (_kernel(one, real) - _kernel(two, real))
  own, swapped = kernel(one, one) - kernel(two, two), kernel(one, two)
  groups = _enough(min(own.shape[0], len(real)))
  value, null_variance, first_order, _ = _moments(own, None, across)
  error = math.sqrt(null_variance + first_order)
  half = t_quantile(level, groups - 1) * error
  terms = own + swapped - swapped.T
  np.fill_diagonal(terms, 0.0)
  count = len(terms)
  sums = terms.sum(1) / (count * (count - 1)) - 2 * across.mean(1) / count
  p_value = sign_flip_p_value(sums, permutations=permutations, seed=seed)
  return Difference(value, value - half, value + half, p_value, error, groups)


def detectable_kernel_distance(
  distance: KernelDistance, *, tests: int = 1, level: float = 0.95, power: float = 0.8
) -> float:
  """Smallest true distance that a test of equal distributions finds with the given power, with sets of these sizes.

  The estimate has to pass ``z sqrt(v0)``, z of the level after correction for ``tests``, with the probability ``power`` at
  the variance ``v0 + c d`` (`KernelDistance`). For differences of two methods, take `statistics.detectable_difference`.
  """
  pass_at, above = _kernel_quantiles(distance, tests, level, power)
  # Root of d = pass_at sqrt(v0) + above sqrt(v0 + c d).
  threshold = pass_at * math.sqrt(distance.null_variance)
  middle = threshold + above**2 * distance.slope / 2
  return middle + math.sqrt(max(middle**2 - threshold**2 + above**2 * distance.null_variance, 0.0))


def required_kernel_count(
  distance: KernelDistance, wanted: float, *, tests: int = 1, level: float = 0.95, power: float = 0.8
) -> int:
  """Clusters of the smaller set with which a true distance of ``wanted`` is found; both sets grow alike.

  Raises:
    ValueError: unless ``wanted`` is above 0.
  """
  if not wanted > 0:
    raise ValueError(f"Must have a distance above 0, we instead got {wanted}")
  pass_at, above = _kernel_quantiles(distance, tests, level, power)
  # With r times as many clusters: wanted = pass_at sqrt(v0) / r + above sqrt(v0 / r^2 + c wanted / r).
  root = lambda r: (
    pass_at * math.sqrt(distance.null_variance) / r
    + above * math.sqrt(distance.null_variance / r**2 + distance.slope * wanted / r)
  )
  low, high = 1e-6, 1.0
  while root(high) > wanted:
    high *= 2
  for _ in range(80):
    middle = (low + high) / 2
    low, high = (low, middle) if root(middle) <= wanted else (middle, high)
  return max(math.ceil(high * distance.clusters - 1e-9), _FEWEST)


def _kernel_quantiles(distance: KernelDistance, tests: int, level: float, power: float) -> tuple[float, float]:
  if tests < 1 or not 0.5 <= power < 1:
    raise ValueError(f"Must have at least one test and a power from 0.5 to 1, we instead got {tests} and {power}")
  degrees = distance.clusters - 1
  # A distance is never below 0: the test is one-sided.
  return t_quantile(1 - 2 * (1 - level) / tests, degrees), t_quantile(2 * power - 1, degrees)


def _kernel(a: Array, b: Array) -> Array:
  base = a @ b.T / a.shape[1] + 1.0
  return base * base * base


def _mixing(clusters: np.ndarray | None, count: int) -> np.ndarray:
  """``[G, n]`` weights of the mean of each cluster."""
  index, groups = cluster_index(clusters, count)
  weights = np.zeros((groups, count))
  weights[index, np.arange(count)] = 1.0
  return weights / weights.sum(1, keepdims=True)


def _cluster_kernels(
  a: Array, b: Array, clusters: np.ndarray | None, other_clusters: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
  """Mean kernels between clusters: of each set and across; with shared clusters, of ``phi(a) - phi(b)`` and None twice."""
  _check(a, b, at_least=2)
  a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
  first, second = _mixing(clusters, len(a)), _mixing(other_clusters, len(b))
  aa, bb, ab = first @ _kernel(a, a) @ first.T, second @ _kernel(b, b) @ second.T, first @ _kernel(a, b) @ second.T
  _enough(min(ab.shape))
  if clusters is None or other_clusters is None:
    return aa, bb, ab
  own, other = np.unique(clusters), np.unique(other_clusters)
  shared = len(np.intersect1d(own, other))
  if shared == 0:
    return aa, bb, ab
  if shared != len(own) or shared != len(other):
    raise ValueError(
      f"Must have clusters that are all shared or none, we instead got {shared} of {len(own)} and {len(other)}"
    )
  return aa + bb - ab - ab.T, None, None


def _kernel_model(aa: np.ndarray, bb: np.ndarray | None, ab: np.ndarray | None) -> tuple[float, float, float, int]:
  """Null variance, slope, estimate, and the number of clusters."""
  value, null_variance, first_order, biased = _moments(aa, bb, ab)
  squared = float(aa.mean()) + (0.0 if ab is None else float(bb.mean() - 2 * ab.mean()))  # of the mean embeddings, biased up
  total = max(value, 0.0) + squared
  slope = max(first_order + biased, 0.0) / total if total > 0 else 0.0
  return null_variance, slope, value, len(aa) if ab is None else min(ab.shape)


def _moments(aa: np.ndarray, bb: np.ndarray | None, ab: np.ndarray | None) -> tuple[float, float, float, float]:
  """Of ``mean offdiagonal aa + mean offdiagonal bb - 2 mean ab`` over independent clusters, parts that are None left out.

  Returns:
    The value, the variance of its second-order terms, that of its first-order terms without bias (truncated at 0 for each
    set), and with the plug-in estimate.
  """
  n = len(aa)
  m = 0 if ab is None else ab.shape[1]
  second_a = _centred_square(aa)
  second_b = 0.0 if bb is None else _centred_square(bb)
  second_ab = 0.0
  if ab is not None:
    centred = ab - ab.mean(0) - ab.mean(1)[:, None] + ab.mean()
    second_ab = float(np.sum(centred**2)) / ((n - 1) * (m - 1))
  value, null, first_order, biased = 0.0, 0.0, 0.0, 0.0
  for inside, across, second in ((aa, ab, second_a), (bb, None if ab is None else ab.T, second_b)):
    count = n if inside is aa else m
    if count == 0:
      continue
    off = np.zeros(count) if inside is None else (inside.sum(1) - np.diag(inside)) / (count - 1)
    whole = np.zeros(count) if inside is None else inside.mean(1)
    towards = np.zeros(count) if across is None else across.mean(1)
    value += float(off.mean() - towards.mean())
    noise = second / (count - 1) + (second_ab / (n + m - count) if m else 0.0)
    first_order += 4 * max(float(np.var(off - towards, ddof=1)) - noise, 0.0) / count
    biased += 4 * float(np.var(whole - towards, ddof=1)) / count
    null += 2 * second / (count * (count - 1))
  if ab is not None:
    null += 4 * second_ab / (n * m)
  return value, null, first_order, biased


def _centred_square(kernel: np.ndarray) -> float:
  """Unbiased estimate of the mean square of the doubly centred kernel (U-centring; Szekely & Rizzo 2014)."""
  n = len(kernel)
  rest = kernel - np.diag(np.diag(kernel))
  rows = rest.sum(1) / (n - 2)
  centred = rest - rows[:, None] - rows[None] + rest.sum() / ((n - 1) * (n - 2))
  np.fill_diagonal(centred, 0.0)
  return float(np.sum(centred**2)) / (n * (n - 3))


def _enough(groups: int) -> int:
  if groups < _FEWEST:
    raise ValueError(f"Must have at least {_FEWEST} clusters in both sets, we instead got {groups}")
  return groups


# Frechet distance


def frechet_distance(a: Array, b: Array) -> float:
  """``|mean_a - mean_b|^2 + tr(A + B - 2 (A B)^(1/2))`` with the sample covariances A and B, in float64.

  Biased upwards for few samples: compare sets of equal size only (Heusel et al. 2017, arXiv 1706.08500).

  Args:
    a: ``[n, D]`` features, n >= 2; ``b`` is ``[m, D]``.
  """
  _check(a, b, at_least=2)
  a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
  gap = a.mean(0) - b.mean(0)
  first, second = (np.atleast_2d(np.cov(x, rowvar=False)) for x in (a, b))
  # tr((A B)^(1/2)) through the symmetric A^(1/2) B A^(1/2), whose eigenvalues are the same and real.
  values, vectors = np.linalg.eigh(first)
  root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
  cross = np.sum(np.sqrt(np.maximum(np.linalg.eigvalsh(root @ second @ root), 0.0)))
  return float(gap @ gap + np.trace(first) + np.trace(second) - 2 * cross)


def frechet_interval(
  a: Array,
  b: Array,
  *,
  clusters: np.ndarray | None = None,
  other_clusters: np.ndarray | None = None,
  level: float = 0.95,
  seed: int = 0,
) -> Interval:
  """`frechet_distance` with an interval for its expectation at these sizes, not for the distance of the distributions.

  A jackknife leaves out one of 16 random groups of clusters at a time, of either set, and Student's t with 15 degrees of
  freedom is taken of the root of the distance, whose spread changes less (Efron & Stein 1981: the variance is biased up).
  It covers at the level for distant sets, and more (99 of 100 at 95 percent) for near ones.

  Args:
    a: ``[n, D]``; ``b`` is ``[m, D]``; at least 4 clusters each.
    clusters: ``[n]`` labels; ``other_clusters`` ``[m]``.
  """
  a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
  value = frechet_distance(a, b)
  generator = np.random.default_rng(seed)
  variance, fewest = 0.0, _GROUPS
  for labels, rows, distance_fn in (
    (clusters, a, lambda part: frechet_distance(part, b)),
    (other_clusters, b, lambda part: frechet_distance(a, part)),
  ):
    index, groups = cluster_index(labels, len(rows))
    parts = min(_enough(groups), _GROUPS)
    part = (generator.permutation(groups) % parts)[index]
    left_out = [math.sqrt(max(distance_fn(rows[part != number]), 0.0)) for number in range(parts)]
    variance += (parts - 1) * float(np.var(left_out))
    fewest = min(fewest, parts)
  root, half = math.sqrt(max(value, 0.0)), t_quantile(level, fewest - 1) * math.sqrt(variance)
  return Interval(value, max(root - half, 0.0) ** 2, (root + half) ** 2)


# Precision and recall


class PrecisionRecall(NamedTuple):
  """Shares in [0, 1]."""

  precision: float  # generated vectors inside the manifold of the real ones
  recall: float  # real vectors inside the manifold of the generated ones
  f1: float


def precision_recall(generated: Array, real: Array, *, neighbours: int = 3) -> PrecisionRecall:
  """Manifold precision and recall of whole sets (Kynkaanniemi et al. 2019, arXiv 1904.06991).

  A set's manifold is the union of the balls around its vectors that reach their ``neighbours``-th nearest neighbour. Both
  figures depend on the sizes of the sets, and single outliers with large balls move them: `precision_recall_interval` has
  steadier ones.

  Args:
    generated: ``[n, D]``; ``real`` is ``[m, D]``; both larger than ``neighbours``.
  """
  _check(generated, real, at_least=neighbours + 1)
  covered = coverage(generated, real, neighbours=neighbours)
  precision, recall = float(np.mean(covered.generated)), float(np.mean(covered.real))
  return PrecisionRecall(precision, recall, harmonic_mean(precision, recall))


class Coverage(NamedTuple):
  """Which vectors lie inside the manifold of the other set."""

  generated: np.ndarray  # [n] bool
  real: np.ndarray  # [m] bool


def coverage(generated: Array, real: Array, *, neighbours: int = 3) -> Coverage:
  """The vectors that `precision_recall` counts.

  Their share has no interval of its own: it leaves out that the manifolds are drawn too, which is most of the spread.
  """
  _check(generated, real, at_least=neighbours + 1)
  return Coverage(_covered(real, generated, neighbours), _covered(generated, real, neighbours))


def harmonic_mean(a: float, b: float) -> float:
  """``2 a b / (a + b)``, 0 where both are."""
  return 2 * a * b / (a + b) if a + b else 0.0


def _covered(manifold: Array, points: Array, neighbours: int) -> np.ndarray:
  manifold, points = np.asarray(manifold, np.float64), np.asarray(points, np.float64)
  radius = np.partition(squared_distances(manifold, manifold), neighbours, axis=1)[:, neighbours]  # [m]; 0 is itself
  return np.any(squared_distances(points, manifold) <= radius[None], axis=1)


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
  """Manifold precision, recall and F1 of sets of a fixed size, with intervals that count how the manifolds are drawn.

  Estimand: precision is the probability that a generated vector lies in the manifold (`precision_recall`) of ``set_size``
  real ones, recall that a real vector lies in the manifold of ``set_size`` generated ones of different prompts; F1 is their
  harmonic mean. It does not depend on how many vectors there are, so sets of any size compare. For equal distributions it
  is below 1.

  Estimate: the mean over random splits of each set into parts of that size (an incomplete U-statistic). Variance: every
  cluster moves the figure as a point, by its own share of hits, and as a part of manifolds, by the mean of those it belongs
  to. The spread of this sum over clusters is the variance (Hoeffding's projections, with the infinitesimal jackknife's
  correction for subsets: Wager, Hastie & Efron 2014; Wager & Athey 2018), less what the finite number of splits adds.
  Interval: Student's t on the log odds. At exactly 0 or 1 it is that of a share of as many trials as the smaller set has
  clusters. It covers best with 4 clusters or more for each of the ``set_size``.

  Args:
    generated: ``[n, D]``; ``real`` is ``[m, D]``.
    clusters: ``[n]`` prompts of the generated vectors.
    set_size: above ``neighbours``; at most half of the clusters of either set.
    splits: how often each set is split; more is slower and less noisy.
  Raises:
    ValueError: for sets that are too small.
  """
  _check(generated, real, at_least=2 * (neighbours + 1))
  draws = _ManifoldDraws([generated], real, clusters, neighbours, set_size, splits, seed)
  found = draws.figures[0]
  intervals = []
  for name, gradient in zip(PrecisionRecall._fields, _gradients(found)):
    intervals.append(_log_odds_interval(getattr(found, name), draws.variance([gradient]), draws.fewest, level))
  return PrecisionRecallIntervals(*intervals, set_size)


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

  The same prompts and the same real vectors are drawn for both, so what they share cancels. Interval and p value are
  Student's t.

  Args:
    first: ``[n, D]``; ``second`` ``[n, D]`` of the same prompts in the same order; ``real`` is ``[m, D]``.
    clusters: ``[n]`` labels of the prompts. The others as in `precision_recall_interval`.
  """
  _check_pairs(first, second, real)
  _check(first, real, at_least=2 * (neighbours + 1))
  draws = _ManifoldDraws([first, second], real, clusters, neighbours, set_size, splits, seed)
  one, two = draws.figures
  degrees, differences = draws.fewest - 1, []
  for name, plus, minus in zip(PrecisionRecall._fields, _gradients(one), _gradients(two)):
    value = getattr(one, name) - getattr(two, name)
    error = math.sqrt(draws.variance([plus, -minus]))
    half = t_quantile(level, degrees) * error
    p_value = 2 * t_cdf(-abs(value) / error, degrees) if error > 0 else float(value == 0)
    differences.append(Difference(value, value - half, value + half, p_value, error, draws.fewest))
  return PrecisionRecallDifferences(*differences, set_size)


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
  """What one set does as the manifold, and what the other does as points; for each of M methods."""

  member: np.ndarray  # [T, s] clusters of each drawn part
  inside: np.ndarray  # [T, M] share of the other set's points in the part's manifold
  point: np.ndarray  # [M, H] share of the parts whose manifold holds the point, mean over each cluster of the other set


class _ManifoldDraws:
  """Random parts of the generated sets and of the real one, and what each cluster adds to the figures."""

  def __init__(self, generated, real, clusters, neighbours: int, set_size: int, splits: int, seed: int):
    generated = [np.asarray(x, np.float64) for x in generated]
    real = np.asarray(real, np.float64)
    mixing = _mixing(clusters, len(generated[0]))
    index = cluster_index(clusters, len(generated[0]))[0]
    self.fewest = min(len(mixing), len(real))
    if not neighbours < set_size <= self.fewest // 2 or splits < 2:
      raise ValueError(
        f"Must have a set size from {neighbours + 1} to {self.fewest // 2}, half of the clusters, and splits >= 2, "
        f"we instead got {set_size} and {splits}"
      )
    options = (set_size, neighbours, splits)
    self._set_size, self._splits = set_size, splits
    # Recall: manifolds of generated vectors, points are real. Precision: the reverse.
    generator = np.random.default_rng(seed)
    self._generated = _draw_side(generated, [real], index, np.eye(len(real)), *options, generator)
    self._real = _draw_side([real], generated, np.arange(len(real)), mixing, *options, generator)
    self.figures = []
    for precision, recall in zip(self._real.inside.mean(0), self._generated.inside.mean(0)):
      f1 = harmonic_mean(float(precision), float(recall))
      self.figures.append(PrecisionRecall(float(precision), float(recall), f1))

  def variance(self, gradients: list[np.ndarray]) -> float:
    """Of ``sum_M gradient_M (precision_M, recall_M)``."""
    precision, recall = np.array(gradients).T  # [M] each
    return self._of_set(self._generated, recall, self._real, precision) + self._of_set(
      self._real, precision, self._generated, recall
    )

  def _of_set(self, side: _Side, as_manifold: np.ndarray, other: _Side, as_points: np.ndarray) -> float:
    """What the clusters of one set add: parts of manifolds in ``side``, points in ``other``."""
    count = self._clusters(side)
    values = side.inside @ as_manifold  # [T]
    times = np.bincount(side.member.ravel(), minlength=count)
    total = np.bincount(side.member.ravel(), np.repeat(values, side.member.shape[1]), count)
    size = self._set_size
    scale = size * (count - 1) / (count - size)
    moved = scale * (total / np.maximum(times, 1) - values.mean()) + as_points @ other.point
    noise = scale**2 * float(np.var(values, ddof=1) * np.mean(1 / np.maximum(times, 1)))
    return max(float(np.var(moved, ddof=1)) - noise, 0.0) / count

  def _clusters(self, side: _Side) -> int:
    return (self._real if side is self._generated else self._generated).point.shape[1]


def _draw_side(
  sets: list[np.ndarray], others: list[np.ndarray], index: np.ndarray, mixing: np.ndarray, set_size: int, neighbours: int,
  splits: int, generator: np.random.Generator,
) -> _Side:  # fmt: skip
  """Splits the clusters of a set into parts again and again; one random vector stands for each.

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
  member, inside, point = [], [], np.zeros((methods, len(others[0])))
  # Every split leaves out other clusters where the size does not divide them.
  for block in _blocks(splits, across[0].size):
    order = np.argsort(generator.random((block, groups)), axis=1)[:, : parts * set_size].reshape(block * parts, set_size)
    chosen = rows[starts[order] + (generator.random(order.shape) * sizes[order]).astype(int)]  # [T, s]
    shares = np.empty((len(chosen), methods))
    radii = [_radii(x[chosen], neighbours) for x in sets]
    for i, distance in enumerate(across):
      held = np.any(distance[chosen] <= radii[i % len(sets)][..., None], axis=1)  # [T, m]
      shares[:, i] = held @ mixing.mean(0)
      point[i] += held.sum(0)
    member.append(order)
    inside.append(shares)
  member, inside = np.concatenate(member), np.concatenate(inside)
  return _Side(member, inside, point / len(member) @ mixing.T)


def _radii(vectors: np.ndarray, neighbours: int) -> np.ndarray:
  """Squared distance ``[T, s]`` to the ``neighbours``-th nearest neighbour within each set ``[T, s, D]``."""
  product = vectors @ np.swapaxes(vectors, 1, 2)
  squares = np.einsum("tsd,tsd->ts", vectors, vectors)
  distances = np.maximum(squares[:, :, None] + squares[:, None] - 2 * product, 0.0)
  return np.partition(distances, neighbours, axis=2)[..., neighbours]  # 0 is itself


def _blocks(total: int, size: int) -> Iterator[int]:
  """Numbers that sum to ``total``, so small that a block of them with ``size`` entries each fits in memory."""
  block = max(_BLOCK // size, 1)
  for start in range(0, total, block):
    yield min(block, total - start)


def squared_distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
  """``[n, m]`` squared Euclidean distances of ``a [n, D]`` and ``b [m, D]``."""
  product = (a * a).sum(1)[:, None] + (b * b).sum(1)[None] - 2 * a @ b.T
  return np.maximum(product, 0.0)


def _check(a: Array, b: Array, *, at_least: int) -> None:
  if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
    raise ValueError(f"Must have feature matrices of one width, we instead got shapes {a.shape} and {b.shape}")
  if min(a.shape[0], b.shape[0]) < at_least:
    raise ValueError(f"Must have at least {at_least} vectors in both sets, we instead got {a.shape[0]} and {b.shape[0]}")


def _check_pairs(first: Array, second: Array, reference: Array) -> None:
  if first.shape != second.shape:
    raise ValueError(f"Must have the same prompts in both sets, we instead got shapes {first.shape} and {second.shape}")
  _check(first, reference, at_least=2)
