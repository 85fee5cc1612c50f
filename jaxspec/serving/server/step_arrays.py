"""The rows of a step as host arrays, their sizes, and the position of each row in a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from jaxspec.core.types import Array, Cursor, Draft, PyTree, Verdict
from jaxspec.sampling.logit_processing import Sampling
from jaxspec.serving.server.cache_table import Batch, RowSettings
from jaxspec.serving.server.chunking import ChunkSpan
from jaxspec.serving.server.served_profile import ServedProfile
from jaxspec.serving.wire.arrays import host_array
from jaxspec.serving.wire.handshake import MAX_END_TOKENS
from jaxspec.verifiers.chunk_target import Chunk


class Sizes(NamedTuple):
  """Sizes of the shapes.

  On a mesh every group of devices has an equal share of the slots and of the rows: the slots of group 0 come first.
  """

  max_streams: int = 256  # slots N
  max_rows: int = 32  # rows M of a step
  max_len: int = 1024  # most tokens of a row
  widths: tuple[int, ...] = (8, 32)  # ascending inputs W of a pass
  groups: int = 1  # of devices
  least_prompt: int = 1  # fewest slots of a prompt

  @property
  def slots_of_group(self) -> int:
    """Slots of one group; its table has one more, the idle slot."""
    return self.max_streams // self.groups

  @property
  def rows_of_group(self) -> int:
    """Rows of a step in one group."""
    return self.max_rows // self.groups

  def group_of(self, slot: int) -> int:
    """The group that has a slot."""
    return slot // self.slots_of_group

  def check(self) -> None:
    """Raises a ValueError for inconsistent sizes."""
    streams, rows, max_len, widths, groups, _ = self
    if min(streams, rows, max_len) < 1:
      raise ValueError(f"Must have max_streams, max_rows and max_len of at least 1, we instead got {self[:3]}")
    for name, size in (("max_streams", streams), ("max_rows", rows)):
      if size % groups:
        raise ValueError(f"Must have {name} that the axis data={groups} of the mesh divides, we instead got {size}")
    # Narrower passes are other products on some processors, and their bits may then depend on the row.
    ascends = all(a < b for a, b in zip(widths, widths[1:]))
    if not widths or widths[0] < 8 or not ascends or any(self.rows_of_group * width % 8 for width in widths):
      each = " of each group" if groups > 1 else ""
      raise ValueError(f"Must have ascending widths from 8 on, rows{each} x width a multiple of 8, we instead got {widths}")


class Settings(NamedTuple):
  """`RowSettings` of one row, and its end tokens."""

  row: RowSettings  # leaves without rows
  end_tokens: tuple[int, ...]


class Row(NamedTuple):
  """One row of a step."""

  slot: int
  settings: Settings
  cursor: Cursor  # leaves [1], round []
  span: ChunkSpan
  tokens: np.ndarray  # [size] int32, tokens of the span
  features: np.ndarray | None = None  # [size, D] float32
  draft: Draft | None = None  # leaves [1, K, ...]; None: a forced row


def row_positions(rows: Sequence[Row], sizes: Sizes) -> list[int]:
  """The index of each row among the ``M`` of a step: rows of a group's slots are among the rows of the group."""
  taken, positions = [0] * sizes.groups, []
  for row in rows:
    group = sizes.group_of(row.slot)
    assert taken[group] < sizes.rows_of_group, "more rows than a group has room for"
    positions.append(group * sizes.rows_of_group + taken[group])
    taken[group] += 1
  return positions


def slots_for(slot: int, sizes: Sizes) -> np.ndarray:
  """``[groups]`` int32: the number of a slot in its group, and the idle slot for all other groups."""
  slots = np.full(sizes.groups, sizes.slots_of_group, np.int32)
  slots[sizes.group_of(slot)] = slot % sizes.slots_of_group
  return slots


def batch_of(profile: ServedProfile, width: int, rows: Sequence[Row], sizes: Sizes) -> tuple[np.ndarray, Batch]:
  """Slots ``[M]`` int32, numbered within the group of each row, and the `Batch` of the rows; the others are idle."""
  number = sizes.max_rows
  zeros = lambda *shape: host_array(np.zeros((number, *shape), np.int32))
  lengths = lambda: host_array(np.ones(number, np.int32))
  ones = lambda: host_array(np.ones(number, np.float32))
  slots = np.full(number, sizes.slots_of_group, np.int32)
  keys = host_array(np.zeros((number, 2), np.uint32))
  settings = RowSettings(keys, lengths(), zeros(), Sampling(ones(), ones()), ones())
  end_tokens = np.full((number, MAX_END_TOKENS), -1, np.int32)
  cursor = Cursor(zeros(), lengths(), host_array(np.zeros(number, bool)), zeros(), host_array(end_tokens))
  draft, verified = profile.no_drafts(number), np.zeros(number, bool)
  features = np.zeros((number, width, profile.feature_width), np.float32)
  chunk = Chunk(zeros(width), zeros(), zeros(), features if profile.feature_width else ())
  for index, row in zip(row_positions(rows, sizes), rows):
    slots[index] = row.slot % sizes.slots_of_group
    _set_row(settings, index, jax.tree.map(lambda leaf: leaf[None], row.settings.row))
    for leaf, own in zip((cursor.last, cursor.length, cursor.live), row.cursor[:3]):
      leaf[index] = own[0]
    cursor.round[index] = row.cursor.round
    end_tokens[index, : len(row.settings.end_tokens)] = row.settings.end_tokens
    chunk.tokens[index, : len(row.tokens)] = row.tokens
    chunk.start[index] = row.span.start
    if row.features is not None:
      features[index, : len(row.features)] = row.features
    if row.draft is not None:
      verified[index] = True
      chunk.skipped[index] = row.cursor.length[0] - 1 - row.span.start
      _set_row(draft._replace(payload=()), index, row.draft)
  return slots, Batch(settings, cursor, draft._replace(payload=chunk), host_array(verified))


def batch_to_finish(
  profile: ServedProfile, rows: Sequence[Row], verdicts: Sequence[Verdict], distributions: Sequence[PyTree], sizes: Sizes
) -> tuple[np.ndarray, Batch, Verdict, PyTree]:
  """Arguments of `jaxspec.serving.server.cache_table.finish` for rows whose distributions have arrived.

  Args:
    rows: as they were verified.
    verdicts: of each row, leaves ``[1]``.
    distributions: `SparseDistribution` of each, leaves ``[1]``.
  """
  without_tokens = [row._replace(span=ChunkSpan(0, 0, 0), tokens=row.tokens[:0], features=None) for row in rows]
  slots, batch = batch_of(profile, sizes.widths[0], without_tokens, sizes)
  zeros = lambda dtype: host_array(np.zeros(sizes.max_rows, dtype))
  verdict = Verdict.one(zeros(np.int32), zeros(np.int32), is_drafted=zeros(bool)[:, None])
  distribution = profile.no_requested(sizes.max_rows)
  for index, *one in zip(row_positions(rows, sizes), verdicts, distributions):
    _set_row((verdict, distribution), index, tuple(one))
  return slots, batch._replace(draft=batch.draft._replace(payload=())), verdict, distribution


def row_of(tree: PyTree, index: int) -> PyTree:
  """One row of a tree with leaves ``[M, ...]``, as leaves ``[1, ...]``."""
  return jax.tree.map(lambda leaf: leaf[index : index + 1], tree)


def _set_row(tree: PyTree, index: int, row: PyTree) -> None:
  """Writes leaves ``[1, ...]`` into leaves ``[M, ...]``, in place."""

  def write(leaf: np.ndarray, own: Array) -> None:
    leaf[index] = own[0]

  jax.tree.map(write, tree, row)
