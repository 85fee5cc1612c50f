"""Frames as arrays: the same as records."""

import pytest

from jaxspec.codecs import conformal_lattice, topk_lattice
from jaxspec.serving.wire import frame_reader, framing
from jaxspec.serving.wire.bitstream import MessageError
from jaxspec.serving.wire.ciar_codec import CiarWire
from jaxspec.serving.wire.ciar_message import read_gated
from jaxspec.serving.wire.frame_reader import FrameReader
from jaxspec.serving.wire.records import Limits, Record
from jaxspec.serving.wire.sqs_codec import PlainWire, SqsWire

N = 20
TOP = {coding: topk_lattice(50, 6, ell=30, coding=coding) for coding in ("paper", "rice", "trimmed", "lazy")}
WIRES = [
  *(SqsWire(codec, 3) for codec in TOP.values()),
  SqsWire(topk_lattice(50, 6, ell=4, coding="trimmed"), 3),  # fewer tokens are sent than may be in a support
  SqsWire(topk_lattice(13, 13, ell=30, coding="dense"), 3),
  SqsWire(conformal_lattice(13, 13, coding="half"), 3),
  PlainWire(50),
  CiarWire(50, 3),
  CiarWire(50, 3, TOP["paper"]),
  CiarWire(50, 3, feature_width=4),
]


@pytest.mark.parametrize("wire", WIRES, ids=repr)
def test_the_largest_frame_of_every_wire(wire):
  """It is read, has the shapes that an engine fills, and is refused when it is damaged."""
  read = wire.reader(N)
  for part in range(1 + wire.may_request):
    frame = read.largest(part)
    got = read.read(frame, part)
    width = getattr(wire, "feature_width", 0)
    assert got.features is None if width == 0 else got.features.shape[1] == width
    if got.distributions is not None:
      codec = getattr(wire, "codec", None)
      room = 1 if codec is None or (wire.may_request and not part) else codec.max_sent
      assert got.distributions.ids.shape == (1 if part else wire.limits.max_drafts, room)
    with pytest.raises(MessageError, match="checksum"):
      read.read(frame[:-1] + bytes([frame[-1] ^ 1]), part)
  assert 0 < read.seconds() < 1


def test_arrays_are_the_records():
  """Tokens without weight are kept where there is room, and left out where there is not."""
  limits = Limits(50, 30, "paper", 6, 3, False)
  record = Record((1, 2, 9), (10, 0, 20), 30, 9)
  frame, _ = framing.write_drafts(7, [record], limits)
  got = FrameReader(limits).read(frame, 0)
  assert (got.round, got.tokens.tolist()) == (7, [9])
  assert got.distributions.ids.tolist() == [[1, 2, 9, 0, 0, 0], [0] * 6, [0] * 6]
  assert got.distributions.counts[0].tolist() == [10, 0, 20, 0, 0, 0]
  assert got.distributions.size.tolist() == [3, 0, 0] and got.distributions.total.tolist() == [30, 0, 0]
  less = frame_reader.arrays_of([record], 1, 2)
  assert (less.ids.tolist(), less.counts.tolist(), less.size.tolist()) == ([[1, 9]], [[10, 20]], [2])


def test_frames_with_unread_tokens():
  read = CiarWire(50, 3).reader(N)
  frame = read.largest(0)
  got, whole = read.read(frame, 0), read_gated(frame, read.gated)
  assert (got.position, tuple(got.unread), tuple(got.tokens)) == (whole.read, whole.unread, whole.drafts)
  with pytest.raises(MessageError, match="nothing requests"):
    read.read(frame, 1)


def test_more_tokens_than_agreed_are_refused():
  """A code of the whole vocabulary could name more tokens than there is room for."""
  record = Record(tuple(range(8)), (1,) * 8, 8, 3)
  frame, _ = framing.write_drafts(0, [record], Limits(50, 8, "dense", 8, 3, False))
  assert FrameReader(Limits(50, 8, "dense", 8, 3, False)).read(frame, 0).distributions.size[0] == 8
  with pytest.raises(MessageError, match="support of 8 tokens, 5 agreed"):
    FrameReader(Limits(50, 8, "dense", 5, 3, False)).read(frame, 0)
