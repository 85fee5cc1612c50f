"""Between the arrays of a round and the records of messages."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from jaxspec.codecs.sparse_distribution import SparseDistribution
from jaxspec.core.types import PyTree
from jaxspec.serving.wire.frame_reader import Distributions
from jaxspec.serving.wire.records import Record


def on_host(tree: PyTree) -> PyTree:
  """The same tree with numpy arrays, in one transfer."""
  return jax.tree.map(np.asarray, jax.device_get(tree))


def record_of(distribution: SparseDistribution, row: int, position: int, token: int | None) -> Record:
  """One record out of distributions ``[B, K]`` on the host."""
  size = int(distribution.size[row, position])
  ids, counts = distribution.ids[row, position, :size].tolist(), distribution.counts[row, position, :size].tolist()
  return Record(tuple(ids), tuple(counts), int(distribution.total[row, position]), token)


def no_distributions(shape: tuple[int, ...], max_sent: int) -> SparseDistribution:
  """Distributions ``shape`` without any token, with room for ``max_sent`` tokens each, on the host."""
  entries = lambda: np.zeros((*shape, max_sent), np.int32)
  return SparseDistribution(entries(), entries(), np.zeros(shape, np.int32), np.zeros(shape, np.int32))


def put_at(distribution: SparseDistribution, at: Any, found: Distributions) -> None:
  """Writes distributions into host arrays, in place."""
  for array, values in zip(distribution, found):
    array[at] = values
