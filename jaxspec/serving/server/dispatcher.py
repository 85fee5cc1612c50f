"""The dispatcher: queues calls for the engine and returns its replies. Pure; engine and time are outside.

1. `Dispatcher.open` and `Dispatcher.verify` look a call up in the call table. They return a future, with the cached reply or
   with that of the engine. Retries of a call share its future.
2. `Dispatcher.take` gives queued work to the engine. Calls whose deadline has passed are dropped and change nothing.
3. `Dispatcher.give` takes the engine's results. A reply is cached before its future is set.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import NamedTuple

from jaxspec.core.options import MAX_PIPELINE
from jaxspec.serving.server.engine_interface import Engine, NoRoom, NotFinite, StreamLost
from jaxspec.serving.server.idempotency import CallTable, Decision, Position
from jaxspec.serving.server.quotas import Tenant, Usage
from jaxspec.serving.wire.bitstream import MessageError
from jaxspec.serving.wire.cloud import CloudError, Status
from jaxspec.serving.wire.framing import Frame
from jaxspec.serving.wire.handshake import Handshake, Resume

Work = Callable[[Engine], None]
_SHARE = 0.1  # weight of the newest measurement in a smoothed one
_SWEEP_S = 1.0  # between sweeps for idle streams
_REPLIES = 2 * MAX_PIPELINE  # an edge that drafts again has void calls in flight besides
_FULL_S = 1.0  # pushback when all streams are taken; the time at which one ends is unknown


@dataclasses.dataclass(frozen=True)
class Limits:
  """Limits of a server.

  Attributes:
    streams: most streams at the same time.
    queue: most calls that wait at the same time.
    forget_s: seconds without a call after which a stream is removed.
    first_estimate_s: expected seconds of a call before any was measured.
  """

  streams: int
  queue: int = 4096
  forget_s: float = 600.0
  first_estimate_s: float = 0.0


class OpenCall(NamedTuple):
  """A call that opens or resumes a stream.

  Attributes:
    plain: the request without its resume part.
    request: the whole request.
    deadline: end of the caller's timeout, seconds.
  """

  tenant: Tenant
  handshake: Handshake
  resume: Resume | None
  plain: bytes
  request: bytes
  deadline: float = math.inf


class VerifyCall(NamedTuple):
  """A call of a stream that is open.

  Attributes:
    fed: tokens that the network reads for this call.
    tenant: the caller; None where the stream's id alone authorises.
    deadline: end of the caller's timeout, seconds.
  """

  stream: bytes
  position: Position
  frame: Frame
  fed: int
  tenant: Tenant | None = None
  deadline: float = math.inf


@dataclasses.dataclass(eq=False)
class _Queued:
  """A call that the engine runs once, for all callers that share its future."""

  stream: bytes
  work: Work
  deadline: float
  arrived: float
  reply: Future[bytes] = dataclasses.field(default_factory=Future)


class Dispatcher:
  """Queues calls, hands out work, and sets replies.

  Futures are set by the thread that calls `take`, `give`, `stop` or `close`. A caller must not cancel them: others may wait.

  Args:
    jitter: returns a random number in [0, 1), which spreads the pauses before retries.
  """

  def __init__(self, limits: Limits, *, jitter: Callable[[], float]):
    self.limits, self._jitter = limits, jitter
    self.table = CallTable(limits.streams, num_replies=_REPLIES)
    self.draining = False
    self._usage: dict[str, Usage] = {}
    self._queue: list[_Queued] = []
    self._closing: list[bytes] = []
    self._waiting: dict[bytes, _Queued] = {}  # by stream: calls without a reply
    self._in_engine: dict[bytes, _Queued] = {}  # by stream: the call of its next result
    self._swept = -math.inf
    self._step_s, self._per_step = limits.first_estimate_s, 1.0

  @property
  def waiting(self) -> int:
    """Number of calls without a reply."""
    return len(self._waiting)

  @property
  def is_idle(self) -> bool:
    """Whether the engine has nothing to do."""
    return not self._waiting and not self._closing

  @property
  def estimate_s(self) -> float:
    """Expected seconds of a call that arrives now."""
    return self._step_s * (1 + len(self._waiting) / self._per_step)

  def open(self, call: OpenCall, *, now: float) -> Future[bytes]:
    """Opens or resumes a stream.

    Returns:
      The future frame of token 0. Its exception is a CloudError.
    Raises:
      CloudError: if the call is refused at once.
    """
    self._check_draining()
    tenant, handshake, resume = call.tenant, call.handshake, call.resume
    usage = self._usage_of(tenant, now)
    stream = handshake.stream
    known = stream in self.table
    if not known:
      if len(self.table) >= self.limits.streams:
        self._forget_idle(now)
      if len(self.table) >= self.limits.streams:
        raise self._busy(f"all {self.limits.streams} streams are taken", _FULL_S)
      if self.table.streams_of(tenant.name) >= usage.quota.streams:
        raise self._busy(f"the quota of {usage.quota.streams:g} streams is used up", _FULL_S)
    next_seq = None if resume is None else resume.next_seq
    condition = handshake.condition
    fed = 1 if isinstance(condition, int) else len(condition)
    pay = lambda: usage.charge(fed + (0 if resume is None else len(resume.tokens)), now)
    decide = lambda: self.table.open(stream, tenant.name, call.plain, call.request, next_seq, now)

    def work(engine: Engine) -> None:
      engine.open(stream, handshake, resume, tenant=tenant.name)

    return self._arrived(stream, decide, pay, work, call.deadline, now, replaces=known)

  def verify(self, call: VerifyCall, *, now: float) -> Future[bytes]:
    """Queues a call of an open stream.

    Returns:
      The future reply frame. Its exception is a CloudError.
    Raises:
      CloudError: if the call is refused at once.
    """
    self._check_draining()
    tenant = None if call.tenant is None else call.tenant.name
    decide = lambda: self.table.verify(call.stream, tenant, call.position, call.frame.data, now)

    def pay() -> None:
      owner = self.table.tenant_of(call.stream)
      usage = None if owner is None else self._usage.get(owner)
      if usage is not None:
        usage.charge(call.fed, now)

    def work(engine: Engine) -> None:
      engine.submit(call.stream, call.position.part, call.frame)

    return self._arrived(call.stream, decide, pay, work, call.deadline, now)

  def close(self, tenant: Tenant | None, stream: bytes) -> None:
    """Closes a stream; its call in flight ends with ``NOT_FOUND``."""
    if self.table.forget(stream, None if tenant is None else tenant.name):
      self._closing.append(stream)
      if (call := self._waiting.pop(stream, None)) is not None:
        call.reply.set_exception(CloudError(Status.NOT_FOUND, "the stream was closed"))

  def take(self, now: float, waited: Callable[[float], None] = lambda seconds: None) -> list[tuple[bytes, Work]]:
    """The work of the engine before its next step: streams, and functions of the engine, in order.

    Args:
      waited: receives the seconds for which each call was queued.
    """
    if now >= self._swept + _SWEEP_S:
      self._forget_idle(now)
    streams, self._closing = self._closing, []
    for stream in streams:
      self._in_engine.pop(stream, None)
    closing = [(stream, lambda engine, stream=stream: engine.close(stream)) for stream in streams]
    queue, self._queue = self._queue, []
    running = []
    for call in queue:
      if self._waiting.get(call.stream) is not call:
        continue  # its stream was closed
      if call.deadline <= now:
        del self._waiting[call.stream]
        self.table.drop(call.stream)
        call.reply.set_exception(CloudError(Status.DEADLINE_EXCEEDED, "the deadline passed before the call was run"))
      else:
        self._in_engine[call.stream] = call
        waited(now - call.arrived)
        running.append((call.stream, call.work))
    return [*closing, *running]

  def give(self, results: Sequence[tuple[bytes, bytes | Exception]], now: float, *, step_s: float) -> None:
    """Takes the results of the engine's step, which took ``step_s`` seconds."""
    if results:
      self._step_s += (1.0 if self._step_s == 0 else _SHARE) * (step_s - self._step_s)
      self._per_step += _SHARE * (len(results) - self._per_step)
    for stream, result in results:
      call = self._in_engine.pop(stream, None)
      if call is None or self._waiting.get(stream) is not call:
        continue  # closed while it ran, and possibly opened again
      del self._waiting[stream]
      if isinstance(result, bytes):
        self.table.finish(stream, result, now)
        call.reply.set_result(result)
        continue
      if isinstance(result, MessageError):
        self.table.drop(stream)  # an invalid frame changed nothing
      else:
        self.table.forget(stream)
      if stream not in self.table:
        self._closing.append(stream)
      call.reply.set_exception(refusal_of(result))

  def stop(self, reason: str) -> None:
    """Refuses all calls, waiting ones included: the engine computes no more."""
    self.draining = True
    waiting, self._waiting = list(self._waiting.values()), {}
    for call in waiting:
      call.reply.set_exception(CloudError(Status.UNAVAILABLE, reason))

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
  ) -> Future[bytes]:
    """Answers, joins, or queues a call. A call that the quota refuses leaves no trace in the table."""
    decision = decide()
    if isinstance(decision, bytes):
      cached: Future[bytes] = Future()
      cached.set_result(decision)
      return cached
    if decision is Decision.JOIN:
      call = self._waiting[stream]
      call.deadline = max(call.deadline, deadline)
      return call.reply
    try:
      if deadline - now < self.estimate_s:
        raise self._busy("the queue is longer than the deadline", self.estimate_s)
      if len(self._waiting) >= self.limits.queue:
        raise self._busy(f"{len(self._waiting)} calls are waiting", self.estimate_s)
      pay()
    except CloudError:
      self.table.drop(stream)
      if replaces:
        self._closing.append(stream)  # the table has lost its old state; the edge resumes it
      raise
    if replaces:
      self._closing.append(stream)
    call = self._waiting[stream] = _Queued(stream, work, deadline, now)
    self._queue.append(call)
    return call.reply

  def _usage_of(self, tenant: Tenant, now: float) -> Usage:
    usage = self._usage.get(tenant.name)
    if usage is None or usage.quota != tenant.quota:
      usage = self._usage[tenant.name] = Usage(tenant.quota, now)
    return usage

  def _check_draining(self) -> None:
    if self.draining:
      raise CloudError(Status.UNAVAILABLE, "the server is going down")

  def _busy(self, detail: str, seconds: float) -> CloudError:
    """A refusal whose pushback is ``seconds`` times 0.5 to 1.5, so that edges do not retry at the same time."""
    return CloudError(Status.RESOURCE_EXHAUSTED, detail, pushback_s=max(0.01, seconds) * (0.5 + self._jitter()))

  def _forget_idle(self, now: float) -> None:
    self._swept = now
    for stream in self.table.idle(now - self.limits.forget_s):
      self.table.forget(stream)
      self._closing.append(stream)


def refusal_of(error: Exception) -> CloudError:
  """The `CloudError` of an error, for the edge."""
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
