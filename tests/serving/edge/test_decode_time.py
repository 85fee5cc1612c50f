"""The largest frame of each codec: its arrays, and the time to decode it."""

import pytest

from jaxspec.codecs import conformal_lattice, topk_lattice
from jaxspec.serving.wire import framing
from jaxspec.serving.wire.arrays import distributions_of_records
from jaxspec.serving.wire.bitstream import MessageError
from jaxspec.serving.wire.ciar_codec import CiarCodec
from jaxspec.serving.wire.ciar_message import read_ciar
from jaxspec.serving.wire.decode_time import decode_seconds, largest_draft
from jaxspec.serving.wire.distribution_bits import Limits, Record
from jaxspec.serving.wire.handshake import Agreement
from jaxspec.serving.wire.sqs_codec import PlainCodec, SqsCodec
from tests.serving.edge.test_codecs import cursor_of

N = 20
TOP = {coding: topk_lattice(50, 6, ell=30, coding=coding) for coding in ("paper", "rice", "trimmed", "lazy")}
CODECS = [
  *(SqsCodec(codec, 3) for codec in TOP.values()),
  SqsCodec(topk_lattice(50, 6, ell=4, coding="trimmed"), 3),  # fewer tokens are sent than may be in a support
  SqsCodec(topk_lattice(13, 13, ell=30, coding="dense"), 3),
  SqsCodec(conformal_lattice(13, 13, coding="half"), 3),
  PlainCodec(50),
  CiarCodec(50, 3),
  CiarCodec(50, 3, TOP["paper"]),
  CiarCodec(50, 3, feature_width=4),
]
own_cursor = lambda: cursor_of(0, 1, round_=0)


@pytest.mark.parametrize("codec", CODECS, ids=repr)
def test_the_largest_frame_of_every_codec(codec):
  """It is decoded, has the shapes that an engine fills, and is refused when it is damaged."""
  draft, edge = largest_draft(codec, N)
  frame, _ = codec.encode_draft(draft, edge, N)
  got = codec.decode_draft(frame, own_cursor(), Agreement(N))
  assert len(frame) <= codec.max_frame_bytes(N)
  assert got.draft.num_drafted == codec.limits.max_drafts
  width = codec.feature_width
  assert got.features is None if width == 0 else got.features.shape[1] == width
  if codec.max_sent:
    assert got.draft.proposal.ids.shape == (1, codec.limits.max_drafts, codec.max_sent)
  if codec.may_request:
    requested, _ = codec.encode_distribution(draft, 0, 0)
    found = codec.decode_distribution(requested, got.draft, 0, 0)
    assert found.ids.shape == (1, codec.distribution_codec.max_sent)
  with pytest.raises(MessageError, match="checksum"):
    codec.decode_draft(frame[:-1] + bytes([frame[-1] ^ 1]), own_cursor(), Agreement(N))
  assert 0 < decode_seconds(codec, N) < 1 and decode_seconds(codec, 1) == 0


def test_arrays_are_the_records():
  """Tokens without weight are included if they fit, else omitted."""
  record = Record((1, 2, 9), (10, 0, 20), 30, 9)
  frame, _ = framing.write_drafts(7, [record], Limits(50, 30, "paper", 6, 3, False))
  got = SqsCodec(TOP["paper"], 3).decode_draft(frame, cursor_of(4, round_=7), Agreement(N))
  assert (int(got.cursor.round), got.tokens.tolist()) == (7, [4, 9])
  found = got.draft.proposal
  assert found.ids.tolist() == [[[1, 2, 9, 0, 0, 0], [0] * 6, [0] * 6]]
  assert found.counts[0, 0].tolist() == [10, 0, 20, 0, 0, 0]
  assert found.size.tolist() == [[3, 0, 0]] and found.total.tolist() == [[30, 0, 0]]
  less = distributions_of_records([record], 1, 2)
  assert (less.ids.tolist(), less.counts.tolist(), less.size.tolist()) == ([[[1, 9]]], [[[10, 20]]], [[2]])


def test_frames_with_pending_tokens():
  codec = CiarCodec(50, 3)
  frame, _ = codec.encode_draft(*largest_draft(codec, N), N)
  got, message = codec.decode_draft(frame, own_cursor(), Agreement(N)), read_ciar(frame, codec.message_limits(N))
  assert (got.start, tuple(got.tokens)) == (message.read, (*message.pending, *message.tokens))
  assert len(message.pending) == N - 1 - 3 and message.read == 0
  with pytest.raises(MessageError, match="without a request"):
    SqsCodec(TOP["paper"], 3).decode_distribution(frame, got.draft, 0, 0)


def test_more_tokens_than_agreed_are_refused():
  """A code of the whole vocabulary could name more tokens than there is room for."""
  record = Record(tuple(range(8)), (1,) * 8, 8, 3)
  frame, _ = framing.write_drafts(0, [record], Limits(50, 8, "dense", 8, 3, False))
  assert len(framing.read_drafts(frame, Limits(50, 8, "dense", 8, 3, False)).records[0].ids) == 8
  with pytest.raises(MessageError, match="support of 8 tokens, 5 agreed"):
    framing.read_drafts(frame, Limits(50, 8, "dense", 5, 3, False))
