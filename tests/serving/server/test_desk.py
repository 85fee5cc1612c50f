"""The desk with the toy engine: who waits for what, what quotas and deadlines do, and what ends."""

import pytest

from jaxspec.serving.server.dispatcher import Desk, Limits, OpenCall, Tenant, VerifyCall
from jaxspec.serving.server.engine_interface import StreamExists
from jaxspec.serving.server.engine_thread import run_once
from jaxspec.serving.server.idempotency import Position
from jaxspec.serving.server.metrics_hooks import StepReport
from jaxspec.serving.server.quotas import Quota, Rate
from jaxspec.serving.wire.bitstream import MessageError
from jaxspec.serving.wire.ciar_message import write_gated
from jaxspec.serving.wire.cloud import CloudError, Status
from jaxspec.serving.wire.framing import OVERHEAD_BYTES, Frame, frame, unframe
from tests.serving.edge.toy_edge import opening
from tests.serving.edge.toy_engine import BAD_NUMBERS, WIRE, ToyEngine

ALICE = Tenant("alice")


class World:
  """A desk, an engine, and a clock by hand."""

  def __init__(self, engine=None, **limits):
    self.now = 0.0
    self.engine = ToyEngine() if engine is None else engine
    self.desk = Desk(Limits(**({"streams": 4} | limits)), jitter=lambda: 0.5)

  def open(self, number=0, tenant=ALICE, deadline=100.0, request=b"open", **fields):
    asked = opening(number, **fields)
    return self.desk.open(OpenCall(tenant, asked, None, request, request, deadline), now=self.now)

  def verify(self, number=0, seq=1, data=b"1", fed=1, deadline=100.0, tenant=None):
    checked = unframe(data, 64) if len(data) >= OVERHEAD_BYTES else Frame(0, 0, 0, 0, b"", data)
    call = VerifyCall(opening(number).stream, Position(seq, 0), checked, fed, tenant, deadline)
    return self.desk.verify(call, now=self.now)

  def step(self):
    return run_once(self.desk, self.engine, lambda: self.now)

  def opened(self, number=0, **kwargs):
    ticket = self.open(number, **kwargs)
    self.step()
    return ticket.answer

  def call(self, number=0):
    """The bytes of the first call of a stream: no drafts."""
    newest = self.engine.streams[opening(number).stream].tokens[-1:]
    return write_gated(1, 0, newest, (), WIRE)[0]


def refused(call):
  with pytest.raises(CloudError) as caught:
    call()
  return caught.value


def test_callers_join_one_run():
  world, told = World(), []
  world.opened()
  data = world.call()
  first, second = world.verify(data=data), world.verify(data=data)
  assert first is second
  first.when_done(told.append)
  second.when_done(told.append)
  assert world.step() == 1 and len(told) == 2 and told[0] is told[1]
  first.when_done(told.append)  # told at once
  assert world.verify(data=data) == told[2] == told[0]
  assert world.engine.runs[opening().stream, 1, 0] == 1 and world.desk.is_idle


def test_a_deadline_in_the_queue_drops_the_call_and_consumes_nothing():
  world = World()
  world.opened()
  data = world.call()
  ticket = world.verify(data=data, deadline=1.0)
  world.now = 1.0
  assert world.step() == 0 and ticket.answer.status is Status.DEADLINE_EXCEEDED
  again = world.verify(data=data, deadline=1.5)
  assert world.verify(data=data, deadline=9.0) is again  # who joins waits longer
  world.now = 2.0
  assert world.step() == 1 and isinstance(again.answer, bytes)


def test_a_call_that_cannot_be_in_time_is_refused_at_once():
  world = World(first_estimate_s=0.5)
  error = refused(lambda: world.open(deadline=0.4))
  assert error.status is Status.RESOURCE_EXHAUSTED and error.pushback_s == pytest.approx(0.5)
  assert len(world.desk.table) == 0
  world.opened(deadline=0.6)
  world.desk.give([(b"", b"")], 0.0, step_s=10.0)
  assert world.desk.estimate_s > 0.5


def test_a_full_queue_and_a_full_table_push_back():
  world = World(streams=2, queue=1)
  world.open(0)
  error = refused(lambda: world.open(1))
  assert error.status is Status.RESOURCE_EXHAUSTED and error.pushback_s > 0
  world.step()
  world.opened(1)
  error = refused(lambda: world.open(2))
  assert "all 2 streams" in error.detail and error.pushback_s == 1.0
  world.now = 601.0
  assert isinstance(world.opened(2, deadline=700.0), bytes)  # the idle ones are forgotten
  assert list(world.engine.streams) == [opening(2).stream]


def test_quotas():
  tenant = Tenant("bob", Quota(streams=1, calls_per_s=2, fed_per_s=10))
  world = World()
  world.opened(0, tenant=tenant)  # one call, three tokens
  error = refused(lambda: world.open(1, tenant=tenant, request=b"1"))
  assert "quota of 1 streams" in error.detail and error.status is Status.RESOURCE_EXHAUSTED
  assert error.pushback_s == 1.0, "not the time after which idle streams are forgotten: an edge would give up at once"
  world.opened(1)
  data = world.call()
  assert refused(lambda: world.verify(data=data, fed=9)).pushback_s == pytest.approx(0.2)
  ticket = world.verify(data=data, fed=7)
  assert world.verify(data=data, fed=7) is ticket  # joining is free
  world.step()
  assert world.verify(data=data, fed=7) == ticket.answer  # and so is a cached reply
  error = refused(lambda: world.verify(seq=2, data=b"2", fed=0))
  assert error.pushback_s == pytest.approx(0.5)
  world.now = 0.5
  world.verify(seq=2, data=b"2", fed=5)


def test_a_charge_above_the_bucket_is_paid_later():
  rate = Rate(10.0, 10.0, 0.0)
  assert rate.wait_for(35, 0.0) == 0.0
  rate.take(35, 0.0)
  assert rate.wait_for(1, 0.0) == pytest.approx(2.6) and rate.wait_for(1, 2.6) == pytest.approx(0.0)
  for bad in (0, -1.0, "many", True, float("nan")):
    with pytest.raises(ValueError, match="above 0"):
      Quota(streams=bad)


def test_closing():
  """A stream that is closed while its call runs, and opened again before the result comes, is not mixed up."""
  world = World()
  world.opened()
  ticket = world.verify(data=world.call())
  for _, work in world.desk.take(0.0):
    work(world.engine)
  world.desk.close(ALICE, opening().stream)
  assert ticket.answer.status is Status.NOT_FOUND
  again = world.open(request=b"again")
  results = world.engine.step(0.0)
  assert len(results) == 1 and again.answer is None
  world.desk.give(results, 0.0, step_s=0.0)
  assert again.answer is None
  world.step()
  assert isinstance(again.answer, bytes)
  world.desk.close(Tenant("bob"), opening().stream)  # not his
  world.desk.close(ALICE, b"unknown")
  assert len(world.desk.table) == 1


def test_a_call_that_waits_in_the_engine_is_closed_there():
  world = World(ToyEngine(rows=1))
  world.opened(0)
  world.opened(1)
  world.verify(0, data=world.call(0))
  world.verify(1, data=world.call(1))
  assert world.step() == 1
  world.desk.close(ALICE, opening(1).stream)
  assert world.step() == 0 and world.desk.is_idle


def test_errors_of_one_row():
  """A frame that is not valid changes nothing; numbers that are none end the stream; others are not touched."""
  world = World()
  world.opened(0)
  data = world.call()
  bad = world.verify(data=frame(20, 9, 1, 0, b"junk"))
  nan = world.open(1, condition=BAD_NUMBERS)
  world.open(2)
  world.step()
  assert bad.answer.status is Status.INVALID_ARGUMENT and nan.answer.status is Status.INTERNAL
  assert refused(lambda: world.verify(1)).status is Status.NOT_FOUND
  good, lost = world.verify(data=data), world.verify(2, data=world.call(2))
  world.engine.streams.pop(opening(2).stream)
  world.step()
  assert isinstance(good.answer, bytes) and lost.answer.status is Status.NOT_FOUND
  assert len(world.desk.table) == 1


def test_an_engine_may_refuse_a_row_at_once():
  class Strict(ToyEngine):
    def submit(self, stream, part, frame):
      if frame.data == b"bad":
        raise MessageError("range", "no such thing")
      super().submit(stream, part, frame)

  world, waits = World(Strict()), []
  world.opened()
  ticket = world.verify(data=b"bad")
  world.now = 0.25
  assert world.step() == 1 and (ticket.answer.status, ticket.answer.detail) == (
    Status.INVALID_ARGUMENT,
    "range: no such thing",
  )
  world.verify(data=world.call())
  world.now = 1.0
  world.desk.take(1.0, waits.append)
  assert waits == [0.75]


def test_a_stream_that_only_the_engine_knows_is_closed_there():
  class Engine(ToyEngine):
    def open(self, stream, *args, **kwargs):
      if stream in self.streams:
        raise StreamExists
      super().open(stream, *args, **kwargs)

  world = World(Engine())
  world.engine.streams[opening(0).stream] = None
  error = world.opened()
  assert error.status is Status.RESOURCE_EXHAUSTED and error.pushback_s > 0
  world.step()
  assert not world.engine.streams and isinstance(world.opened(), bytes)


def test_rows_of_a_step_are_those_that_the_engine_computed():
  """Refused calls and prompts that were read are results, but no rows; forced rows are rows without a result."""

  class Steps(StepReport):
    rows = []

    def stepped(self, seconds, rows):
      self.rows.append(rows)

  class Engine(ToyEngine):
    computed = iter((0, 3))

    def step(self, now):
      results = super().step(now)
      self.rows_of_step = next(self.computed)
      return results

  world, steps = World(Engine()), Steps()
  for number in range(2):
    world.open(number)
    assert run_once(world.desk, world.engine, lambda: 0.0, report=steps) == 1
  assert steps.rows == [3]


def test_draining_and_failing():
  world = World()
  world.opened()
  data = world.call()
  ticket = world.verify(data=data)
  world.desk.draining = True
  assert refused(lambda: world.open(1)).status is Status.UNAVAILABLE
  world.step()
  assert isinstance(ticket.answer, bytes)
  assert refused(lambda: world.verify(data=data)).status is Status.UNAVAILABLE
  world.desk.draining = False
  left = world.verify(seq=2, data=b"2")
  world.desk.stop("gone")
  assert left.answer.status is Status.UNAVAILABLE and left.answer.detail == "gone"
