"""Frames of an edge as arrays of fixed shape, as far as they can be read without their stream.

A `Wire` compares the round, the position and the room that is left with those of the stream.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxspec.codecs.bits import HALF_UNIT
from jaxspec.codecs.sparse_distribution import SparseDistribution
from jaxspec.serving.wire.bitstream import require
from jaxspec.serving.wire.ciar_message import GatedWire, read_gated, write_gated
from jaxspec.serving.wire.framing import Frame, read_distribution, read_drafts, write_distribution, write_drafts
from jaxspec.serving.wire.records import Limits, Record


class Reading(NamedTuple):
  """What a frame says."""

  round: int
  position: int  # of the first unread token, or of a distribution that was requested; 0 where frames have none
  tokens: np.ndarray  # [drafts] int32
  unread: np.ndarray  # [n] int32; none where frames have none
  distributions: SparseDistribution | None  # leaves [K, ...], the drafts first; None where none are sent
  features: np.ndarray | None = None  # [n + drafts, D] float16


@dataclasses.dataclass(frozen=True)
class FrameReader:
  """Reads the frames of one way of decoding.

  Attributes:
    limits: what records must keep to.
    gated: the agreement of frames that bring unread tokens, for the longest rows that are served; None for others.
  """

  limits: Limits
  gated: GatedWire | None = None

  def read(self, frame: bytes | Frame, part: int) -> Reading:
    """The frame of a round (part 0), or the distribution that its reply requested (part 1).

    Raises:
      MessageError: if it is anything but a valid one.
    """
    return self._distribution(frame) if part else self._drafts(frame)

  def _drafts(self, frame: bytes | Frame) -> Reading:
    window = self.limits.max_drafts
    if self.gated is None:
      drafts = read_drafts(frame, self.limits)
      arrays = arrays_of(drafts.records, window, self.room(0))
      return Reading(drafts.round, 0, _tokens([each.token for each in drafts.records]), _tokens(()), arrays)
    got = read_gated(frame, self.gated)
    unread = _tokens(got.unread)
    if not self.gated.sends_distributions:
      return Reading(got.round, got.read, _tokens(got.drafts), unread, None, got.features)
    arrays = arrays_of(got.drafts, window, self.room(0))
    return Reading(got.round, got.read, _tokens([each.token for each in got.drafts]), unread, arrays, got.features)

  def _distribution(self, frame: bytes | Frame) -> Reading:
    require(self.limits.coding == "lazy", "kind", "a distribution that nothing requests")
    round_, position, record = read_distribution(frame, self.limits)
    return Reading(round_, position, _tokens(()), _tokens(()), arrays_of((record,), 1, self.room(1)))

  def room(self, part: int) -> int:
    """Most tokens S of a distribution; codings that send no counts of 0 need no room for them."""
    if self.limits.coding == "lazy" and part == 0:
      return 1
    sends_zeros = self.limits.coding in ("paper", "rice", "half")
    return self.limits.max_support if sends_zeros else min(self.limits.max_support, self.limits.ell)

  def largest(self, part: int) -> bytes:
    """A valid frame that takes as long to read as any."""
    generator, limits = np.random.default_rng(0), self.limits
    records = [_record(generator, limits) for _ in range(limits.max_drafts)]
    if part:
      return write_distribution(0, 0, records[0], limits)[0]
    if self.gated is None:
      return write_drafts(0, records, limits)[0]
    drafts = records if self.gated.sends_distributions else [limits.vocab - 1] * limits.max_drafts
    unread = [0] * (self.gated.max_len - len(drafts))
    features = np.ones((self.gated.max_len, self.gated.feature_width), np.float16)
    return write_gated(0, 0, unread, drafts, self.gated, features)[0]

  def seconds(self) -> float:
    """How long the largest frame takes on this machine: the shortest of a few times, so that other work is left out."""
    return max(self._seconds(part) for part in range(1 + (self.limits.coding == "lazy")))

  def _seconds(self, part: int) -> float:
    frame, times = self.largest(part), []
    for _ in range(4):
      began = time.perf_counter()
      self.read(frame, part)
      times.append(time.perf_counter() - began)
    return min(times)


def arrays_of(records: Sequence[Record], places: int, room: int) -> SparseDistribution:
  """Records in arrays of ``places`` positions with ``room`` tokens each.

  Where a record has more tokens, those without weight are left out (the reader has checked that the others fit).
  """
  entries = lambda *shape: np.zeros(shape, np.int32)
  found = SparseDistribution(entries(places, room), entries(places, room), entries(places), entries(places))
  for place, record in enumerate(records):
    ids, counts = np.asarray(record.ids, np.int32), np.asarray(record.counts, np.int32)
    if len(ids) > room:
      ids, counts = ids[counts > 0], counts[counts > 0]
    found.ids[place, : len(ids)], found.counts[place, : len(ids)] = ids, counts
    found.size[place], found.total[place] = len(ids), record.total
  return found


def _tokens(values: Sequence[int]) -> np.ndarray:
  return np.asarray(values, np.int32)


def _record(generator: np.random.Generator, limits: Limits) -> Record:
  """A distribution of as many tokens as there may be, with a token of positive count."""
  size = min(limits.max_support, limits.vocab)
  if limits.coding in ("trimmed", "dense", "lazy"):  # these send tokens of positive count only
    size = min(size, limits.ell)
  ids = np.sort(generator.choice(limits.vocab, size, replace=False)).tolist()
  if limits.coding == "half":
    unit = HALF_UNIT >> 16
    return Record(tuple(ids), (unit,) * size, unit * size, ids[0])
  counts = [int(place < limits.ell) for place in range(size)]
  counts[0] += limits.ell - sum(counts)
  return Record(tuple(ids), tuple(counts), limits.ell, ids[0])
