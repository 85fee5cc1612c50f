"""Distances between two sets of feature vectors: kernel, Frechet, and precision/recall.

None of them is FID: that name belongs to one feature network. Call a figure by its distance and its encoder.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

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
  precision, recall = _covered(real, generated, neighbours), _covered(generated, real, neighbours)
  total = precision + recall
  return PrecisionRecall(precision, recall, 2 * precision * recall / total if total else 0.0)


def _covered(manifold: Array, points: Array, neighbours: int) -> float:
  manifold, points = np.asarray(manifold, np.float64), np.asarray(points, np.float64)
  radius = np.partition(squared_distances(manifold, manifold), neighbours, axis=1)[:, neighbours]  # [m]; 0 is itself
  return float(np.mean(np.any(squared_distances(points, manifold) <= radius[None], axis=1)))


def squared_distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
  """``[n, m]`` squared Euclidean distances of ``a [n, D]`` and ``b [m, D]``."""
  product = (a * a).sum(1)[:, None] + (b * b).sum(1)[None] - 2 * a @ b.T
  return np.maximum(product, 0.0)


def _check(a: Array, b: Array, *, at_least: int) -> None:
  if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
    raise ValueError(f"Must have feature matrices of one width, we instead got shapes {a.shape} and {b.shape}")
  if min(a.shape[0], b.shape[0]) < at_least:
    raise ValueError(f"Must have at least {at_least} vectors in both sets, we instead got {a.shape[0]} and {b.shape[0]}")
