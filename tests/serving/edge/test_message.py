"""Frames: encoding is inverted by decoding, and hostile bytes give a typed error."""

import functools
import os
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jaxspec.codecs.bit_costs import CODINGS
from jaxspec.serving.wire import framing
from jaxspec.serving.wire.distribution_bits import Limits, Record

LIMITS = [
  Limits(vocab, ell, coding, vocab if coding == "dense" else support, 4, sends)
  for coding in CODINGS
  for vocab, ell, support, sends in ((8, 5, 4, False), (300, 100, 40, True))
]
REASONS = {
  "length", "magic", "version", "checksum", "kind", "ell", "order", "range", "canonical", "truncated", "padding",
}  # fmt: skip


def some_records(limits, seed, number=3):
  generator = np.random.default_rng(seed)
  records = []
  for _ in range(number):
    size = int(generator.integers(1, limits.max_support + 1))
    ids = np.sort(generator.choice(limits.vocab, size, replace=False))
    counts = generator.multinomial(limits.ell, generator.dirichlet(np.ones(size)))
    if limits.coding == "half":
      counts = (counts / limits.ell).astype(np.float16).astype(np.float64) * 2**24
    token = ids[int(np.argmax(counts))]
    records.append(Record(tuple(ids.tolist()), tuple(int(c) for c in counts), int(counts.sum()), int(token)))
  return records


@pytest.mark.parametrize("limits", LIMITS, ids=str)
def test_messages_come_back_and_their_length_is_what_is_counted(limits):
  for number in range(limits.max_drafts + 1):
    records = some_records(limits, number, number)
    data, payload_bits = framing.write_drafts(7, records, limits)
    assert len(data) == framing.OVERHEAD_BYTES + -(-payload_bits // 8) <= framing.max_message_bytes(limits)
    got = framing.read_drafts(data, limits)
    assert got.round == 7 and [r.token for r in got.records] == [r.token for r in records]
    if limits.coding != "lazy":  # a lazy message has no full distribution
      assert framing.write_drafts(7, got.records, limits)[0] == data
  with pytest.raises(ValueError, match="at most 4"):
    framing.write_drafts(7, some_records(limits, 0, 5), limits)


def test_replies_and_distributions_come_back():
  limits = LIMITS[CODINGS.index("lazy") * 2]
  data = framing.write_reply(3, 2, 6, limits)
  assert framing.read_reply(data, limits, round_=3, num_drafted=2) == framing.Reply(3, 2, 6)
  reply = framing.write_reply(3, 1, None, limits, kind=framing.REQUEST)
  request = dict(round_=3, num_drafted=2, expected=framing.REQUEST)
  assert framing.read_reply(reply, limits, **request).next_token is None
  with pytest.raises(framing.MessageError, match="kind"):
    framing.read_reply(reply, limits, round_=3, num_drafted=2)  # a second request is no answer
  with pytest.raises(framing.MessageError, match="kind"):
    framing.read_reply(data, limits, **request)
  first = framing.write_reply(0, 0, 6, limits, kind=framing.FIRST)
  assert framing.read_reply(first, limits, round_=0, num_drafted=0, expected=framing.FIRST).next_token == 6
  for change in (dict(round_=4), dict(num_drafted=1), dict(expected=framing.FIRST)):
    with pytest.raises(framing.MessageError):
      framing.read_reply(data, limits, **(dict(round_=3, num_drafted=2) | change))
  with pytest.raises(framing.MessageError, match="range"):
    framing.read_reply(framing.write_reply(3, 2, 8, limits), limits, round_=3, num_drafted=2)
  assert framing.read_reply(framing.write_reply(3, 2, None, limits), limits, round_=3, num_drafted=2, bonus=False) == (
    framing.Reply(3, 2, None)
  )
  void = framing.write_reply(3, 0, None, limits, kind=framing.VOID)
  assert framing.read_reply(void, limits, round_=3, num_drafted=2, expected=framing.VOID).kind == framing.VOID
  full, rejected = framing.write_reply(3, 2, 6, limits), framing.write_reply(3, 1, None, limits)
  for invalid in (full, rejected, framing.write_reply(3, 1, None, limits, kind=framing.VOID)):
    with pytest.raises(framing.MessageError):
      expected = framing.VOID if invalid[3] == framing.VOID else framing.REPLY
      framing.read_reply(invalid, limits, round_=3, num_drafted=2, expected=expected, bonus=False)
  record = some_records(limits, 0, 1)[0]
  distribution, _ = framing.write_distribution(3, 1, record, limits)
  round_, position, got = framing.read_distribution(distribution, limits)
  assert (round_, position) == (3, 1)
  assert {t: c for t, c in zip(record.ids, record.counts) if c} == dict(zip(got.ids, got.counts))


@pytest.mark.parametrize("limits", LIMITS, ids=str)
def test_every_flipped_bit_and_every_cut_is_found(limits):
  data, _ = framing.write_drafts(7, some_records(limits, 1, 2), limits)
  for bit in range(8 * min(len(data), 60)):
    broken = bytearray(data)
    broken[bit // 8] ^= 1 << bit % 8
    with pytest.raises(framing.MessageError):
      framing.read_drafts(bytes(broken), limits)
  for end in range(0, len(data), 7):
    with pytest.raises(framing.MessageError):
      framing.read_drafts(data[:end], limits)


@functools.cache
def valid_message(limits, seed, number):
  return framing.write_drafts(7, some_records(limits, seed, number), limits)[0]


def attack(limits, seed, edits, tail, keep_checksum):
  """Reads a valid message after hostile edits; the reader returns a canonical message or raises its own error."""
  data = bytearray(valid_message(limits, seed % 7, seed % 5))
  body = data[:-4]
  for position, value in edits:
    body[position % len(body)] = value
  body = bytes(body) + tail
  data = body + (data[-4:] if keep_checksum else zlib.crc32(body).to_bytes(4))
  try:
    got = framing.read_drafts(bytes(data), limits)
  except framing.MessageError as error:
    assert error.reason in REASONS
    return 0
  # Codes are unique: accepted messages are within the limits, and encode to the same bytes.
  assert limits.coding == "lazy" or framing.write_drafts(got.round, got.records, limits)[0] == data
  return 1


edits = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=6)
hostile = given(
  limits=st.sampled_from(LIMITS),
  seed=st.integers(0, 100),
  edits=edits,
  tail=st.binary(max_size=12),
  keep_checksum=st.booleans(),
)
relaxed = dict(deadline=None, suppress_health_check=list(HealthCheck), database=None, derandomize=True)


@settings(max_examples=300, **relaxed)
@hostile
def test_edited_messages(limits, seed, edits, tail, keep_checksum):
  attack(limits, seed, edits, tail, keep_checksum)


@settings(max_examples=200, **relaxed)
@given(limits=st.sampled_from(LIMITS), number=st.integers(0, 9), kind=st.integers(0, 9), payload=st.binary(max_size=80))
def test_payloads_of_any_bytes_under_a_right_checksum(limits, number, kind, payload):
  data = framing.frame(kind, 7, limits.ell, number, payload)
  for read in (
    lambda: framing.read_drafts(data, limits),
    lambda: framing.read_distribution(data, limits),
    lambda: framing.read_reply(data, limits, round_=7, num_drafted=3),
    lambda: framing.read_reply(data, limits, round_=7, num_drafted=3, expected=framing.FIRST),
    lambda: framing.read_reply(data, limits, round_=7, num_drafted=3, expected=framing.REQUEST),
  ):
    try:
      read()
    except framing.MessageError as error:
      assert error.reason in REASONS


@pytest.mark.slow
@pytest.mark.usefixtures("each_rank_once")
def test_many_hostile_messages():
  """What `hostile` draws, by a seeded generator, which is a hundred times as fast; a third of the bytes are extreme ones."""
  generator = np.random.default_rng(0)
  number_of_messages = int(os.environ.get("JAXSPEC_HOSTILE_MESSAGES", 20_000))
  draw = lambda high, *shape: generator.integers(0, high, (number_of_messages, *shape))
  which, seeds, numbers, sizes = draw(len(LIMITS)), draw(101), np.minimum(draw(7), draw(7)), draw(13) * draw(2)
  values = np.where(draw(3, 6) > 0, draw(256, 6), np.array([0, 1, 127, 128, 254, 255])[draw(6, 6)])
  places, tails, keeps = draw(401, 6), draw(256, 12).astype(np.uint8), generator.random(number_of_messages) < 0.1
  accepted = 0
  rows = zip(which.tolist(), seeds.tolist(), numbers.tolist(), sizes.tolist(), keeps.tolist())
  for row, (limits, seed, number, size, keep) in enumerate(rows):
    edits = list(zip(places[row, :number].tolist(), values[row, :number].tolist()))
    accepted += attack(LIMITS[limits], seed, edits, tails[row, :size].tobytes(), keep)
  assert 0 < accepted < number_of_messages


@pytest.mark.parametrize("coding", CODINGS)
def test_memory_of_a_reader_is_bounded(coding):
  """For a rejected and a valid message, memory is at most a constant times the agreed size."""
  limits = Limits(50257, 100, coding, 50257 if coding == "dense" else 256, 16, True)
  size = framing.max_message_bytes(limits) - framing.OVERHEAD_BYTES
  data = framing.frame(CODINGS.index(coding), 7, limits.ell, 16, b"\xff" * size)
  tracemalloc.start()
  with pytest.raises(framing.MessageError):
    framing.read_drafts(data, limits)
  peak = tracemalloc.get_traced_memory()[1]
  tracemalloc.stop()
  assert peak < 12 * len(data) + 400_000
  with pytest.raises(framing.MessageError, match="length"):
    framing.read_drafts(data + bytes(len(data)), limits)
  valid, _ = framing.write_drafts(7, some_records(limits, 0, 16), limits)
  tracemalloc.start()
  framing.read_drafts(valid, limits)
  peak = tracemalloc.get_traced_memory()[1]
  tracemalloc.stop()
  assert peak < 100 * framing.max_message_bytes(limits) + 20_000
