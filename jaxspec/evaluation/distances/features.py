"""Helpers of all distances of feature sets: checks of shapes, means of clusters, squared distances."""

from __future__ import annotations

import numpy as np

from jaxspec.core.types import HostArray
from jaxspec.statistics import cluster_index


def check_widths(a: HostArray, b: HostArray, *, at_least: int) -> None:
  if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
    raise ValueError(f"Must have feature matrices of one width, we instead got shapes {a.shape} and {b.shape}")
  if min(a.shape[0], b.shape[0]) < at_least:
    raise ValueError(f"Must have at least {at_least} vectors in both sets, we instead got {a.shape[0]} and {b.shape[0]}")


def check_pairs(first: HostArray, second: HostArray, reference: HostArray) -> None:
  if first.shape != second.shape:
    raise ValueError(f"Must have the same prompts in both sets, we instead got shapes {first.shape} and {second.shape}")
  check_widths(first, reference, at_least=2)


def mixing_of(clusters: np.ndarray | None, count: int) -> np.ndarray:
  """``[G, n]`` weights of the mean of each cluster."""
  index, groups = cluster_index(clusters, count)
  weights = np.zeros((groups, count))
  weights[index, np.arange(count)] = 1.0
  return weights / weights.sum(1, keepdims=True)


def squared_distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
  """``[n, m]`` squared Euclidean distances of ``a [n, D]`` and ``b [m, D]``."""
  product = (a * a).sum(1)[:, None] + (b * b).sum(1)[None] - 2 * a @ b.T
  return np.maximum(product, 0.0)
