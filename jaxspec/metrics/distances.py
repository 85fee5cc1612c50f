"""Distances between two sets of feature vectors: kernel, Frechet, and precision/recall.

None of them is FID: that name belongs to one feature network. Call a figure by its distance and its encoder.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxspec.metrics.bootstrap import Interval, interval
from jaxspec.types import Array


def kernel_distance(a: Array, b: Array) -> Array:
  """Unbiased squared maximum mean discrepancy with the kernel ``(x y / D + 1)^3`` (KID; Binkowski et al. 2018).

  Args:
    a: ``[n, D]`` features, n >= 2.
    b: ``[m, D]`` features, m >= 2.
  Returns:
    Scalar float32; 0 in the mean for equal laws, and slightly negative at times.
  Raises:
    ValueError: for fewer than two vectors or different widths.
  """
  _check(a, b, at_least=2)
  aa, bb, ab = _kernel(a, a), _kernel(b, b), _kernel(a, b)
  inside = lambda k: (jnp.sum(k) - jnp.trace(k)) / (k.shape[0] * (k.shape[0] - 1))
  return inside(aa) + inside(bb) - 2 * jnp.mean(ab)


def kernel_distance_interval(
  a: Array, b: Array, *, repeats: int = 200, level: float = 0.95, seed: int = 0
) -> Interval:
  """`kernel_distance` with a bootstrap interval; arguments as there and in `jaxspec.metrics.bootstrap.bootstrap`.

  A resample holds some vectors twice, and the kernel of a vector with its own copy would count as a pair inside the set.
  Such pairs are left out, as the diagonal is, so that the draws stay unbiased.
  """
  _check(a, b, at_least=2)
  a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
  aa, bb, ab = _kernel(a, a), _kernel(b, b), _kernel(a, b)
  np.fill_diagonal(aa, 0.0)
  np.fill_diagonal(bb, 0.0)
  generator = np.random.default_rng(seed)
  counts = lambda n: generator.multinomial(n, np.full(n, 1 / n), size=repeats).astype(np.float64)

  def distance(u: np.ndarray, v: np.ndarray) -> np.ndarray:  # u [R, n], v [R, m] times each vector is held
    inside = lambda w, k: np.sum((w @ k) * w, axis=1) / (np.sum(w, axis=1) ** 2 - np.sum(w * w, axis=1))
    across = np.sum((u @ ab) * v, axis=1) / (np.sum(u, axis=1) * np.sum(v, axis=1))
    return inside(u, aa) + inside(v, bb) - 2 * across

  value = float(distance(np.ones((1, len(a))), np.ones((1, len(b))))[0])
  return interval(value, distance(counts(len(a)), counts(len(b))), level)


def _kernel(a: Array, b: Array) -> Array:
  return (a @ b.T / a.shape[1] + 1.0) ** 3


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


class PrecisionRecall(NamedTuple):
  """Shares in [0, 1]."""

  precision: float  # generated vectors inside the manifold of the real ones
  recall: float  # real vectors inside the manifold of the generated ones
  f1: float


def precision_recall(generated: Array, real: Array, *, neighbours: int = 3) -> PrecisionRecall:
  """Manifold precision and recall (Kynkaanniemi et al. 2019, arXiv 1904.06991).

  A set's manifold is the union of the balls around its vectors that reach their ``neighbours``-th nearest neighbour.

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

  Intervals come from these with both manifolds held fixed: in a resample, copies would be each other's nearest neighbours
  and shrink the balls.
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


def squared_distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
  """``[n, m]`` squared Euclidean distances of ``a [n, D]`` and ``b [m, D]``."""
  product = (a * a).sum(1)[:, None] + (b * b).sum(1)[None] - 2 * a @ b.T
  return np.maximum(product, 0.0)


def _check(a: Array, b: Array, *, at_least: int) -> None:
  if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
    raise ValueError(f"Must have feature matrices of one width, we instead got shapes {a.shape} and {b.shape}")
  if min(a.shape[0], b.shape[0]) < at_least:
    raise ValueError(f"Must have at least {at_least} vectors in both sets, we instead got {a.shape[0]} and {b.shape[0]}")
