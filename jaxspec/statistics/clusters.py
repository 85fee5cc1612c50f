"""Clusters of samples, and the cluster-robust variance of a ratio of sums."""

from __future__ import annotations

import numpy as np


def cluster_index(clusters: np.ndarray | None, count: int) -> tuple[np.ndarray, int]:
  """Cluster index ``[N]`` of each sample, from 0 in the order of the labels, and the number of clusters."""
  if clusters is None:
    return np.arange(count), count
  labels, index = np.unique(np.asarray(clusters), return_inverse=True)
  if index.shape != (count,):
    raise ValueError(f"Must have one cluster for each of {count} samples, we instead got shape {np.shape(clusters)}")
  return index, len(labels)


def checked_index(clusters: np.ndarray | None, count: int, *, at_least: int) -> tuple[np.ndarray, int]:
  index, groups = cluster_index(clusters, count)
  if groups < at_least:
    raise ValueError(f"Must have at least {at_least} clusters, we instead got {groups}")
  return index, groups


def ratio_variance(
  above: np.ndarray, below: np.ndarray, clusters: np.ndarray | None, *, at_least: int = 1
) -> tuple[float, float, int]:
  """``sum(above) / sum(below)``, its cluster-robust (linearized) variance, and the number of clusters."""
  index, groups = checked_index(clusters, len(above), at_least=at_least)
  value = float(above.sum() / below.sum())
  residuals = np.bincount(index, above - value * below, groups)
  variance = groups / max(groups - 1, 1) * float(residuals @ residuals) / float(below.sum()) ** 2
  return value, variance, groups


def left_out_variance(above: np.ndarray, below: np.ndarray, clusters: np.ndarray | None) -> tuple[float, float, int]:
  """As `ratio_variance`, with the variance of the ratios that leave out one cluster each (the jackknife)."""
  index, groups = checked_index(clusters, len(above), at_least=1)
  value, total = float(above.sum() / below.sum()), float(below.sum())
  residuals, weights = np.bincount(index, above - value * below, groups), np.bincount(index, below, groups) / total
  residuals = residuals / np.maximum(1 - weights, 1e-9)
  return value, (groups - 1) / groups * float(residuals @ residuals) / total**2, groups


def vector(values: np.ndarray, name: str, length: int | None = None) -> np.ndarray:
  values = np.asarray(values, np.float64)
  if values.ndim != 1 or not len(values) or not np.isfinite(values).all():
    raise ValueError(f"Must have a vector of finite numbers for {name}, we instead got shape {values.shape} or others")
  if length is not None and len(values) != length:
    raise ValueError(f"Must have pairs of numbers, we instead got {length} and {len(values)}")
  return values
