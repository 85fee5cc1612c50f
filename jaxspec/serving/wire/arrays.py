"""Between the arrays of a round and the records of messages."""

from __future__ import annotations

import jax
import numpy as np

from jaxspec.codecs.sparse_distribution import SparseDistribution
from jaxspec.core.types import PyTree
from jaxspec.serving.wire.records import Record


def on_host(tree: PyTree) -> PyTree:
  """The same tree with numpy arrays, in one transfer."""
  return jax.tree.map(np.asarray, jax.device_get(tree))


def record_of(distribution: SparseDistribution, position: int, token: int | None) -> Record:
  """One record out of the distributions ``[1, K]`` of a row, on the host."""
  size = int(distribution.size[0, position])
  ids, counts = distribution.ids[0, position, :size].tolist(), distribution.counts[0, position, :size].tolist()
  return Record(tuple(ids), tuple(counts), int(distribution.total[0, position]), token)


def no_distributions(shape: tuple[int, ...], max_sent: int) -> SparseDistribution:
  """Distributions ``shape`` without any token, with room for ``max_sent`` tokens each, on the host."""
  entries = lambda: np.zeros((*shape, max_sent), np.int32)
  return SparseDistribution(entries(), entries(), np.zeros(shape, np.int32), np.zeros(shape, np.int32))
