"""Runs an engine in a thread of its own, and lets coroutines wait for the answers of its calls.

The thread alone touches the engine. It and the coroutines share the desk under one lock, which is never held while the
engine computes. When the engine fails, or a step hangs, the service stops: it never serves half alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable

from jaxspec.serving.server.dispatcher import Desk, OpenCall, Tenant, Ticket, VerifyCall
from jaxspec.serving.server.engine_interface import ROW_ERRORS, Engine
from jaxspec.serving.server.metrics_hooks import StepReport
from jaxspec.serving.wire.bitstream import MessageError
from jaxspec.serving.wire.cloud import CloudError

_LOG = logging.getLogger(__name__)
_PAUSE_S = 0.001


def run_once(
  desk: Desk,
  engine: Engine,
  clock: Callable[[], float],
  lock: contextlib.AbstractContextManager | None = None,
  report: StepReport | None = None,
) -> int:
  """Hands what is queued to the engine, runs one step, and brings the results back.

  Args:
    lock: protects the desk, where others use it.
  Returns:
    The number of results.
  Raises:
    Exception: when the engine can compute no more.
  """
  lock = contextlib.nullcontext() if lock is None else lock
  report = StepReport() if report is None else report
  with lock:
    work = desk.take(clock(), report.waited)
  refused: list[tuple[bytes, bytes | Exception]] = []
  for stream, each in work:
    try:
      each(engine)
    except (MessageError, *ROW_ERRORS) as error:
      refused.append((stream, error))
  started = clock()
  results = refused + engine.step(started)
  ended = clock()
  if engine.rows_of_step:
    report.stepped(ended - started, engine.rows_of_step)
  with lock:
    desk.give(results, ended, step_s=ended - started)
  return len(results)


class Service:
  """An engine with its desk and its thread.

  Args:
    engine: handed over to the thread; nobody else calls it any more.
    hang_s: a step that takes longer is a failure.
  """

  def __init__(
    self,
    engine: Engine,
    desk: Desk,
    *,
    clock: Callable[[], float] = time.monotonic,
    hang_s: float = 120.0,
    report: StepReport | None = None,
  ):
    self.engine, self.desk, self.clock = engine, desk, clock  # of deadlines too
    self._hang_s, self._report = hang_s, report
    self._lock, self._wake, self._stopping = threading.Lock(), threading.Event(), False
    self._step_began: float | None = None
    self.failure: BaseException | None = None
    self._thread = threading.Thread(target=self._run, name="jaxspec-engine", daemon=True)

  def start(self) -> None:
    """Starts the engine's thread."""
    self._thread.start()

  def stop(self, timeout_s: float = 10.0) -> None:
    """Ends the thread after its step; calls that are left are refused."""
    self._stopping = True
    self._wake.set()
    if self._thread.is_alive():
      self._thread.join(timeout_s)
    self._give_up("the server is going down")

  def drain(self) -> None:
    """No new calls; those that wait are answered."""
    with self._lock:
      self.desk.draining = True

  @property
  def is_idle(self) -> bool:
    """Whether nobody waits for an answer."""
    with self._lock:
      return self.desk.is_idle

  @property
  def has_failed(self) -> bool:
    """Whether the engine ended or hangs; the process must end then."""
    began = self._step_began
    hangs = began is not None and self.clock() - began > self._hang_s
    if hangs and self.failure is None:
      self.failure = TimeoutError(f"a step took longer than {self._hang_s:g} s")
      self._give_up("the server's engine hangs")
    return self.failure is not None

  async def open(self, call: OpenCall) -> bytes:
    """See `Desk.open`; the frame of token 0."""
    return await self._call(lambda desk, now: desk.open(call, now=now))

  async def verify(self, call: VerifyCall) -> bytes:
    """See `Desk.verify`; the reply frame."""
    return await self._call(lambda desk, now: desk.verify(call, now=now))

  async def close(self, tenant: Tenant | None, stream: bytes) -> None:
    """See `Desk.close`."""
    await self._call(lambda desk, now: desk.close(tenant, stream))

  async def _call(self, arrive: Callable[[Desk, float], bytes | Ticket | None]) -> bytes | None:
    """Lets a call arrive at the desk, and waits for its answer.

    Args:
      arrive: calls one function of the desk, with the time.
    Raises:
      CloudError: where the call is refused.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[bytes] = loop.create_future()

    def settle(answer: bytes | CloudError) -> None:
      if future.done():
        return  # the caller is gone; its retry finds the reply in the table
      if isinstance(answer, CloudError):
        future.set_exception(answer)
      else:
        future.set_result(answer)

    def tell(answer: bytes | CloudError) -> None:
      with contextlib.suppress(RuntimeError):  # the loop ended before the answer came
        loop.call_soon_threadsafe(settle, answer)

    with self._lock:
      answer = arrive(self.desk, self.clock())
      if isinstance(answer, Ticket):
        answer.when_done(tell)
    self._wake.set()
    return await future if isinstance(answer, Ticket) else answer

  def _run(self) -> None:
    try:
      while not self._stopping:
        with self._lock:
          idle = self.desk.is_idle
        if idle:
          self._wake.wait(1.0)  # and look for streams to forget
          self._wake.clear()
        self._step_began = self.clock()
        results = run_once(self.desk, self.engine, self.clock, self._lock, self._report)
        self._step_began = None
        if not results:
          self._wake.wait(_PAUSE_S)  # the engine waits for more rows, or there was nothing to do
    except BaseException as error:  # whatever it is, the engine's state is unknown
      _LOG.exception("The engine failed")
      self.failure = error
      self._give_up("the server's engine failed")

  def _give_up(self, reason: str) -> None:
    with self._lock:
      self.desk.stop(reason)
