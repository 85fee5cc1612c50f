"""Kernel distance (KID) of two feature sets: its interval, its test, and the difference of two methods."""

from __future__ import annotations

import math
from typing import NamedTuple, overload

import jax.numpy as jnp
import numpy as np

from jaxspec.core.types import Array, HostArray
from jaxspec.evaluation.distances.features import check_pairs, check_widths, mixing_of
from jaxspec.statistics import Difference, sign_flip_p_value, t_quantile

_FEWEST = 4  # clusters of each set


def kernel_distance(a: Array, b: Array) -> Array:
  """Unbiased squared maximum mean discrepancy with the kernel ``(x y / D + 1)^3`` (KID; Binkowski et al. 2018).

  Args:
    a: ``[n, D]`` features, n >= 2.
    b: ``[m, D]`` features, m >= 2.
  Returns:
    Scalar float32; its expectation is 0 for equal distributions, so it can be slightly negative.
  Raises:
    ValueError: for fewer than two vectors or different widths.
  """
  check_widths(a, b, at_least=2)
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
  null_variance: float  # for equal distributions
  slope: float
  clusters: int  # of the smaller set

  @property
  def standard_error(self) -> float:
    return math.sqrt(self.null_variance + self.slope * max(self.value, 0.0))


def kernel_distance_interval(
  a: HostArray,
  b: HostArray,
  *,
  clusters: np.ndarray | None = None,
  other_clusters: np.ndarray | None = None,
  level: float = 0.95,
) -> KernelDistance:
  """`kernel_distance` with an interval that is valid for equal distributions too.

  Estimand: squared maximum mean discrepancy d between the distribution of ``a`` and that of ``b``, over prompts and
  samples, each cluster with the same weight. Pairs of vectors of one cluster are left out, so the estimate is unbiased.
  Clusters that both sets share are prompts of both: their cross pairs are left out too, and the prompts are the only units
  (Gretton et al. 2012, Lemma 7).

  Interval: all d with ``|estimate - d| <= t sqrt(v0 + c d)``. For equal distributions the estimate is a degenerate
  U-statistic with the variance v0 (Hoeffding's second-order terms, unbiased by U-centring, Szekely & Rizzo 2014); the
  first-order terms grow with the distance, ``c d``. The slope c is the mean of its plug-in and its bias-corrected estimate.
  A bootstrap would include spurious first-order terms for equal distributions, and the interval of Student's t with the
  estimated variance is too short below the value.

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
  a: HostArray,
  b: HostArray,
  *,
  clusters: np.ndarray | None = None,
  other_clusters: np.ndarray | None = None,
  permutations: int = 999,
  seed: int = 0,
) -> float:
  """P value of equal distributions: the share of relabellings with at least this `kernel_distance` (Gretton et al. 2012).

  Clusters that both sets share swap their two sides; clusters of one set only are reassigned to the two sets at random.
  Exact if the two distributions are equal, because all relabellings are then equally likely; never 0. Arguments as in
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
  first: HostArray,
  second: HostArray,
  reference: HostArray,
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

  In simulations of 95 % intervals the coverage is 93 to 94 % for distances far from 0, higher near 0, and almost 100 % if
  both methods have the distribution of the reference.

  Args:
    first: ``[n, D]``; ``second`` ``[n, D]`` of the same prompts in the same order; ``reference`` ``[m, D]``.
    clusters: ``[n]`` labels of the prompts.
  """
  check_pairs(first, second, reference)
  one, two, real = (np.asarray(x, np.float64) for x in (first, second, reference))
  mixing = mixing_of(clusters, len(one))
  kernel = lambda x, y: mixing @ _kernel(x, y) @ mixing.T
  across = mixing @ (_kernel(one, real) - _kernel(two, real))
  own, swapped = kernel(one, one) - kernel(two, two), kernel(one, two)
  groups = _enough(min(own.shape[0], len(real)))
  value, null_variance, first_order, biased = _moments(own, None, across)
  error = math.sqrt(null_variance + (first_order + biased) / 2)  # the mean of both, as in `_kernel_model`
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
  """Smallest true distance that a test of equal distributions detects with the given power, with sets of these sizes.

  The estimate, with variance ``v0 + c d`` (`KernelDistance`), exceeds ``z sqrt(v0)`` with probability ``power``; z is the
  quantile of the level after correction for ``tests``. For differences of two methods, take
  `statistics.detectable_difference`.
  """
  pass_at, above = _kernel_quantiles(distance, tests, level, power)
  # Root of d = pass_at sqrt(v0) + above sqrt(v0 + c d).
  threshold = pass_at * math.sqrt(distance.null_variance)
  middle = threshold + above**2 * distance.slope / 2
  return middle + math.sqrt(max(middle**2 - threshold**2 + above**2 * distance.null_variance, 0.0))


def required_kernel_count(
  distance: KernelDistance, wanted: float, *, tests: int = 1, level: float = 0.95, power: float = 0.8
) -> int:
  """Clusters of the smaller set needed to detect a true distance of ``wanted``; both sets grow in proportion.

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


@overload
def _kernel(a: Array, b: Array) -> Array: ...
@overload
def _kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray: ...
def _kernel(a, b):
  base = a @ b.T / a.shape[1] + 1.0
  return base * base * base


def _cluster_kernels(
  a: HostArray, b: HostArray, clusters: np.ndarray | None, other_clusters: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
  """Mean kernels between clusters: within each set and across; with shared clusters, of ``phi(a) - phi(b)``, then None
  twice."""
  check_widths(a, b, at_least=2)
  a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
  first, second = mixing_of(clusters, len(a)), mixing_of(other_clusters, len(b))
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
  squared = float(aa.mean())  # of the mean embeddings, biased up
  if ab is not None and bb is not None:
    squared += float(bb.mean() - 2 * ab.mean())
  total = max(value, 0.0) + squared
  slope = max(first_order + biased, 0.0) / total if total > 0 else 0.0
  return null_variance, slope, value, len(aa) if ab is None else min(ab.shape)


def _moments(aa: np.ndarray, bb: np.ndarray | None, ab: np.ndarray | None) -> tuple[float, float, float, float]:
  """Moments of ``mean offdiagonal aa + mean offdiagonal bb - 2 mean ab`` over independent clusters; None is left out.

  Returns:
    The value, the variance of its second-order terms, and two estimates of the variance of its first-order terms:
    bias-corrected (truncated at 0 for each set) and plug-in.
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
