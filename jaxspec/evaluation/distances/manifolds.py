"""Manifold precision and recall of two feature sets (Kynkaanniemi et al. 2019, arXiv 1904.06991)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxspec.core.types import HostArray
from jaxspec.evaluation.distances.features import check_widths, squared_distances


class PrecisionRecall(NamedTuple):
  """Shares in [0, 1]."""

  precision: float  # generated vectors inside the manifold of the real ones
  recall: float  # real vectors inside the manifold of the generated ones
  f1: float


def precision_recall(generated: HostArray, real: HostArray, *, neighbours: int = 3) -> PrecisionRecall:
  """Manifold precision and recall of whole sets (Kynkaanniemi et al. 2019, arXiv 1904.06991).

  A set's manifold is the union of the balls around its vectors that reach to their ``neighbours``-th nearest neighbour. Both
  figures depend on the sizes of the sets, and single outliers with large balls move them: those of
  `precision_recall_interval` are more stable.

  Args:
    generated: ``[n, D]``; ``real`` is ``[m, D]``; both larger than ``neighbours``.
  """
  check_widths(generated, real, at_least=neighbours + 1)
  covered = coverage(generated, real, neighbours=neighbours)
  precision, recall = float(np.mean(covered.generated)), float(np.mean(covered.real))
  return PrecisionRecall(precision, recall, harmonic_mean(precision, recall))


class Coverage(NamedTuple):
  """Which vectors lie inside the manifold of the other set."""

  generated: np.ndarray  # [n] bool
  real: np.ndarray  # [m] bool


def coverage(generated: HostArray, real: HostArray, *, neighbours: int = 3) -> Coverage:
  """The vectors that `precision_recall` counts.

  An interval of their share would be too short: most of its variance comes from the randomness of the manifolds.
  """
  check_widths(generated, real, at_least=neighbours + 1)
  return Coverage(_covered(real, generated, neighbours), _covered(generated, real, neighbours))


def harmonic_mean(a: float, b: float) -> float:
  """``2 a b / (a + b)``, 0 where both are."""
  return 2 * a * b / (a + b) if a + b else 0.0


def _covered(manifold: HostArray, points: HostArray, neighbours: int) -> np.ndarray:
  own, others = np.asarray(manifold, np.float64), np.asarray(points, np.float64)
  radius = np.partition(squared_distances(own, own), neighbours, axis=1)[:, neighbours]  # [m]; 0 is itself
  return np.any(squared_distances(others, own) <= radius[None], axis=1)


def radii(vectors: np.ndarray, neighbours: int) -> np.ndarray:
  """Squared distance ``[T, s]`` to the ``neighbours``-th nearest neighbour within each set ``[T, s, D]``."""
  product = vectors @ np.swapaxes(vectors, 1, 2)
  squares = np.einsum("tsd,tsd->ts", vectors, vectors)
  distances = np.maximum(squares[:, :, None] + squares[:, None] - 2 * product, 0.0)
  return np.partition(distances, neighbours, axis=2)[..., neighbours]  # 0 is itself
