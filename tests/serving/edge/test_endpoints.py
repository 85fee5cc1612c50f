"""The two ends against a hostile or faulty transport, and what they exchange where nothing is to be said.

Markov tables, whose programs compile quickly: coding ``lazy``, which exchanges in two parts, after a prefix of the target;
and a gated edge, whose rows are often silent. Both have end tokens.
"""

import functools
import zlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxspec
from jaxspec.codecs.bits import CODINGS
from jaxspec.codecs.sparse_distribution import SparseDistribution
from jaxspec.core.state import Origin
from jaxspec.core.types import Cursor
from jaxspec.serving.edge.link_decode import decode_over_link
from jaxspec.serving.wire.envelope import Kind, read_envelope, read_frames, write_envelope, write_frames
from jaxspec.serving.wire.framing import OVERHEAD_BYTES, MessageError, frame
from jaxspec.serving.wire.handshake import Agreement
from jaxspec.serving.wire.traffic import join_traffic
from tests.serving.edge.pairs import MAX_LEN, MAX_ROWS, assert_same, markov_case, rows_of

ROWS = 6
NAMES = ("sqs-lazy", "ciar-greedy")
OPTIONS = {"sqs-lazy": dict(target_prefix=2, end_token=4), "ciar-greedy": dict(target_prefix=0, end_token=(4, 3))}
REASONS = {
  "length", "magic", "version", "checksum", "kind", "ell", "order", "range", "canonical", "truncated", "padding", "profile",
}  # fmt: skip

case_of = functools.cache(markov_case)


def ends(name):
  case = case_of(name)
  return case.draft_endpoint(**OPTIONS[name]), case.target_endpoint()


@functools.cache
def recorded(name):
  """The messages and replies of an undisturbed decode, its result and its traffic."""
  edge, cloud = ends(name)
  keys, condition = rows_of(ROWS)
  crossed = []

  def transport(message):
    crossed.append((message, cloud.handle(message)))
    return crossed[-1][1]

  out, traffic = edge.run(condition, keys, transport)
  return crossed, out, traffic


def flipped(data, position=-1):
  position %= len(data)
  return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


def kinds_of(name):
  return [read_envelope(message, 1 << 20).kind for message, _ in recorded(name)[0]]


def frames_of(data):
  return read_frames(read_envelope(data, 1 << 20).body, ROWS)


@pytest.mark.parametrize("name", NAMES)
def test_each_fault_is_an_error_and_changes_nothing(name):
  """At every call a lost, damaged, doubled and late message, both ways: afterwards the decode goes on as if undisturbed."""
  crossed, undisturbed, traffic = recorded(name)
  edge, cloud = ends(name)
  keys, condition = rows_of(ROWS)
  message, calls, late = edge.open(condition, keys), 0, None
  while message is not None:
    is_open = cloud.is_open
    for damaged in (flipped(message), flipped(message, 9), message[:-1], message + b"\0", b"", None):
      with pytest.raises(MessageError):
        cloud.handle(damaged)
    assert cloud.is_open == is_open
    if late is not None:
      with pytest.raises(MessageError, match="order"):
        cloud.handle(late)
    assert (message, reply := cloud.handle(message)) == crossed[calls]  # the very bytes of the undisturbed decode
    if cloud.is_open:
      with pytest.raises(MessageError, match="order|kind"):
        cloud.handle(message)
      late = message
    for damaged in (flipped(reply), flipped(reply, 9), reply[:-1], reply + b"\0", b"", None):
      with pytest.raises(MessageError):
        edge.receive(damaged)
    if calls:
      with pytest.raises(MessageError, match="order|kind|range"):
        edge.receive(crossed[calls - 1][1])
    assert edge.message == message
    message, calls = edge.receive(reply), calls + 1
  assert calls == len(crossed) and not cloud.is_open
  out, again = edge.outcome()
  assert_same(out, undisturbed)
  jax.tree.map(np.testing.assert_array_equal, again, traffic)


@pytest.mark.parametrize("name", NAMES)
def test_what_crosses_is_counted(name):
  crossed, out, traffic = recorded(name)
  total = sum(len(message) + len(reply) for message, reply in crossed)
  rows = traffic.uplink_bytes.sum() + traffic.downlink_bytes.sum()
  assert traffic.opening_bytes == len(crossed[0][0]) and rows + traffic.opening_bytes + traffic.envelope_bytes == total
  sent = [frames_of(message) for message, _ in crossed[1:]]
  np.testing.assert_array_equal(traffic.uplink_bytes, [sum(len(f[r] or b"") for f in sent) for r in range(ROWS)])
  np.testing.assert_array_equal(traffic.exchanges, [sum(f[r] is not None for f in sent) for r in range(ROWS)])
  assert kinds_of(name)[0] == Kind.OPEN and kinds_of(name)[-1] == Kind.CLOSE
  assert (Kind.DISTRIBUTION in kinds_of(name)) == (name == "sqs-lazy")
  joined = join_traffic([traffic, traffic], ROWS + 2)
  np.testing.assert_array_equal(joined.exchanges, [*traffic.exchanges, *traffic.exchanges[:2]])
  assert joined.envelope_bytes == 2 * traffic.envelope_bytes
  # A second part has an answer for the rows that were asked, and for no other.
  for (_, requested), (message, reply) in zip(crossed, crossed[1:]):
    if read_envelope(message, 1 << 20).kind == Kind.DISTRIBUTION:
      requests = [data is not None and data[3] == 18 for data in frames_of(requested)]
      assert any(requests)
      for body in (message, reply):
        assert [data is not None for data in frames_of(body)] == requests


def test_a_round_in_which_no_row_asks_is_no_exchange():
  """Rows that need nothing send nothing; rounds of the cloud are fewer than those of the edge."""
  crossed, out, traffic = recorded("ciar-greedy")
  calls, first = np.asarray(out.counters.target_calls), np.asarray(out.origin)[:, 0] == Origin.FIRST
  np.testing.assert_array_equal(traffic.exchanges, calls - first)
  drafts = [frames_of(message) for message, _ in crossed[1:-1]]
  assert all(any(frames) for frames in drafts) and any(None in frames for frames in drafts)
  assert len(drafts) < int(np.max(out.counters.rounds))
  reply = OVERHEAD_BYTES + 4
  np.testing.assert_array_equal(traffic.downlink_bytes, reply * (traffic.exchanges + first))
  # An open gate asks nothing at all: opening, closing.
  case = case_of("ciar-greedy")
  params = case.params._replace(draft=case.params.draft._replace(gate=jnp.float32(jnp.inf)))
  keys, condition = rows_of(ROWS)
  kwargs = dict(wire=case.wire, max_len=MAX_LEN, **case.parts(), **OPTIONS["ciar-greedy"])
  out, traffic = decode_over_link(params, keys, condition, **kwargs)
  assert not traffic.exchanges.any() and not traffic.downlink_bytes.any() and not traffic.coded_bits.any()
  assert traffic.envelope_bytes > 0 and not np.asarray(out.counters.target_calls).any()


def test_streams_follow_each_other_and_do_not_mix():
  edge, cloud = ends("sqs-lazy")
  crossed, undisturbed, _ = recorded("sqs-lazy")
  keys, condition = rows_of(ROWS)
  opening, draft = crossed[0][0], crossed[1][0]
  number = read_envelope(draft, 1 << 20).stream
  for message in (draft, write_envelope(Kind.DRAFT, 0), write_envelope(Kind.DISTRIBUTION, 0)):
    with pytest.raises(MessageError, match="no stream|length"):
      cloud.handle(message)
  cloud.handle(opening)
  with pytest.raises(MessageError, match="a stream is open|length"):
    cloud.handle(opening)
  other = write_envelope(Kind.DRAFT, number ^ 1, read_envelope(draft, 1 << 20).body)
  with pytest.raises(MessageError, match="another stream"):
    cloud.handle(other)
  cloud.handle(write_envelope(Kind.CLOSE, number ^ 1))  # that stream is closed already
  assert cloud.is_open
  with pytest.raises(MessageError, match="a closing with a body"):
    cloud.handle(write_envelope(Kind.CLOSE, number, b"x"))
  for kind in (Kind.OPENED, Kind.REPLY, Kind.CLOSED):
    with pytest.raises(MessageError, match="no message of a draft side"):
      cloud.handle(write_envelope(kind, number))
  with pytest.raises(MessageError, match="nobody asked"):
    cloud.handle(write_envelope(Kind.DISTRIBUTION, number))
  cloud.handle(write_envelope(Kind.CLOSE, number))
  assert not cloud.is_open
  for _ in range(2):
    out, _ = edge.run(condition, keys, cloud.handle)
    assert_same(out, undisturbed)
  cloud.handle(opening)
  cloud.reset()
  assert not cloud.is_open


def test_openings_beyond_what_an_endpoint_serves_are_refused():
  case = case_of("sqs-lazy")
  opening = recorded("sqs-lazy")[0][0][0]
  for options in (dict(max_rows=ROWS - 1), dict(max_len=MAX_LEN - 1)):
    with pytest.raises(MessageError, match="allowed"):
      case.target_endpoint(**options).handle(opening)
  with pytest.raises(MessageError, match="profile"):
    case_of("sqs-paper").target_endpoint().handle(opening)


def attacked(data, generator):
  """A valid message after hostile edits inside of its frames, every checksum made right again."""
  kind, number, body = read_envelope(data, 1 << 20)
  frames = read_frames(body, ROWS)
  rows = [row for row, frame_ in enumerate(frames) if frame_ is not None]
  for _ in range(generator.integers(1, 3)):
    row = int(generator.choice(rows))
    edited = bytearray(frames[row][:-4])
    change = generator.random()
    if change < 0.7 and len(edited) > 3:
      edited[generator.integers(3, len(edited))] = int(generator.integers(256))
    elif change < 0.8 and edited:
      del edited[generator.integers(len(edited)) :]
    else:
      edited += generator.bytes(int(generator.integers(1, 5)))
    frames[row] = bytes(edited) + zlib.crc32(edited).to_bytes(4)
  if generator.random() < 0.15:
    frames[int(generator.choice(rows))] = None
  if generator.random() < 0.15:
    frames[int(generator.integers(ROWS))] = frames[rows[0]]
  return write_envelope(kind, number, write_frames(frames))


def spoken(wire, agreement, generator=None, *, number=1, last=1, live=None, round_=2, length=4, read=3):
  """Frames of a draft side whose rows all stand at ``length``, with ``number`` drafts each; some, with a generator."""
  rows = agreement.num_rows
  of_rows = lambda value: np.broadcast_to(np.asarray(value), (rows,))
  live = np.ones(rows, bool) if live is None else np.asarray(live)
  if generator is not None:
    number = generator.integers(0, 4, rows)
  tokens = np.zeros((rows, 3), np.int32)
  counts = np.zeros((rows, 3, 3), np.int32) + (np.array([4, 2, 2]) << 21 if "half" in wire.profile else np.array([3, 2, 2]))
  proposal = SparseDistribution(np.zeros_like(counts) + np.arange(3), counts, 0 * tokens + 3, counts.sum(-1))
  payload = jaxspec.PendingTokens(np.full((rows, agreement.max_len), last, np.int32), of_rows(read))
  draft = jaxspec.Draft(tokens, proposal, of_rows(number), needs_verify=live, payload=payload)
  return wire.encode_draft(draft, Cursor(of_rows(last), of_rows(length), live, np.int32(round_), np.int32(4)), agreement)[0]


@pytest.mark.parametrize("name", (*NAMES, "sqs-paper", "sqs-half", "ciar-exact"))
def test_hostile_frames_with_right_checksums(name):
  """What a draft side says is refused, or is a draft within the bounds of the stream, which no verifier trips over."""
  wire, generator = case_of(name).wire, np.random.default_rng(0)
  agreement = Agreement(ROWS, 8, (4,), 0)
  rows = np.ones(ROWS, np.int32)
  own = Cursor(rows, 4 * rows, rows > 0, np.int32(2), np.int32(4))
  accepted, refused = 0, set()
  for _ in range(600):
    message = write_envelope(Kind.DRAFT, 7, write_frames(spoken(wire, agreement, generator)))
    wire.decode_draft(frames_of(message), own, agreement)  # unedited it is valid
    frames = frames_of(attacked(message, generator))
    try:
      draft, cursor = wire.decode_draft(frames, own, agreement)
    except MessageError as error:
      assert error.reason in REASONS, error
      refused.add(error.reason)
      continue
    accepted += 1
    requested = np.array([data is not None for data in frames])
    assert (draft.num_drafted >= 0).all() and (cursor.length + draft.num_drafted < 8).all()
    assert (draft.tokens >= 0).all() and (draft.tokens < 5).all() and 0 <= cursor.round < 8
    assert (cursor.length >= own.length).all() and (cursor.length[~requested] == own.length[~requested]).all()
  assert accepted > 0 and {"range", "order"} <= refused


@pytest.mark.parametrize("name", NAMES)
def test_a_draft_side_cannot_leave_its_role(name):
  """Frames that are valid by themselves, but not now: more drafts than room, rows that ended, other tokens, other rounds."""
  wire, rows = case_of(name).wire, np.arange(2)
  agreement = Agreement(2, 6, (4,), 3)  # rounds 0 and 1 are the target's alone
  own = Cursor(1 + rows, 4 + 0 * rows, rows == 0, np.int32(2), np.int32(4))
  speak = lambda **said: spoken(wire, agreement, **(dict(live=rows == 0) | said))
  read = lambda frames, cursor=own: wire.decode_draft(frames, cursor, agreement)
  draft, cursor = read(speak())
  assert draft.num_drafted.tolist() == [1, 0] and cursor.length.tolist() == [4, 4] and cursor.last.tolist() == [1, 2]
  refusals = [
    ("room for 1", lambda: read(speak(number=2))),
    ("has a frame|has ended", lambda: read(speak(live=rows >= 0))),
    ("round", lambda: read(speak(round_=1))),
    ("round", lambda: read(speak(round_=6))),
    ("has none|one exchange", lambda: read([None, None])),
    ("alone", lambda: read(speak(round_=1), own._replace(round=np.int32(1)))),
  ]
  if name == "ciar-greedy":
    refusals += [
      ("own token", lambda: read(speak(last=2))),
      ("positions are known", lambda: read(speak(read=2))),
      ("end token", lambda: read(speak(last=4), own._replace(last=4 + rows))),
      (
        "in one exchange",
        lambda: read([speak()[0], speak(round_=3, live=rows == 1)[1]], own._replace(last=1 + 0 * rows, live=rows >= 0)),
      ),
    ]
  for match, call in refusals:
    with pytest.raises(MessageError, match=match):
      call()


def test_a_distribution_must_be_that_of_the_draft():
  """Coding lazy: the count that a draft announced is the count of the distribution that comes later."""
  crossed = recorded("sqs-lazy")[0]
  at = kinds_of("sqs-lazy").index(Kind.DISTRIBUTION)
  edge, cloud = ends("sqs-lazy")
  for message, _ in crossed[:at]:
    cloud.handle(message)
  kind, number, body = read_envelope(crossed[at][0], 1 << 20)
  frames = read_frames(body, ROWS)
  row = next(row for row, data in enumerate(frames) if data is not None)
  generator, refused = np.random.default_rng(1), []
  for _ in range(200):
    payload = bytearray(frames[row][12:-4])
    payload[generator.integers(len(payload))] ^= 1 << int(generator.integers(8))
    header = frames[row][:12]
    edited = frame(
      header[3], int.from_bytes(header[4:8]), int.from_bytes(header[8:10]), int.from_bytes(header[10:]), payload
    )
    hostile = write_envelope(kind, number, write_frames([*frames[:row], edited, *frames[row + 1 :]]))
    try:
      case_of("sqs-lazy").wire.decode_distribution(frames_of(hostile), *_judged(cloud), int.from_bytes(header[4:8]))
    except MessageError as error:
      refused.append(str(error))
  assert any("its draft said" in text for text in refused)
  assert cloud.handle(crossed[at][0]) == crossed[at][1]


def _judged(cloud):
  draft, tested = cloud._stream.judged
  return draft, tested.verdict, tested.asks


def test_a_verdict_must_be_that_of_its_request():
  """Coding lazy: the second reply is about the rows that were asked, and accepts what the request said."""
  crossed = recorded("sqs-lazy")[0]
  at = kinds_of("sqs-lazy").index(Kind.DISTRIBUTION)
  (edge, _), wire = ends("sqs-lazy"), case_of("sqs-lazy").wire
  keys, condition = rows_of(ROWS)
  edge.open(condition, keys)
  for _, reply in crossed[:at]:
    message = edge.receive(reply)
  kind, number, body = read_envelope(crossed[at][1], 1 << 20)
  frames = read_frames(body, ROWS)
  rows = np.array([data is not None for data in frames])
  accepted = np.array([0 if data is None else int.from_bytes(data[10:12]) for data in frames])
  round_ = int.from_bytes(frames[int(np.argmax(rows))][4:8])
  write = lambda accepted, requests: wire.encode_reply(jaxspec.Verdict(accepted, rows * 0), rows, requests, round_)
  for hostile in (
    write(accepted + 1, rows & False),
    write(accepted, rows),
    [None] * ROWS,
    [frames[int(np.argmax(rows))]] * ROWS,
  ):
    with pytest.raises(MessageError):
      edge.receive(write_envelope(kind, number, write_frames(hostile)))
  assert edge.message == message == crossed[at][0]
  assert edge.receive(crossed[at][1]) == crossed[at + 1][0]


def test_parts_that_do_not_go_together():
  sqs, ciar = case_of("sqs-lazy"), case_of("ciar-greedy")
  with pytest.raises(ValueError, match="in every round"):
    ciar._replace(wire=sqs.wire).draft_endpoint()
  with pytest.raises(ValueError, match="accept tokens locally"):
    sqs._replace(wire=ciar.wire).draft_endpoint()
  keys, condition = rows_of(2)
  kwargs, one, two = dict(drafter=sqs.drafter, max_len=4), dict(verifier=sqs.verifier), dict(transport=lambda data: data)
  wire, codec = dict(wire=sqs.wire), dict(codec=sqs.wire.codec)
  for more, words in (
    (wire, "one of verifier, transport and cloud, we instead got none"),
    (wire | one | two, "we instead got verifier and transport"),
    (one, "a wire or a codec, we instead got none"),
    (one | wire | codec, "we instead got both"),
    (one | codec | dict(temperature=0.5), "a cloud with temperature, we instead got a verifier"),
  ):
    with pytest.raises(ValueError, match=words):
      decode_over_link(sqs.params, keys, condition, **kwargs, **more)
  edge = sqs.draft_endpoint()
  for call in (edge.outcome, lambda: edge.receive(b"")):
    with pytest.raises(ValueError, match="we instead got no"):
      call()
  with pytest.raises(ValueError, match="whole distributions"):
    type(ciar.wire)(5, 3, jaxspec.topk_lattice(5, 3, coding="lazy"))
  with pytest.raises(ValueError, match="codec of 5 tokens"):
    type(ciar.wire)(5, 3, jaxspec.topk_lattice(6, 3))


def test_drafts_that_no_frame_holds():
  """Proposals, trees and features of another kind than the wire's."""
  sqs, ciar = case_of("sqs-paper").wire, case_of("ciar-exact").wire
  agreement = Agreement(1, 6)
  cursor = Cursor(np.array([1]), np.array([2]), np.array([True]), np.int32(0))
  payload = jaxspec.PendingTokens(np.ones((1, 6), np.int32), np.array([1]), np.zeros((1, 6, 2), np.float32))
  draft = jaxspec.Draft(np.zeros((1, 3), np.int32), np.zeros((1, 3, 5)), np.array([1]), payload=payload)
  for wire in (sqs, ciar):
    with pytest.raises(ValueError, match="sparse integer distributions"):
      wire.encode_draft(draft, cursor, agreement)
  with pytest.raises(ValueError, match="got a tree"):
    sqs.encode_draft(draft._replace(parents=draft.tokens), cursor, agreement)
  with pytest.raises(ValueError, match="0 features a token for this wire, we instead got 2"):
    case_of("ciar-greedy").wire.encode_draft(draft, cursor, agreement)


def test_profiles_tell_wires_apart():
  profiles = [case_of(name).wire.profile for name in (*(f"sqs-{c}" for c in CODINGS), "ciar-greedy", "ciar-exact")]
  assert len(set(profiles)) == len(profiles) and all(len(profile) < 200 for profile in profiles)
  assert case_of("sqs-lazy").wire == markov_case("sqs-lazy").wire
  assert MAX_ROWS < 1 << 16
