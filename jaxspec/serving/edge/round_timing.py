"""Measured times of a round at an edge. They are whole microseconds, so that a journal returns the same numbers."""

from __future__ import annotations

import struct
from typing import NamedTuple

_MOST_US = 2**32 - 1
_FORMAT = struct.Struct(">III")


class Timing(NamedTuple):
  """Times of a round in whole microseconds, which a journal keeps.

  Attributes:
    draft_us: drafting and encoding.
    exchange_us: from sending to the reply, of the attempt that had one.
    spacing_us: from the reply before to this one.
  """

  draft_us: int
  exchange_us: int
  spacing_us: int

  def pack(self) -> bytes:
    """`TIMING_BYTES` bytes."""
    return _FORMAT.pack(*self)

  @classmethod
  def unpack(cls, data: bytes) -> Timing:
    """The reverse."""
    return cls(*_FORMAT.unpack(data))


TIMING_BYTES = _FORMAT.size


class TimedRound(NamedTuple):
  """A verified round with its number of drafts."""

  drafted: int
  timing: Timing


def microseconds(seconds: float) -> int:
  """Whole microseconds from 0 to what a `Timing` can hold."""
  return min(max(round(1e6 * seconds), 0), _MOST_US)
