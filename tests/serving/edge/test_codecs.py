"""Codecs of rounds against a hostile edge: a frame is rejected, or is a draft within the bounds of the stream."""

import functools
import zlib

import numpy as np
import pytest

import jaxspec
from jaxspec.codecs import topk_lattice
from jaxspec.codecs.bit_costs import CODINGS
from jaxspec.codecs.sparse_distribution import SparseDistribution
from jaxspec.core.loop import end_tuple
from jaxspec.core.types import Cursor
from jaxspec.drafters.ciar_drafter import PendingTokens
from jaxspec.serving.wire.framing import MessageError, frame, unframe
from jaxspec.serving.wire.handshake import Agreement
from tests.helpers import slow_but
from tests.serving.edge.pairs import markov_case

NAMES = ("sqs-lazy", "ciar-greedy")
REASONS = {
  "length", "magic", "version", "checksum", "kind", "ell", "order", "range", "canonical", "truncated", "padding",
}  # fmt: skip

case_of = functools.cache(markov_case)


def cursor_of(last=1, length=4, *, live=True, round_=2):
  return Cursor(np.full(1, last, np.int32), np.full(1, length, np.int32), np.full(1, live), np.int32(round_), np.int32(4))


def draft_of(codec, *, number=1, last=1, read=3, max_len=8):
  """A draft of the first ``number`` of three positions, of an edge that has the token ``last`` everywhere."""
  tokens = np.zeros((1, 3), np.int32)
  counts = np.broadcast_to(np.array([4, 2, 2]) << 21 if codec.limits.coding == "half" else np.array([3, 2, 2]), (1, 3, 3))
  proposal = SparseDistribution(np.zeros_like(counts) + np.arange(3), counts, 0 * tokens + 3, counts.sum(-1))
  payload = PendingTokens(np.full((1, max_len), last, np.int32), np.full(1, read))
  return jaxspec.Draft.chain(tokens, proposal, number, 0, payload=payload)


def spoken(codec, *, number=1, last=1, length=4, read=3, round_=2, max_len=8):
  """The frame of an edge at ``length``, with ``number`` drafts."""
  draft = draft_of(codec, number=number, last=last, read=read, max_len=max_len)
  return codec.encode_draft(draft, cursor_of(last, length, round_=round_), max_len)[0]


def attacked(data, generator):
  """A valid frame after hostile edits, its checksum made valid again."""
  for _ in range(generator.integers(1, 3)):
    edited = bytearray(data[:-4])
    change = generator.random()
    if change < 0.7 and len(edited) > 3:
      edited[generator.integers(3, len(edited))] = int(generator.integers(256))
    elif change < 0.8 and edited:
      del edited[generator.integers(len(edited)) :]
    else:
      edited += generator.bytes(int(generator.integers(1, 5)))
    data = bytes(edited) + zlib.crc32(edited).to_bytes(4)
  return data


@pytest.mark.parametrize("name", slow_but([*NAMES, "sqs-paper", "sqs-half", "ciar-exact"], NAMES))
def test_hostile_frames_with_valid_checksums(name):
  codec, generator = case_of(name).codec, np.random.default_rng(0)
  agreement, own = Agreement(8, (4,)), cursor_of()
  accepted, refused = 0, set()
  for _ in range(2000):
    data = spoken(codec, number=int(generator.integers(0, 4)))
    codec.decode_draft(data, own, agreement)  # unedited it is valid
    try:
      got = codec.decode_draft(attacked(data, generator), own, agreement)
    except MessageError as error:
      assert error.reason in REASONS, error
      refused.add(error.reason)
      continue
    accepted += 1
    number, length = int(got.draft.num_drafted[0]), int(got.cursor.length[0])
    assert 0 <= number and length + number < 8 and 0 <= got.cursor.round < 8 and length >= 4
    assert (
      (got.tokens >= 0).all()
      and (got.tokens < 5).all()
      and got.draft.tokens[0, :number].tolist() == [*got.tokens[len(got.tokens) - number :]]
    )
    assert got.start + len(got.tokens) == length + number
  assert accepted > 0 and {"range", "order"} <= refused


@pytest.mark.parametrize("name", NAMES)
def test_an_edge_cannot_leave_its_role(name):
  """Frames that are valid by themselves, but not now: more drafts than room, a row that ended, other tokens or rounds."""
  codec, agreement = case_of(name).codec, Agreement(6, (4,))
  speak = functools.partial(spoken, codec, max_len=6)
  read = lambda data, cursor=cursor_of(): codec.decode_draft(data, cursor, agreement)
  got = read(speak())
  assert (got.draft.num_drafted, got.cursor.length, got.cursor.last) == (1, 4, 1)
  assert (got.start, got.tokens.tolist(), got.features) == (3, [1, 0], None)
  refusals = [
    ("room for 1", lambda: read(speak(number=2))),
    ("has ended", lambda: read(speak(), cursor_of(live=False))),
    ("round", lambda: read(speak(round_=1))),
    ("round", lambda: read(speak(round_=6))),
    ("length", lambda: read(b"")),
  ]
  if name == "ciar-greedy":
    refusals += [
      ("own token", lambda: read(speak(last=2))),
      ("positions are known", lambda: read(speak(read=2))),
      ("end token", lambda: read(speak(last=4), cursor_of(last=4))),
    ]
    # Until it has called, the edge may have a token 0 of its own.
    assert codec.decode_draft(speak(last=2, length=1, read=0, round_=0), cursor_of(1, 1, round_=0), agreement).tokens[0] == 2
  for match, call in refusals:
    with pytest.raises(MessageError, match=match):
      call()


def test_a_distribution_must_be_that_of_the_draft():
  """Coding lazy: the count that a draft announced is the count of the distribution that comes later."""
  codec = case_of("sqs-lazy").codec
  draft = codec.decode_draft(spoken(codec), cursor_of(), Agreement(8)).draft
  data, bits = codec.encode_distribution(draft_of(codec), 0, 2)
  assert len(data) == 16 + -(-bits // 8)
  assert codec.decode_distribution(data, draft, 0, 2).counts.tolist() == [[3, 2, 2]]
  for at in (dict(position=1, round_=2), dict(position=0, round_=3)):
    with pytest.raises(MessageError, match="distribution of round 2, position 0"):
      codec.decode_distribution(data, draft, **at)
  generator, refused = np.random.default_rng(1), []
  checked = unframe(data, len(data))
  for _ in range(200):
    payload = bytearray(checked.payload)
    payload[generator.integers(len(payload))] ^= 1 << int(generator.integers(8))
    try:
      codec.decode_distribution(frame(*checked[:4], payload), draft, 0, 2)
    except MessageError as error:
      refused.append(str(error))
  assert any("its draft said" in text for text in refused)


def test_a_frame_is_checked_once():
  """A checked frame is used unchanged; its length must fit every reader."""
  codec = case_of("sqs-paper").codec
  checked = unframe(spoken(codec), 1 << 10)
  assert unframe(checked, 1 << 10) is checked
  again = codec.decode_draft(checked._replace(data=checked.data[:-1] + b"\0"), cursor_of(), Agreement(8))
  assert again.draft.num_drafted == 1
  with pytest.raises(MessageError, match="length"):
    unframe(checked, len(checked.data) - 1)


def test_drafts_that_no_frame_holds():
  """Proposals, trees and features of another kind than the codec's."""
  sqs, ciar = case_of("sqs-paper").codec, case_of("ciar-exact").codec
  cursor = cursor_of(1, 2, round_=0)
  payload = PendingTokens(np.ones((1, 6), np.int32), np.array([1]), np.zeros((1, 6, 2), np.float32))
  draft = jaxspec.Draft.chain(np.zeros((1, 3), np.int32), np.zeros((1, 3, 5)), 1, 0, payload=payload)
  for codec in (sqs, ciar):
    with pytest.raises(ValueError, match="sparse integer distributions"):
      codec.encode_draft(draft, cursor, 6)
  with pytest.raises(ValueError, match="got a tree"):
    sqs.encode_draft(draft._replace(parents=draft.tokens), cursor, 6)
  with pytest.raises(ValueError, match="0 features a token for this codec, we instead got 2"):
    case_of("ciar-greedy").codec.encode_draft(draft, cursor, 6)
  for call in (lambda: ciar.encode_distribution(draft, 0, 0), lambda: ciar.decode_distribution(b"", draft, 0, 0)):
    with pytest.raises(ValueError, match="coding 'lazy'"):
      call()


def test_codecs_are_values():
  codecs = [case_of(name).codec for name in (*(f"sqs-{coding}" for coding in CODINGS), "ciar-greedy", "ciar-exact")]
  assert len(set(codecs)) == len(codecs) and case_of("sqs-lazy").codec == markov_case("sqs-lazy").codec
  ciar = type(codecs[-1])
  with pytest.raises(ValueError, match="whole distributions"):
    ciar(5, 3, topk_lattice(5, 3, coding="lazy"))
  with pytest.raises(ValueError, match="codec of 5 tokens"):
    ciar(5, 3, topk_lattice(6, 3))


def test_settings_of_a_stream_are_checked():
  for bad in (dict(max_len=0), dict(end_tokens=(1,) * 9)):
    with pytest.raises(ValueError, match="we instead got"):
      Agreement(**(dict(max_len=4) | bad))
  assert end_tuple(None) == end_tuple(-1) == end_tuple(()) == ()
  assert end_tuple(3) == (3,) and end_tuple((3, 4)) == (3, 4)
