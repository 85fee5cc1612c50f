"""Conversions between the arrays of a round and the records of messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar, cast

import jax
import numpy as np

from jaxspec.codecs.sparse_distribution import SparseDistribution
from jaxspec.core.types import Array
from jaxspec.serving.wire.distribution_bits import Record

Tree = TypeVar("Tree")


def host_array(values: np.ndarray | np.generic) -> Array:
  """A numpy array as a leaf of a round. Rounds that cross stay on the host; compiled functions take numpy arrays too."""
  return cast(Array, values)


def on_host(tree: Tree) -> Tree:
  """The same tree with numpy arrays, in one transfer."""
  return jax.tree.map(np.asarray, jax.device_get(tree))


def scalar(array: Array) -> int:
  """The number of the one row of ``array [1]``. NumPy reads it: an index of a JAX array is a program of its own."""
  return int(np.asarray(array)[0])


def record_of(distribution: SparseDistribution, position: int, token: int | None) -> Record:
  """The record of one position of the distributions ``[1, K]`` of a row, which are on the host."""
  size = int(distribution.size[0, position])
  ids, counts = distribution.ids[0, position, :size].tolist(), distribution.counts[0, position, :size].tolist()
  return Record(tuple(ids), tuple(counts), int(distribution.total[0, position]), token)


def no_distributions(shape: tuple[int, ...], max_sent: int) -> SparseDistribution:
  """Distributions ``shape`` without any token, with room for ``max_sent`` tokens each, on the host."""
  zeros = lambda *shape: host_array(np.zeros(shape, np.int32))
  return SparseDistribution(zeros(*shape, max_sent), zeros(*shape, max_sent), zeros(*shape), zeros(*shape))


def distributions_of_records(records: Sequence[Record], positions: int, max_sent: int) -> SparseDistribution:
  """Distributions ``[1, positions]`` on the host, with room for ``max_sent`` tokens each; the records come first.

  Tokens without weight are left out where a record has more than ``max_sent`` tokens; its others fit.
  """
  found = no_distributions((1, positions), max_sent)
  for position, record in enumerate(records):
    ids, counts = np.asarray(record.ids, np.int32), np.asarray(record.counts, np.int32)
    if len(ids) > max_sent:
      ids, counts = ids[counts > 0], counts[counts > 0]
    found.ids[0, position, : len(ids)], found.counts[0, position, : len(ids)] = ids, counts
    found.size[0, position], found.total[0, position] = len(ids), record.total
  return found
