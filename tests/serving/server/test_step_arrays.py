"""Rows of a step as arrays: where they stand, alone and in the groups of a mesh."""

import numpy as np
import pytest

from jaxspec.core.types import Cursor
from jaxspec.sampling.logit_processing import Sampling
from jaxspec.serving.server.cache_table import RowSettings
from jaxspec.serving.server.chunking import ChunkSpan
from jaxspec.serving.server.served_profile import ServedProfile
from jaxspec.serving.server.step_arrays import Row, Settings, Sizes, batch_of, row_positions, slots_for
from jaxspec.serving.server.stream_table import StreamTable
from jaxspec.serving.wire.sqs_codec import PlainCodec

SIZES = Sizes(6, 4, 12, (8,), groups=2)


def row(slot):
  """A forced row of three tokens that tell its slot."""
  settings = RowSettings(
    np.full(2, slot, np.uint32), np.int32(12), np.int32(1), Sampling(*np.ones(2, np.float32)), np.float32(1)
  )
  cursor = Cursor(np.full(1, slot, np.int32), np.ones(1, np.int32), np.ones(1, bool), np.int32(0))
  return Row(slot, Settings(settings, ()), cursor, ChunkSpan(2, 3, 8), np.full(3, slot, np.int32))


def test_rows_stand_among_those_of_their_group():
  rows = [row(slot) for slot in (5, 1, 3)]
  assert row_positions(rows, SIZES) == [2, 0, 3]
  slots, batch = batch_of(ServedProfile(PlainCodec(7)), 8, rows, SIZES)
  assert slots.tolist() == [1, 3, 2, 0]  # as each group counts; 3 is the idle slot of a group
  assert batch.cursor.last.tolist() == [1, 0, 5, 3] == batch.settings.keys[:, 0].tolist()
  assert batch.draft.payload.tokens[:, :3].tolist() == [[1] * 3, [0] * 3, [5] * 3, [3] * 3]
  assert not batch.verified.any() and batch.cursor.live.tolist() == [True, False, True, True]
  assert slots_for(4, SIZES).tolist() == [3, 1]


def test_sizes_that_a_mesh_does_not_divide():
  SIZES.check()
  for sizes, words in (
    (SIZES._replace(max_rows=5), "max_rows that the axis data=2 of the mesh divides, we instead got 5"),
    (SIZES._replace(max_streams=7), "max_streams that the axis data=2 of the mesh divides, we instead got 7"),
    (Sizes(8, 8, 12, (8, 9), groups=4), "rows of each group x width a multiple of 8"),
  ):
    with pytest.raises(ValueError, match=words):
      sizes.check()


class Stream:
  """As much of a stream as its place needs."""

  slot, is_waited_for = None, False


def test_a_stream_gets_a_slot_of_the_group_with_most_free_ones():
  table = StreamTable(SIZES, 9)
  placed = []
  for number in range(5):
    table.add(bytes([number]), Stream())
    placed.append(table.assign_slot(bytes([number])))
  assert placed == [0, 3, 1, 4, 2] and table.num_free == 1
  table.close(bytes([1]))  # slot 3: two of the second group are free now
  table.add(b"new", Stream())
  assert table.assign_slot(b"new") == 3 and table.num_free == 1
