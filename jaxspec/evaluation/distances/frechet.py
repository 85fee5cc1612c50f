"""Frechet distance of two feature sets, and its interval.

The interval is a jackknife over 16 groups of prompts. Near equal distributions the distance is a sum over pairs of vectors
more than over vectors, and a jackknife counts the contribution of a pair twice, once for each vector. Leaving out two groups
at a time estimates this excess (Efron & Stein 1981, section 5).
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np

from jaxspec.core.types import HostArray
from jaxspec.evaluation.distances.features import check_widths
from jaxspec.statistics import Interval, cluster_index, t_quantile

_FEWEST = 4  # clusters of each set
_GROUPS = 16  # of the jackknife
_LEAST = 0.65  # share of the jackknife's variance that stays; see `frechet_interval`


def frechet_distance(a: HostArray, b: HostArray) -> float:
  """``|mean_a - mean_b|^2 + tr(A + B - 2 (A B)^(1/2))`` with the sample covariances A and B, in float64.

  Biased upwards for few samples: compare sets of equal size only (Heusel et al. 2017, arXiv 1706.08500).

  Args:
    a: ``[n, D]`` features, n >= 2; ``b`` is ``[m, D]``.
  Raises:
    ValueError: for fewer than two vectors or different widths.
  """
  check_widths(a, b, at_least=2)
  sets, rank = _rotated(a, b)
  first, second = (_moments(x, np.ones((1, len(x))), rank) for x in sets)
  return float(_distances(first, second)[0, 0])


def frechet_interval(
  a: HostArray,
  b: HostArray,
  *,
  clusters: np.ndarray | None = None,
  other_clusters: np.ndarray | None = None,
  level: float = 0.95,
  seed: int = 0,
) -> Interval:
  """`frechet_distance` with an interval for its expectation at these sizes.

  The interval does not cover the distance of the two distributions: the estimate is biased upwards, often by more than the
  width of the interval. Figures of sets of equal sizes share that bias.

  A jackknife leaves out one of 16 random groups of clusters at a time, of either set. Student's t with 15 degrees of freedom
  is applied to the root of the distance, whose variance is more stable. The jackknife counts the contribution of pairs of
  groups twice, so it is subtracted once. This estimate can be half of the jackknife's variance; at most 0.35 of it are
  subtracted.

  In simulations of 95 % intervals the coverage is 94 to 96 %, and 98 % for two sets of one distribution.

  Args:
    a: ``[n, D]``; ``b`` is ``[m, D]``; at least 4 clusters each.
    clusters: ``[n]`` labels; ``other_clusters`` ``[m]``.
  Raises:
    ValueError: for fewer than 4 clusters or different widths.
  """
  check_widths(a, b, at_least=2)
  generator = np.random.default_rng(seed)
  sets, rank = _rotated(a, b)
  parts = [_random_groups(len(x), labels, generator) for x, labels in zip(sets, (clusters, other_clusters))]
  whole = [_moments(x, np.ones((1, len(x))), rank) for x in sets]
  singles = [_moments(x, 1 - part, rank) for x, part in zip(sets, parts)]
  root = math.sqrt(_distances(*whole)[0, 0])
  variance, of_pairs = 0.0, 0.0
  for x, part, single, other in zip(sets, parts, singles, whole[::-1]):
    count = len(part)
    one, two = np.array(list(itertools.combinations(range(count), 2))).T
    without = np.sqrt(_distances(single, other)[:, 0])
    without_both = np.sqrt(_distances(_moments(x, 1 - part[one] - part[two], rank), other)[:, 0])
    variance += (count - 1) * float(np.var(without))
    together = (count - 2) * without_both - (count - 1) * (without[one] + without[two])
    of_pairs += float(np.var(together)) / 2
  across = np.sqrt(_distances(*singles))  # one group of each set is left out
  across = across - across.mean(0) - across.mean(1)[:, None] + across.mean()
  n, m = across.shape
  of_pairs += (n - 1) * (m - 1) / (n * m) * float(np.sum(across**2))
  half = t_quantile(level, min(n, m) - 1) * math.sqrt(max(variance - of_pairs, _LEAST * variance))
  return Interval(root**2, max(root - half, 0.0) ** 2, (root + half) ** 2)


def _random_groups(count: int, clusters: np.ndarray | None, generator: np.random.Generator) -> np.ndarray:
  """``[G, n]`` 0 or 1: the vectors of each group of whole clusters."""
  index, num_clusters = cluster_index(clusters, count)
  if num_clusters < _FEWEST:
    raise ValueError(f"Must have at least {_FEWEST} clusters in both sets, we instead got {num_clusters}")
  groups = min(num_clusters, _GROUPS)
  return np.eye(groups)[:, (generator.permutation(num_clusters) % groups)[index]]


def _rotated(a: HostArray, b: HostArray) -> tuple[list[np.ndarray], int]:
  """Both sets, float64, in axes of which the first ``rank`` hold the smaller set up to its mean.

  The root of the product of covariances does not depend on the other axes, which saves most of the work if vectors have more
  dimensions than sets have members.
  """
  sets = [np.asarray(vectors, np.float64) for vectors in (a, b)]
  centre = sets[0].mean(0)
  sets = [vectors - centre for vectors in sets]
  fewer = min(sets, key=len)
  rank = min(len(fewer) - 1, fewer.shape[1])
  if rank < fewer.shape[1]:
    axes = np.linalg.svd(fewer - fewer.mean(0))[2]
    sets = [vectors @ axes.T for vectors in sets]
  return sets, rank


class _Moments(NamedTuple):
  """Moments of V subsets of a set of vectors."""

  mean: np.ndarray  # [V, D]
  trace: np.ndarray  # [V] of the whole covariance
  covariance: np.ndarray  # [V, r, r] in the first axes


def _moments(vectors: np.ndarray, kept: np.ndarray, rank: int) -> _Moments:
  """Moments of the subsets ``kept [V, n]``, 0 or 1."""
  count = kept.sum(1)
  mean = kept @ vectors / count[:, None]
  trace = kept @ np.sum(vectors**2, axis=1) - count * np.sum(mean**2, axis=1)
  inside = vectors[:, :rank]
  squares = (kept[:, :, None] * inside).swapaxes(1, 2) @ inside
  centred = squares - count[:, None, None] * mean[:, :rank, None] * mean[:, None, :rank]
  return _Moments(mean, trace / (count - 1), centred / (count - 1)[:, None, None])


def _distances(first: _Moments, second: _Moments) -> np.ndarray:
  """Frechet distances ``[V, W]`` of all pairs of subsets, at least 0."""
  if len(first.trace) < len(second.trace):
    return _distances(second, first).T
  # tr((A B)^(1/2)) through the symmetric B^(1/2) A B^(1/2), whose eigenvalues are the same and real.
  values, vectors = np.linalg.eigh(second.covariance)
  roots = (vectors * np.sqrt(np.maximum(values, 0.0))[:, None]) @ vectors.swapaxes(1, 2)
  cross = [np.sum(np.sqrt(np.maximum(np.linalg.eigvalsh(r @ first.covariance @ r), 0.0)), axis=1) for r in roots]
  gaps = np.sum((first.mean[:, None] - second.mean) ** 2, axis=2)
  return np.maximum(gaps + first.trace[:, None] + second.trace - 2 * np.transpose(cross), 0.0)
