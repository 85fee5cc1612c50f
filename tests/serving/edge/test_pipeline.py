"""Drafts that are sent ahead: the tokens of an edge that waits, whatever happens to a call."""

import functools
import random

import jax
import numpy as np
import pytest

pytest.importorskip("google.protobuf", reason="needs the serve extra: pip install 'jaxspec-decoding[serve]'")

import jaxspec
from jaxspec.core.state import Origin
from jaxspec.serving.edge.edge_stream import Edge
from jaxspec.serving.edge.journal import Journal
from jaxspec.serving.edge.observer import Observer
from jaxspec.serving.edge.remote_decode import decode_over_cloud
from jaxspec.serving.server.in_process import LocalCloud
from jaxspec.serving.server.stream_state import Stream
from jaxspec.serving.wire.bitstream import MessageError
from jaxspec.serving.wire.cloud import CloudError
from jaxspec.serving.wire.framing import REPLY, VOID
from tests.helpers import slow_but
from tests.serving.edge.faulty import KILLS, Fault, FaultyCloud, Killed
from tests.serving.edge.pairs import MAX_LEN, assert_same, case_named, rows_of
from tests.serving.server.crowds import one_row, serve

NAMES = ("markov:sqs-trimmed, no bonus", "markov:sqs-lazy, no bonus", "markov:sqs-block, no bonus")
ROWS = 6
STREAM = b"a row of 16 byte"


@functools.cache
def served():
  return serve(*NAMES)


@functools.cache
def fused(name=NAMES[0], **options):
  case = served().cases[NAMES.index(name)]
  return jaxspec.speculate(case.params, *rows_of(ROWS), **case.parts(), **(dict(max_len=MAX_LEN) | options))


def new_engine():
  """The engine without its streams."""
  engine = served().engine
  for name in list(engine._streams.by_name):
    engine.close(name)
  return engine


class Replies(Observer):
  """All replies, in order."""

  def __init__(self):
    super().__init__()
    self.frames = []

  def answered(self, seq, part, frame, reply, resume):
    self.frames.append((seq, reply))

  def count(self, kind):
    return sum(reply[3] == kind for _, reply in self.frames)


def run(cloud, row=0, *, pipeline=2, name=NAMES[0], journal=None, **options):
  """One row over a cloud; the result and the replies."""
  replies = Replies()
  edge = served().edge(NAMES.index(name), pipeline=pipeline, **options)
  settings = dict(settings=cloud.retry_settings, journal=journal, observer=replies)
  out, _ = edge.run(*reversed(one_row(row)), cloud, stream=STREAM, **settings)
  return out, replies


def same_as_waiting(out, row, name=NAMES[0], **options):
  assert_same(out, jax.tree.map(lambda leaf: leaf[row : row + 1], fused(name, **options)))


def wire(schedule=None, **options):
  return FaultyCloud(schedule, make_engine=new_engine, **options)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES[:2])
def test_rounds_without_a_bonus_token_over_a_cloud(name):
  """Tokens, origins, counters and reports of the fused loop, with a prefix and end tokens. The test below has the third
  coding, and rows without these."""
  options = dict(target_prefix=3, end_token=2)
  edge = served().edge(NAMES.index(name), **options)
  out, _ = decode_over_cloud(edge, *rows_of(ROWS), LocalCloud(served().engine))
  assert_same(out, fused(name, **options))
  assert {Origin.DRAFT, Origin.REPLACED} <= set(np.unique(out.origin))


@pytest.mark.slow
@pytest.mark.parametrize("name", [NAMES[0], NAMES[2]])
@pytest.mark.parametrize("pipeline", [2, 4])
def test_drafts_are_sent_ahead(name, pipeline):
  """Some drafts are void, and others are verified. A cloud that cannot take calls ahead gets the same calls."""
  for options in ({}, dict(target_prefix=3, end_token=4)):
    found = []
    for row in range(ROWS):
      out, replies = run(wire(runs_ahead=row % 2 == 0), row, pipeline=pipeline, name=name, **options)
      same_as_waiting(out, row, name, **options)
      found.append(replies)
    number = {kind: sum(each.count(kind) for each in found) for kind in (VOID, REPLY)}
    assert options or 3 < number[VOID] < number[REPLY]
    edge = served().edge(NAMES.index(name), pipeline=pipeline, **options)
    out, traffic = decode_over_cloud(edge, *rows_of(ROWS), LocalCloud(served().engine))
    assert_same(out, fused(name, **options))
    assert all(number >= len(each.frames) for number, each in zip(traffic.exchanges, found))


@functools.cache
def undisturbed(pipeline):
  """The row of fewest calls that has a void draft, and its replies: tests disturb it at every call."""
  found = {}
  for row in range(ROWS):
    cloud = wire()
    out, replies = run(cloud, row, pipeline=pipeline)
    same_as_waiting(out, row)
    assert cloud.attempts == len(replies.frames) + 2
    if replies.count(VOID):
      found[row] = replies.frames
  return min(found.items(), key=lambda item: len(item[1]))


# Drafts that may wait, and whether the server runs calls that were sent ahead at once, or each when its reply is awaited.
SETTINGS = slow_but([(2, False), (4, True)], [(4, True)])


@pytest.mark.parametrize("fault", slow_but(Fault, [Fault.DROP_REPLY, Fault.KILL_AFTER]))
@pytest.mark.parametrize("pipeline, runs_ahead", SETTINGS)
def test_a_fault_at_any_call(fault, pipeline, runs_ahead):
  """The replies are those of an undisturbed run. Only a stream that a killed server has lost is resumed."""
  row, frames = undisturbed(pipeline)
  for place in range(len(frames) + 2):
    out, replies = run(wire({place: fault}, runs_ahead=runs_ahead), row, pipeline=pipeline)
    same_as_waiting(out, row)
    is_lost = fault in KILLS and 0 < place <= len(frames)
    assert replies.frames == frames and replies.resumes == is_lost, place


def test_random_schedules():
  """Up to four faults of any kind, also in the attempts that mend earlier ones."""
  generator = random.Random(7)
  for index in range(20):
    places = generator.sample(range(14), generator.randint(2, 4))
    schedule = {place: generator.choice(list(Fault)) for place in places}
    row, pipeline = index % ROWS, generator.choice([2, 3, 4])
    out, replies = run(wire(schedule, runs_ahead=index % 3 > 0), row, pipeline=pipeline)
    same_as_waiting(out, row)


@pytest.mark.parametrize("after", slow_but([False, True], [True]))
def test_an_edge_that_is_killed_goes_on_from_its_journal(tmp_path, after):
  """At any call; answered calls are not repeated."""
  row, frames = undisturbed(4)
  for place in range(len(frames) + 1):
    cloud, path = wire(edge_dies=(place, after)), tmp_path / f"{place}.jrn"
    with Journal(path) as journal, pytest.raises(Killed):
      run(cloud, row, pipeline=4, journal=journal)
    with Journal(path) as journal:
      out, replies = run(cloud, row, pipeline=4, journal=journal)
      written = [record[28:] for record in journal.records[2:]]
    same_as_waiting(out, row)
    assert written == [reply for _, reply in frames] and replies.resumes == 0


def test_a_cloud_that_tests_void_drafts_is_refused(monkeypatch):
  """Their tokens would continue a prefix that the row does not have. Equal rounds are not enough, nor is no test at all."""
  by_round = lambda self, frame: self.profile.codec.assumption(frame)[0] != int(self.cursor.round)
  for wrong in (by_round, lambda self, frame: False):
    monkeypatch.setattr(Stream, "is_void", wrong)
    with pytest.raises((MessageError, CloudError)):
      run(wire())


def test_a_reply_must_fit_its_draft():
  """A valid draft is not void, a void one has no other reply, and full acceptance brings no token."""
  case, cloud = served().cases[0], LocalCloud(served().engine)
  start = served().start(served().edge(0, pipeline=2), 0)
  stream = start.receive(cloud.open(start.handshake).frame)
  while True:
    while stream.next_request() is not None:
      pass
    request, round_ = stream.request, stream._rounds[0].call.round
    is_void, number = stream._rounds[0].is_void, int(stream._rounds[0].draft.num_drafted[0])
    for hostile in (
      case.codec.encode_reply(round_, 0, *((1,) if is_void else (None, VOID))),
      case.codec.encode_reply(round_, number, 1) if number else b"",
      case.codec.encode_reply(round_ + 1, 0, 1),
    ):
      with pytest.raises(MessageError):
        stream.receive(hostile)
    assert stream.request == request
    if is_void:
      break
    stream.receive(cloud.verify(start.handshake.stream, *request))
  cloud.close(start.handshake.stream)


def test_what_is_refused():
  case, bonus = served().cases[0], case_named("markov:sqs-trimmed")
  for pipeline in (0, 9):
    with pytest.raises(ValueError, match="1 to 8 drafts"):
      case.edge(pipeline=pipeline)
  for other, words in ((served().cases[1], "coding 'lazy'"), (bonus, "a bonus token")):
    with pytest.raises(ValueError, match=words):
      other.edge(pipeline=2)
  edge = Edge(bonus.params.draft, bonus.drafter, bonus.codec, MAX_LEN)
  with pytest.raises(ValueError, match="we instead got .*rule=exact"):
    decode_over_cloud(edge, *rows_of(1), LocalCloud(served().engine))
