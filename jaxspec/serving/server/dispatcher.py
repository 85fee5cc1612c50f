"""The desk: who waits for which call, and what the engine gets to do. Pure; the engine, time and chance are outside.

1. A call arrives (`open`, `verify`, `close`). The table of calls answers it at once, or it becomes a `Ticket`.
2. `take` hands the queued work to whoever runs the engine. Calls that nobody waits for any more are dropped: they consume
   nothing.
3. `give` brings the engine's results back. Replies are kept before anybody sees them.

Retries join: several callers may wait for one ticket.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from jaxspec.serving.server.engine_interface import Engine, NoRoom, NotFinite, StreamLost
from jaxspec.serving.server.idempotency import CallTable, Decision, Position
from jaxspec.serving.server.quotas import Quota, Usage
from jaxspec.serving.wire.bitstream import MessageError
from jaxspec.serving.wire.cloud import CloudError, Opening, Resume, Status
from jaxspec.serving.wire.framing import Frame

Work = Callable[[Engine], None]
_SHARE = 0.1  # of the newest measurement in a smoothed one
_SWEEP_S = 1.0  # between looks for streams to forget
_FULL_S = 1.0  # between looks of an edge for a stream that has ended; nobody knows when one does


@dataclasses.dataclass(frozen=True)
class Limits:
  """What a server takes on.

  Attributes:
    streams: known at the same time.
    queue: calls that wait at the same time.
    forget_s: after this long without a call a stream is forgotten.
    first_estimate_s: the wait that is expected before any was measured.
  """

  streams: int
  queue: int = 4096
  forget_s: float = 600.0
  first_estimate_s: float = 0.0


class Tenant(NamedTuple):
  """Who asks, by the name of its token."""

  name: str
  quota: Quota = Quota()


class OpenCall(NamedTuple):
  """A call that opens or resumes a stream.

  Attributes:
    plain: the request without what resumes it.
    request: the whole request.
    deadline: when the caller stops waiting.
  """

  tenant: Tenant
  opening: Opening
  resume: Resume | None
  plain: bytes
  request: bytes
  deadline: float = math.inf


class VerifyCall(NamedTuple):
  """A call of a stream that is open.

  Attributes:
    fed: tokens that the call makes the network read.
    tenant: who asks; None where the stream's id alone authorises.
    deadline: when the caller stops waiting.
  """

  stream: bytes
  position: Position
  frame: Frame
  fed: int
  tenant: Tenant | None = None
  deadline: float = math.inf


class Ticket:
  """A call that the engine runs once for everybody who waits for it.

  Attributes:
    answer: the reply frame, or why there is none; None while nobody knows.
  """

  def __init__(self, stream: bytes, work: Work, deadline: float, now: float):
    self.stream, self.work, self.deadline, self.arrived = stream, work, deadline, now
    self.answer: bytes | CloudError | None = None
    self._waiting: list[Callable[[bytes | CloudError], None]] = []

  def when_done(self, tell: Callable[[bytes | CloudError], None]) -> None:
    """Calls ``tell`` with the answer, now or later."""
    if self.answer is None:
      self._waiting.append(tell)
    else:
      tell(self.answer)

  def resolve(self, answer: bytes | CloudError) -> None:
    """Everybody who waits is told; only the first answer counts."""
    if self.answer is None:
      self.answer = answer
      for tell in self._waiting:
        tell(answer)


class Desk:
  """Takes calls, hands out work, and gives answers.

  Args:
    jitter: a random number in [0, 1) at each call; pauses that are asked of edges are spread by it.
  """

  def __init__(self, limits: Limits, *, jitter: Callable[[], float]):
    self.limits, self._jitter = limits, jitter
    self.table = CallTable(limits.streams)
    self.draining = False
    self._usage: dict[str, Usage] = {}
    self._queued: list[Ticket] = []
    self._closing: list[bytes] = []
    self._tickets: dict[bytes, Ticket] = {}  # by stream: those without an answer
    self._in_engine: dict[bytes, Ticket] = {}  # by stream: what its next result belongs to
    self._swept = -math.inf
    self._step_s, self._per_step = limits.first_estimate_s, 1.0

  @property
  def waiting(self) -> int:
    """Calls without an answer."""
    return len(self._tickets)

  @property
  def is_idle(self) -> bool:
    """Whether there is nothing for the engine to do."""
    return not self._tickets and not self._closing

  @property
  def estimate_s(self) -> float:
    """How long a call that arrives now is expected to take."""
    return self._step_s * (1 + len(self._tickets) / self._per_step)

  def open(self, call: OpenCall, *, now: float) -> bytes | Ticket:
    """A stream is opened or resumed.

    Returns:
      The reply frame, or the ticket that will have it.
    Raises:
      CloudError: where the call is refused.
    """
    self._check_draining()
    tenant, opening, resume = call.tenant, call.opening, call.resume
    usage = self._usage_of(tenant, now)
    stream = opening.stream
    known = stream in self.table
    if not known:
      if len(self.table) >= self.limits.streams:
        self._forget_idle(now)
      if len(self.table) >= self.limits.streams:
        raise self._busy(f"all {self.limits.streams} streams are taken", _FULL_S)
      if self.table.streams_of(tenant.name) >= usage.quota.streams:
        raise self._busy(f"the quota of {usage.quota.streams:g} streams is used up", _FULL_S)
    next_seq = None if resume is None else resume.next_seq
    condition = opening.condition
    fed = 1 if isinstance(condition, int) else len(condition)
    pay = lambda: usage.charge(fed + (0 if resume is None else len(resume.tokens)), now)
    decide = lambda: self.table.open(stream, tenant.name, call.plain, call.request, next_seq, now)

    def work(engine):
      engine.open(stream, opening, resume, tenant=tenant.name)

    return self._arrived(stream, decide, pay, work, call.deadline, now, replaces=known)

  def verify(self, call: VerifyCall, *, now: float) -> bytes | Ticket:
    """A call of a stream.

    Returns:
      The reply frame, or the ticket that will have it.
    Raises:
      CloudError: where the call is refused.
    """
    self._check_draining()
    tenant = None if call.tenant is None else call.tenant.name
    decide = lambda: self.table.verify(call.stream, tenant, call.position, call.frame.data, now)

    def pay():
      if (usage := self._usage.get(self.table.tenant_of(call.stream))) is not None:
        usage.charge(call.fed, now)

    def work(engine):
      engine.submit(call.stream, call.position.part, call.frame)

    return self._arrived(call.stream, decide, pay, work, call.deadline, now)

  def close(self, tenant: Tenant | None, stream: bytes) -> None:
    """A stream ends; its call in flight has no answer any more."""
    if self.table.forget(stream, None if tenant is None else tenant.name):
      self._given_up(stream, CloudError(Status.NOT_FOUND, "the stream was closed"))

  def take(self, now: float, waited: Callable[[float], None] = lambda seconds: None) -> list[tuple[bytes, Work]]:
    """What the engine has to do before its next step: streams, and what to do with the engine, in order.

    Args:
      waited: told how long each call was in the queue.
    """
    if now >= self._swept + _SWEEP_S:
      self._forget_idle(now)
    streams, self._closing = self._closing, []
    for stream in streams:
      self._in_engine.pop(stream, None)
    closing = [(stream, lambda engine, stream=stream: engine.close(stream)) for stream in streams]
    queued, self._queued = self._queued, []
    running = []
    for ticket in queued:
      if self._tickets.get(ticket.stream) is not ticket:
        continue  # its stream was closed
      if ticket.deadline <= now:
        del self._tickets[ticket.stream]
        self.table.drop(ticket.stream)
        ticket.resolve(CloudError(Status.DEADLINE_EXCEEDED, "the deadline passed before the call was run"))
      else:
        self._in_engine[ticket.stream] = ticket
        waited(now - ticket.arrived)
        running.append((ticket.stream, ticket.work))
    return [*closing, *running]

  def give(self, results: Sequence[tuple[bytes, bytes | Exception]], now: float, *, step_s: float) -> None:
    """The engine's step brought results.

    Args:
      step_s: how long it took.
    """
    if results:
      self._step_s += (1.0 if self._step_s == 0 else _SHARE) * (step_s - self._step_s)
      self._per_step += _SHARE * (len(results) - self._per_step)
    for stream, result in results:
      ticket = self._in_engine.pop(stream, None)
      if ticket is None or self._tickets.get(stream) is not ticket:
        continue  # closed while it ran, and perhaps opened again
      del self._tickets[stream]
      if isinstance(result, bytes):
        self.table.finish(stream, result, now)
        ticket.resolve(result)
        continue
      if isinstance(result, MessageError):
        self.table.drop(stream)  # a frame that is not valid consumed nothing
      else:
        self.table.forget(stream)
      if stream not in self.table:
        self._closing.append(stream)
      ticket.resolve(refusal_of(result))

  def stop(self, reason: str) -> None:
    """The engine computes no more: whoever waits is told, and nobody is let in."""
    self.draining = True
    tickets, self._tickets = list(self._tickets.values()), {}
    for ticket in tickets:
      ticket.resolve(CloudError(Status.UNAVAILABLE, reason))

  def _arrived(
    self,
    stream: bytes,
    decide: Callable[[], Decision | bytes],
    pay: Callable[[], None],
    work: Work,
    deadline: float,
    now: float,
    *,
    replaces: bool = False,
  ) -> bytes | Ticket:
    """Answers, joins, or queues a call. One that the quota refuses leaves no trace in the table."""
    decision = decide()
    if isinstance(decision, bytes):
      return decision
    if decision is Decision.JOIN:
      ticket = self._tickets[stream]
      ticket.deadline = max(ticket.deadline, deadline)
      return ticket
    try:
      if deadline - now < self.estimate_s:
        raise self._busy("the queue is longer than the deadline", self.estimate_s)
      if len(self._tickets) >= self.limits.queue:
        raise self._busy(f"{len(self._tickets)} calls are waiting", self.estimate_s)
      pay()
    except CloudError:
      self.table.drop(stream)
      if replaces:
        self._closing.append(stream)  # the old copy went when its successor was refused; the edge resumes
      raise
    if replaces:
      self._closing.append(stream)
    ticket = self._tickets[stream] = Ticket(stream, work, deadline, now)
    self._queued.append(ticket)
    return ticket

  def _usage_of(self, tenant: Tenant, now: float) -> Usage:
    usage = self._usage.get(tenant.name)
    if usage is None or usage.quota != tenant.quota:
      usage = self._usage[tenant.name] = Usage(tenant.quota, now)
    return usage

  def _check_draining(self) -> None:
    if self.draining:
      raise CloudError(Status.UNAVAILABLE, "the server is going down")

  def _busy(self, detail: str, seconds: float) -> CloudError:
    """A refusal for now. The time is spread over half to one and a half, so that not all come back at once."""
    return CloudError(Status.RESOURCE_EXHAUSTED, detail, pushback_s=max(0.01, seconds) * (0.5 + self._jitter()))

  def _forget_idle(self, now: float) -> None:
    self._swept = now
    for stream in self.table.idle(now - self.limits.forget_s):
      self.table.forget(stream)
      self._closing.append(stream)

  def _given_up(self, stream: bytes, error: CloudError) -> None:
    self._closing.append(stream)
    ticket = self._tickets.pop(stream, None)
    if ticket is not None:
      ticket.resolve(error)


def refusal_of(error: Exception) -> CloudError:
  """What an edge is told about an error of its own call."""
  if isinstance(error, CloudError):
    return error
  if isinstance(error, MessageError):
    status = Status.DATA_LOSS if error.reason == "checksum" else Status.INVALID_ARGUMENT
    return CloudError(status, str(error))
  if isinstance(error, StreamLost):
    return CloudError(Status.NOT_FOUND, "no such stream, or not at this call")
  if isinstance(error, NotFinite):
    return CloudError(Status.INTERNAL, "the network's output is not finite")
  if isinstance(error, NoRoom):
    return CloudError(Status.RESOURCE_EXHAUSTED, "no room for one more stream", pushback_s=_FULL_S)
  return CloudError(Status.INTERNAL, "the call could not be computed")
