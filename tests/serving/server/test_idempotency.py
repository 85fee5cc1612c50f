"""The table of calls: each line of it, and random histories against a model that remembers everything."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from jaxspec.serving.server.idempotency import OPEN, CallTable, Decision, Position
from jaxspec.serving.wire.cloud import CloudError, Status
from jaxspec.serving.wire.framing import FIRST, REPLY, REQUEST, frame

ID, TENANT = b"s" * 16, "alice"
FIRST_FRAME = frame(FIRST, 0, 1, 0, bytes(4))


def reply(seq, *, requests=False):
  return frame(REQUEST if requests else REPLY, seq, 1, 0, b"" if requests else bytes(4))


def opened(next_seq=None, **kwargs):
  table = CallTable(**({"max_streams": 2} | kwargs))
  assert table.open(ID, TENANT, b"open", b"open", next_seq, 0.0) is Decision.RUN
  table.finish(ID, FIRST_FRAME, 0.0)
  return table


def answered(table, seq, part=0, requests=False):
  assert table.verify(ID, None, Position(seq, part), b"%d.%d" % (seq, part), 0.0) is Decision.RUN
  table.finish(ID, reply(seq, requests=requests), 0.0)


def status(call):
  with pytest.raises(CloudError) as caught:
    call()
  return caught.value.status


def test_calls_run_once_and_retries_get_the_same_bytes():
  table = opened()
  verify = lambda seq, data, part=0, tenant=None: table.verify(ID, tenant, Position(seq, part), data, 0.0)
  assert verify(1, b"1.0") is Decision.RUN and verify(1, b"1.0") is Decision.JOIN
  assert status(lambda: verify(1, b"other")) is Status.FAILED_PRECONDITION  # while it runs
  table.finish(ID, reply(1), 0.0)
  assert verify(1, b"1.0") == reply(1)
  assert status(lambda: verify(1, b"other")) is Status.FAILED_PRECONDITION  # and afterwards
  answered(table, 2)
  assert status(lambda: verify(1, b"1.0")) is Status.OUT_OF_RANGE
  assert status(lambda: verify(4, b"4.0")) is Status.NOT_FOUND
  assert status(lambda: verify(3, b"3.0", tenant="bob")) is Status.NOT_FOUND
  assert status(lambda: table.verify(b"t" * 16, None, Position(1, 0), b"", 0.0)) is Status.NOT_FOUND
  assert verify(3, b"3.0", tenant=TENANT) is Decision.RUN


def test_replies_to_calls_that_were_sent_ahead_are_kept():
  """As many as there may be calls in flight; an older one is still out of range."""
  table = opened(num_replies=3)
  for seq in range(1, 6):
    answered(table, seq)
  verify = lambda seq, data: table.verify(ID, None, Position(seq, 0), data, 0.0)
  assert [verify(seq, b"%d.0" % seq) for seq in (3, 4, 5)] == [reply(seq) for seq in (3, 4, 5)]
  assert status(lambda: verify(4, b"other")) is Status.FAILED_PRECONDITION
  assert status(lambda: verify(2, b"2.0")) is Status.OUT_OF_RANGE
  assert verify(6, b"6.0") is Decision.RUN


def test_a_request_makes_part_1_the_next_call():
  table = opened()
  verify = lambda seq, part, data: table.verify(ID, None, Position(seq, part), data, 0.0)
  assert status(lambda: verify(1, 1, b"law")) is Status.NOT_FOUND  # the drafts come first
  answered(table, 1, requests=True)
  assert status(lambda: verify(2, 0, b"2.0")) is Status.NOT_FOUND
  assert verify(1, 0, b"1.0") == reply(1, requests=True)
  answered(table, 1, 1)
  assert verify(1, 1, b"1.1") == reply(1)
  assert status(lambda: verify(1, 0, b"1.0")) is Status.OUT_OF_RANGE
  answered(table, 2)
  assert status(lambda: verify(2, 1, b"law")) is Status.FAILED_PRECONDITION


def test_handshakes():
  table = CallTable(max_streams=1)
  open_ = lambda data, tenant=TENANT, plain=b"open", seq=None: table.open(ID, tenant, plain, data, seq, 0.0)
  assert open_(b"open") is Decision.RUN and open_(b"open") is Decision.JOIN
  assert status(lambda: open_(b"+4", seq=4)) is Status.UNAVAILABLE  # the first is still running
  table.finish(ID, FIRST_FRAME, 0.0)
  assert open_(b"open") == FIRST_FRAME
  assert status(lambda: open_(b"other", plain=b"other")) is Status.ALREADY_EXISTS
  assert status(lambda: open_(b"open", tenant="bob")) is Status.ALREADY_EXISTS
  assert status(lambda: table.open(b"t" * 16, TENANT, b"", b"", None, 0.0)) is Status.RESOURCE_EXHAUSTED
  answered(table, 1)
  assert open_(b"open") == FIRST_FRAME  # a late duplicate changes nothing
  answered(table, 2)


def test_a_resume_replaces_an_older_copy_and_never_a_newer_one():
  table = opened()
  for seq in (1, 2):
    answered(table, seq)
  resume = lambda seq, plain=b"open": table.open(ID, TENANT, plain, b"open+%d" % seq, seq, 0.0)
  assert status(lambda: resume(2)) is Status.ALREADY_EXISTS
  assert status(lambda: resume(5, plain=b"other")) is Status.ALREADY_EXISTS
  assert resume(5) is Decision.RUN and resume(5) is Decision.JOIN
  table.finish(ID, FIRST_FRAME, 0.0)
  assert resume(5) == FIRST_FRAME
  assert status(lambda: table.verify(ID, None, Position(2, 0), b"2.0", 0.0)) is Status.OUT_OF_RANGE
  answered(table, 5)
  assert status(lambda: table.open(ID, TENANT, b"open", b"open", None, 0.0)) is Status.ALREADY_EXISTS


def test_a_dropped_call_consumes_nothing():
  table = opened()
  verify = lambda: table.verify(ID, None, Position(1, 0), b"1.0", 0.0)
  assert verify() is Decision.RUN
  table.drop(ID)
  assert verify() is Decision.RUN
  assert table.open(b"t" * 16, TENANT, b"", b"", None, 0.0) is Decision.RUN
  table.drop(b"t" * 16)
  assert b"t" * 16 not in table and len(table) == 1


def test_streams_end():
  table = opened()
  assert not table.forget(ID, "bob") and ID in table and table.streams_of(TENANT) == 1
  assert table.idle(0.0) == [] and table.idle(1.0) == [ID]
  assert table.forget(ID, TENANT) and not table.forget(ID) and len(table) == 0 == table.streams_of(TENANT)


class Histories(RuleBasedStateMachine):
  """One stream whose every event is remembered, against the table, which remembers one reply.

  The edge sends any call, in any order, as it was or changed; the server computes, drops, is restarted, and is resumed.
  """

  def __init__(self):
    super().__init__()
    self.table = CallTable(max_streams=1)
    self.replies = {}  # (position, data) of this incarnation: reply
    self.next, self.running, self.first, self.known = Position(1, 0), None, None, False
    self.runs = 0

  def expect(self, decide, wanted):
    if isinstance(wanted, Status):
      assert status(decide) is wanted
    else:
      assert decide() == wanted

  @rule(seq=st.none() | st.integers(1, 4))
  def open(self, seq):
    data = b"open" if seq is None else b"open+%d" % seq
    if not self.known:
      wanted = Decision.RUN
    elif data == self.first:
      wanted = Decision.JOIN if self.running and self.running[0] == OPEN else FIRST_FRAME
    elif seq is None or Position(seq, 0) < self.next:
      wanted = Status.ALREADY_EXISTS
    else:
      wanted = Status.UNAVAILABLE if self.running else Decision.RUN
    self.expect(lambda: self.table.open(ID, TENANT, b"open", data, seq, 0.0), wanted)
    if wanted is Decision.RUN:
      self.known, self.first, self.replies = True, data, {}
      self.next, self.running = Position(seq or 1, 0), (OPEN, data)

  @rule(seq=st.integers(1, 5), part=st.integers(0, 1), data=st.sampled_from([b"a", b"b"]))
  def verify(self, seq, part, data):
    position = Position(seq, part)
    newest = max((at for at, _ in self.replies), default=OPEN)
    if not self.known:
      wanted = Status.NOT_FOUND
    elif self.running and self.running[0] == position:
      wanted = Decision.JOIN if self.running[1] == data else Status.FAILED_PRECONDITION
    elif position == newest:
      wanted = self.replies.get((position, data), Status.FAILED_PRECONDITION)
    elif position < self.next:
      never = position > newest and position.seq == newest.seq
      wanted = Status.FAILED_PRECONDITION if never else Status.OUT_OF_RANGE
    elif position > self.next or self.running:
      wanted = Status.NOT_FOUND
    else:
      wanted = Decision.RUN
    self.expect(lambda: self.table.verify(ID, None, position, data, 0.0), wanted)
    if wanted is Decision.RUN:
      self.running = (position, data)

  @precondition(lambda self: self.running)
  @rule(requests=st.booleans())
  def finish(self, requests):
    position, data = self.running
    self.running = None
    if position == OPEN:
      self.table.finish(ID, FIRST_FRAME, 0.0)
      return
    assert not any(at == position for at, _ in self.replies), "a call ran twice"
    self.runs += 1
    answer = (
      frame(REQUEST, self.runs, 1, 0, b"") if requests and position.part == 0 else frame(REPLY, self.runs, 1, 0, bytes(4))
    )
    self.table.finish(ID, answer, 0.0)
    self.replies[position, data] = answer
    self.next = Position(position.seq, 1) if answer[3] == REQUEST else Position(position.seq + 1, 0)

  @precondition(lambda self: self.running)
  @rule()
  def drop(self):
    self.table.drop(ID)
    if self.running[0] == OPEN:
      self.known = False
    self.running = None

  @rule(restarts=st.booleans())
  def end(self, restarts):
    if restarts:
      self.table = CallTable(max_streams=1)
    else:
      assert self.table.forget(ID, TENANT) == self.known
    self.known, self.running = False, None

  @invariant()
  def one_stream(self):
    assert len(self.table) == self.known


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
