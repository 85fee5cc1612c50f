"""A cloud in the process whose wire has faults, at chosen attempts. Time is virtual: nothing sleeps.

The server's side is the real one from the bytes of a request to the bytes of a reply: reading, dispatcher, call table. Only
the sockets and the thread are not there.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from concurrent.futures import Future

from jaxspec.serving.edge.reliable_stream import ReliableStream, RetrySettings
from jaxspec.serving.server import requests
from jaxspec.serving.server.dispatcher import Dispatcher, Limits, OpenCall
from jaxspec.serving.server.engine_interface import Engine, description_of
from jaxspec.serving.server.engine_thread import run_once
from jaxspec.serving.server.quotas import Tenant
from jaxspec.serving.wire.cloud import CloudError, Description, Status
from jaxspec.serving.wire.handshake import Handshake, HandshakeReply, Resume
from jaxspec.serving.wire.v1 import encoding
from jaxspec.serving.wire.v1 import jaxspec_link_pb2 as pb

TENANT = Tenant("alice")
ROUND_TRIP_S = 0.02


class Fault(enum.Enum):
  """What happens to one attempt at a call."""

  DROP_REQUEST = enum.auto()
  DROP_REPLY = enum.auto()
  DUPLICATE = enum.auto()
  LATE_ORIGINAL = enum.auto()  # arrives after its retry
  OLD_ORIGINAL = enum.auto()  # arrives when the next call was answered
  LATE_REPLY = enum.auto()  # comes first at the next call
  DELAY = enum.auto()  # the request arrives after its deadline
  DAMAGE_UP = enum.auto()  # a byte of the frame; TLS and TCP see to the rest
  DAMAGE_DOWN = enum.auto()
  RESET_BEFORE = enum.auto()  # the connection is cut before the server read the request
  RESET_AFTER = enum.auto()  # and after it ran the call
  KILL_BEFORE = enum.auto()  # the server is killed between two calls
  KILL_AFTER = enum.auto()  # and in a step


KILLS = (Fault.KILL_BEFORE, Fault.KILL_AFTER)
LOSSLESS = tuple(fault for fault in Fault if fault not in KILLS)


class Killed(Exception):
  """The edge's process ended here."""


class Clock:
  """Seconds that pass when somebody waits."""

  def __init__(self):
    self.now = 0.0

  def __call__(self) -> float:
    return self.now

  def sleep(self, seconds: float) -> None:
    self.now += seconds


class InProcess:
  """The server's side without sockets: requests as bytes in, replies as bytes out."""

  def __init__(self, clock: Clock, make_engine: Callable[[], Engine], *, streams: int = 64):
    self.engine, self._clock = make_engine(), clock
    self.dispatcher = Dispatcher(Limits(streams), jitter=lambda: 0.5)
    self.served = description_of(self.engine)

  def answer(self, method: str, data: bytes, timeout_s: float) -> bytes:
    """One call.

    Raises:
      CloudError: as the servicer would say it.
    """
    now = self._clock()
    deadline = now + timeout_s
    if method == "Close":
      self.dispatcher.close(TENANT, requests.read_close(data))
      self._run()
      return b""
    if method == "Open":
      handshake, resume = requests.read_open(data, self.served)
      plain = encoding.open_request(handshake)
      frame = self._wait(self.dispatcher.open(OpenCall(TENANT, handshake, resume, plain, data, deadline), now=now))
      return encoding.open_reply(HandshakeReply(frame, 1 if resume is None else resume.next_seq, self.served.numerics))
    call = requests.read_verify(data, self.served)._replace(deadline=deadline)
    return encoding.verify_reply(*call.position, self._wait(self.dispatcher.verify(call, now=now)))

  def _run(self) -> None:
    run_once(self.dispatcher, self.engine, self._clock)

  def _wait(self, reply: Future[bytes]) -> bytes:
    while not reply.done():
      self._run()
    return reply.result()


class FaultyCloud:
  """A `Cloud` over a wire with faults.

  Args:
    schedule: faults by the number of the attempt, from 0.
    edge_dies: the attempt before which, or after whose reply (``True``), the edge is killed.
    make_engine: makes the engine of every server that lives.
    runs_ahead: whether the server runs calls that were sent ahead at once, or each when its reply is awaited.

  Attributes:
    attempts: made so far.
    servers: all that lived, the newest last.
  """

  def __init__(
    self,
    schedule: dict[int, Fault] | None = None,
    *,
    clock: Clock | None = None,
    edge_dies: tuple[int, bool] | None = None,
    make_engine: Callable[[], Engine],
    runs_ahead: bool = True,
  ):
    self._runs_ahead = runs_ahead
    self._channel: dict[tuple[int, int], bytes] = {}  # requests of a streaming call, in order
    self.clock = Clock() if clock is None else clock
    self._schedule, self._edge_dies, self._make_engine = schedule or {}, edge_dies, make_engine
    self.servers = [InProcess(self.clock, make_engine)]
    self.attempts = 0
    self._late_replies: list[bytes] = []
    self._held: list[tuple[int, str, bytes]] = []  # (attempts until it arrives, method, request)

  @property
  def server(self) -> InProcess:
    return self.servers[-1]

  @property
  def description(self) -> Description:
    return self.server.served

  def restart(self) -> None:
    """The server is killed, and another one takes its place: it knows nothing."""
    self.servers.append(InProcess(self.clock, self._make_engine))

  @property
  def retry_settings(self) -> RetrySettings:
    """Retries in virtual time."""
    return RetrySettings(clock=self.clock, sleep=self.clock.sleep, uniform=lambda: 0.5)

  def reliable(self, handshake: Handshake, **kwargs) -> ReliableStream:
    """A stream of an edge over this cloud, in virtual time."""
    return ReliableStream(self, handshake, settings=self.retry_settings, **kwargs)

  def open(self, handshake: Handshake, resume: Resume | None = None, *, timeout_s: float) -> HandshakeReply:
    return encoding.handshake_reply_of(self._carry("Open", encoding.open_request(handshake, resume), timeout_s))

  def send(self, stream: bytes, seq: int, frame: bytes) -> None:
    """See `jaxspec.serving.wire.cloud.AheadCloud`; for one stream."""
    self._channel[seq, 0] = encoding.verify_request(stream, seq, 0, frame)

  def arrived_s(self, stream: bytes) -> float | None:
    """See `jaxspec.serving.wire.cloud.AheadCloud`; virtual seconds do not pass while the edge drafts."""
    return None

  def verify(self, stream: bytes, seq: int, part: int, frame: bytes, *, timeout_s: float) -> bytes:
    if (seq, part) in self._channel:
      return self._verify_sent((seq, part), timeout_s)
    late, self._late_replies = self._late_replies, []
    replies = [*late, self._carry("Verify", encoding.verify_request(stream, seq, part, frame), timeout_s)]
    return next(frame for data in replies if (frame := encoding.reply_to(data, seq, part)) is not None)

  def _verify_sent(self, position: tuple[int, int], timeout_s: float) -> bytes:
    """Waits for the reply to a call that was sent ahead. Any fault ends the streaming call; later calls on it may have run
    before, and may run after."""
    request = self._channel[position]
    later = [each for at, each in self._channel.items() if at > position]
    try:
      frame = encoding.reply_to(self._carry("Verify", request, timeout_s), *position)
    except CloudError:
      self._channel = {}
      self._held += [(1, "Verify", each) for each in later if self._runs_ahead]
      raise
    del self._channel[position]
    for each in later if self._runs_ahead else ():
      self.server.answer("Verify", each, timeout_s)  # its reply is cached
    assert frame is not None, "the reply to this call"
    return frame

  def close(self, stream: bytes, *, timeout_s: float) -> None:
    self._carry("Close", encoding.close_request(stream), timeout_s)

  def _carry(self, method: str, request: bytes, timeout_s: float) -> bytes:
    """One attempt, with its fault."""
    number, self.attempts = self.attempts, self.attempts + 1
    dies_at, after = self._edge_dies or (None, False)
    if number == dies_at and not after:
      raise Killed
    self.clock.sleep(ROUND_TRIP_S)
    reply = self._with_fault(self._schedule.get(number), method, request, timeout_s)
    self._deliver_held()
    if number == dies_at:
      raise Killed
    return reply

  def _with_fault(self, fault: Fault | None, method: str, request: bytes, timeout_s: float) -> bytes:
    serve = lambda data=request, timeout_s=timeout_s: self.server.answer(method, data, timeout_s)
    if fault in (Fault.DROP_REQUEST, Fault.LATE_ORIGINAL, Fault.OLD_ORIGINAL):
      if fault is not Fault.DROP_REQUEST:
        self._held.append((2 if fault is Fault.LATE_ORIGINAL else 3, method, request))
      raise self._no_reply(timeout_s)
    if fault in (Fault.DROP_REPLY, Fault.LATE_REPLY):
      reply = serve()
      if fault is Fault.LATE_REPLY and method == "Verify":
        self._late_replies.append(reply)
      raise self._no_reply(timeout_s)
    if fault is Fault.DELAY:
      self.clock.sleep(timeout_s)
      try:
        serve(timeout_s=0.0)
      except CloudError as error:
        is_lost = error.status is Status.NOT_FOUND and len(self.servers) > 1  # a new server, before the edge resumed
        assert is_lost or error.status in (Status.DEADLINE_EXCEEDED, Status.RESOURCE_EXHAUSTED), error
      raise self._no_reply(0.0)
    if fault in (Fault.RESET_BEFORE, Fault.RESET_AFTER, *KILLS):
      if fault in (Fault.RESET_AFTER, Fault.KILL_AFTER):
        serve()
      if fault in KILLS:
        self.restart()
      raise CloudError(Status.UNAVAILABLE, "the connection was cut")
    if fault is Fault.DUPLICATE:
      first, second = serve(), serve()
      assert first == second
      return second
    if fault is Fault.DAMAGE_UP and method == "Verify":
      return serve(data=_damaged(pb.VerifyRequest, request))
    reply = serve()
    if fault is Fault.DAMAGE_DOWN and method != "Close":
      return _damaged(pb.OpenReply if method == "Open" else pb.VerifyReply, reply)
    return reply

  def _no_reply(self, timeout_s: float) -> CloudError:
    self.clock.sleep(timeout_s)
    self._deliver_held()
    return CloudError(Status.DEADLINE_EXCEEDED, "no reply in time")

  def _deliver_held(self) -> None:
    """Late requests arrive; their replies are not awaited."""
    self._held = [(left - 1, method, request) for left, method, request in self._held]
    arriving = [item for item in self._held if item[0] <= 0]
    self._held = [item for item in self._held if item[0] > 0]
    for _, method, request in arriving:
      try:
        self.server.answer(method, request, 1.0)
      except CloudError as error:
        assert error.status in (Status.OUT_OF_RANGE, Status.NOT_FOUND, Status.ALREADY_EXISTS), error


def _damaged(kind, data: bytes) -> bytes:
  """A message whose frame has one other byte."""
  message = kind.FromString(data)
  frame = bytearray(message.frame)
  frame[len(frame) // 2] ^= 0x10
  message.frame = bytes(frame)
  return message.SerializeToString()
