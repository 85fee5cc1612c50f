"""The dispatcher with the toy engine: shared replies, quotas, deadlines, closed streams and refusals."""

import pytest

from jaxspec.serving.server.dispatcher import Dispatcher, Limits, OpenCall, VerifyCall
from jaxspec.serving.server.engine_interface import StreamExists
from jaxspec.serving.server.engine_thread import run_once
from jaxspec.serving.server.idempotency import Position
from jaxspec.serving.server.metrics_hooks import MetricsHooks
from jaxspec.serving.server.quotas import Quota, Rate, Tenant
from jaxspec.serving.wire.bitstream import MessageError
from jaxspec.serving.wire.ciar_message import write_ciar
from jaxspec.serving.wire.cloud import CloudError, Status
from jaxspec.serving.wire.framing import OVERHEAD_BYTES, Frame, frame, unframe
from tests.serving.edge.toy_edge import handshake
from tests.serving.edge.toy_engine import BAD_NUMBERS, LIMITS, ToyEngine

ALICE = Tenant("alice")


class World:
  """A dispatcher, an engine, and a clock by hand."""

  def __init__(self, engine=None, **limits):
    self.now = 0.0
    self.engine = ToyEngine() if engine is None else engine
    self.dispatcher = Dispatcher(Limits(**({"streams": 4} | limits)), jitter=lambda: 0.5)

  def open(self, number=0, tenant=ALICE, deadline=100.0, request=b"open", **fields):
    call = OpenCall(tenant, handshake(number, **fields), None, request, request, deadline)
    return self.dispatcher.open(call, now=self.now)

  def verify(self, number=0, seq=1, data=b"1", fed=1, deadline=100.0, tenant=None):
    checked = unframe(data, 64) if len(data) >= OVERHEAD_BYTES else Frame(0, 0, 0, 0, b"", data)
    call = VerifyCall(handshake(number).stream, Position(seq, 0), checked, fed, tenant, deadline)
    return self.dispatcher.verify(call, now=self.now)

  def step(self):
    return run_once(self.dispatcher, self.engine, lambda: self.now)

  def opened(self, number=0, **kwargs):
    reply = self.open(number, **kwargs)
    self.step()
    return reply.result(0)

  def call(self, number=0):
    """The bytes of the first call of a stream: no drafts."""
    newest = self.engine.streams[handshake(number).stream].tokens[-1:]
    return write_ciar(1, 0, newest, (), LIMITS)[0]


def refused(call):
  with pytest.raises(CloudError) as caught:
    call()
  return caught.value


def test_callers_join_one_run():
  world = World()
  world.opened()
  data = world.call()
  first, second = world.verify(data=data), world.verify(data=data)
  assert first is second and not first.done()
  assert world.step() == 1
  assert world.verify(data=data).result(0) is first.result(0)  # a cached reply
  assert world.engine.runs[handshake().stream, 1, 0] == 1 and world.dispatcher.is_idle


def test_a_deadline_in_the_queue_drops_the_call_and_consumes_nothing():
  world = World()
  world.opened()
  data = world.call()
  reply = world.verify(data=data, deadline=1.0)
  world.now = 1.0
  assert world.step() == 0 and reply.exception(0).status is Status.DEADLINE_EXCEEDED
  again = world.verify(data=data, deadline=1.5)
  assert world.verify(data=data, deadline=9.0) is again  # a retry extends the deadline
  world.now = 2.0
  assert world.step() == 1 and isinstance(again.result(0), bytes)


def test_a_call_that_cannot_be_in_time_is_refused_at_once():
  world = World(first_estimate_s=0.5)
  error = refused(lambda: world.open(deadline=0.4))
  assert error.status is Status.RESOURCE_EXHAUSTED and error.pushback_s == pytest.approx(0.5)
  assert len(world.dispatcher.table) == 0
  world.opened(deadline=0.6)
  world.dispatcher.give([(b"", b"")], 0.0, step_s=10.0)
  assert world.dispatcher.estimate_s > 0.5


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
  assert list(world.engine.streams) == [handshake(2).stream]


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
  reply = world.verify(data=data, fed=7)
  assert world.verify(data=data, fed=7) is reply  # joining is free
  world.step()
  assert world.verify(data=data, fed=7).result(0) == reply.result(0)  # and so is a cached reply
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
  """A stream that is closed during its call, and opened again before the result, gets no result of the old one."""
  world = World()
  world.opened()
  reply = world.verify(data=world.call())
  for _, work in world.dispatcher.take(0.0):
    work(world.engine)
  world.dispatcher.close(ALICE, handshake().stream)
  assert reply.exception(0).status is Status.NOT_FOUND
  again = world.open(request=b"again")
  results = world.engine.step(0.0)
  assert len(results) == 1 and not again.done()
  world.dispatcher.give(results, 0.0, step_s=0.0)
  assert not again.done()
  world.step()
  assert isinstance(again.result(0), bytes)
  world.dispatcher.close(Tenant("bob"), handshake().stream)  # not his
  world.dispatcher.close(ALICE, b"unknown")
  assert len(world.dispatcher.table) == 1


def test_a_call_that_waits_in_the_engine_is_closed_there():
  world = World(ToyEngine(rows=1))
  world.opened(0)
  world.opened(1)
  world.verify(0, data=world.call(0))
  world.verify(1, data=world.call(1))
  assert world.step() == 1
  world.dispatcher.close(ALICE, handshake(1).stream)
  assert world.step() == 0 and world.dispatcher.is_idle


def test_errors_of_one_row():
  """An invalid frame changes nothing; non-finite numbers end the stream; other streams are not affected."""
  world = World()
  world.opened(0)
  data = world.call()
  bad = world.verify(data=frame(20, 9, 1, 0, b"junk"))
  nan = world.open(1, condition=BAD_NUMBERS)
  world.open(2)
  world.step()
  assert bad.exception(0).status is Status.INVALID_ARGUMENT and nan.exception(0).status is Status.INTERNAL
  assert refused(lambda: world.verify(1)).status is Status.NOT_FOUND
  good, lost = world.verify(data=data), world.verify(2, data=world.call(2))
  world.engine.streams.pop(handshake(2).stream)
  world.step()
  assert isinstance(good.result(0), bytes) and lost.exception(0).status is Status.NOT_FOUND
  assert len(world.dispatcher.table) == 1


def test_an_engine_may_refuse_a_row_at_once():
  class Strict(ToyEngine):
    def submit(self, stream, part, frame):
      if frame.data == b"bad":
        raise MessageError("range", "no such thing")
      super().submit(stream, part, frame)

  world, waits = World(Strict()), []
  world.opened()
  reply = world.verify(data=b"bad")
  world.now = 0.25
  assert world.step() == 1
  error = reply.exception(0)
  assert (error.status, error.detail) == (Status.INVALID_ARGUMENT, "range: no such thing")
  world.verify(data=world.call())
  world.now = 1.0
  world.dispatcher.take(1.0, waits.append)
  assert waits == [0.75]


def test_a_stream_that_only_the_engine_knows_is_closed_there():
  class Engine(ToyEngine):
    def open(self, stream, *args, **kwargs):
      if stream in self.streams:
        raise StreamExists
      super().open(stream, *args, **kwargs)

  world = World(Engine())
  world.engine.streams[handshake(0).stream] = None
  error = refused(world.opened)
  assert error.status is Status.RESOURCE_EXHAUSTED and error.pushback_s > 0
  world.step()
  assert not world.engine.streams and isinstance(world.opened(), bytes)


def test_rows_of_a_step_are_those_that_the_engine_computed():
  """Refused calls and prompts that were read are results, but no rows; forced rows are rows without a result."""

  class Steps(MetricsHooks):
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
    assert run_once(world.dispatcher, world.engine, lambda: 0.0, metrics=steps) == 1
  assert steps.rows == [3]


def test_draining_and_failing():
  world = World()
  world.opened()
  data = world.call()
  reply = world.verify(data=data)
  world.dispatcher.draining = True
  assert refused(lambda: world.open(1)).status is Status.UNAVAILABLE
  world.step()
  assert isinstance(reply.result(0), bytes)
  assert refused(lambda: world.verify(data=data)).status is Status.UNAVAILABLE
  world.dispatcher.draining = False
  left = world.verify(seq=2, data=b"2")
  world.dispatcher.stop("gone")
  assert left.exception(0).status is Status.UNAVAILABLE and left.exception(0).detail == "gone"
