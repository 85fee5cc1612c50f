"""Runs an engine in its own thread; coroutines await the replies to its calls.

Only this thread calls the engine. It shares the dispatcher with the coroutines under one lock, and releases it while the
engine computes. When the engine fails, or a step hangs, all calls are refused, and the process must end.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from jaxspec.serving.server.dispatcher import Dispatcher, OpenCall, VerifyCall
from jaxspec.serving.server.engine_interface import ROW_ERRORS, Engine
from jaxspec.serving.server.metrics_hooks import MetricsHooks
from jaxspec.serving.server.quotas import Tenant
from jaxspec.serving.wire.bitstream import MessageError

_LOG = logging.getLogger(__name__)
_PAUSE_S = 0.001


def run_once(
  dispatcher: Dispatcher,
  engine: Engine,
  clock: Callable[[], float],
  lock: contextlib.AbstractContextManager | None = None,
  metrics: MetricsHooks | None = None,
) -> int:
  """Gives the queued calls to the engine, runs one step, and returns the results to the dispatcher.

  Args:
    lock: of the dispatcher, if several threads use it.
  Returns:
    The number of results.
  Raises:
    Exception: if the engine fails.
  """
  lock = contextlib.nullcontext() if lock is None else lock
  metrics = MetricsHooks() if metrics is None else metrics
  with lock:
    work = dispatcher.take(clock(), metrics.waited)
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
    metrics.stepped(ended - started, engine.rows_of_step)
  with lock:
    dispatcher.give(results, ended, step_s=ended - started)
  return len(results)


class EngineThread:
  """An engine with its dispatcher and its thread.

  Args:
    engine: from now on only the thread calls it.
    clock: seconds; deadlines of calls use it too.
    hang_s: a step that takes longer is a failure.

  Attributes:
    failure: the error that ended the engine; None while it runs.
  """

  def __init__(
    self,
    engine: Engine,
    dispatcher: Dispatcher,
    *,
    clock: Callable[[], float] = time.monotonic,
    hang_s: float = 120.0,
    metrics: MetricsHooks | None = None,
  ):
    self.engine, self.dispatcher, self.clock = engine, dispatcher, clock
    self._hang_s, self._metrics = hang_s, metrics
    self._lock, self._wake, self._stopping = threading.Lock(), threading.Event(), False
    self._step_began: float | None = None
    self.failure: BaseException | None = None
    self._thread = threading.Thread(target=self._run, name="jaxspec-engine", daemon=True)

  def start(self) -> None:
    """Starts the engine's thread."""
    self._thread.start()

  def stop(self, timeout_s: float = 10.0) -> None:
    """Ends the thread after its step and refuses the remaining calls."""
    self._stopping = True
    self._wake.set()
    if self._thread.is_alive():
      self._thread.join(timeout_s)
    self._give_up("the server is going down")

  def drain(self) -> None:
    """Refuses new calls; waiting ones get their replies."""
    with self._lock:
      self.dispatcher.draining = True

  @property
  def is_idle(self) -> bool:
    """Whether no call waits for a reply."""
    with self._lock:
      return self.dispatcher.is_idle

  @property
  def has_failed(self) -> bool:
    """Whether the engine failed or hangs. Then the process must end."""
    began = self._step_began
    hangs = began is not None and self.clock() - began > self._hang_s
    if hangs and self.failure is None:
      self.failure = TimeoutError(f"a step took longer than {self._hang_s:g} s")
      self._give_up("the server's engine hangs")
    return self.failure is not None

  async def open(self, call: OpenCall) -> bytes:
    """Waits for the frame of token 0; see `Dispatcher.open`."""
    return await self._reply(lambda now: self.dispatcher.open(call, now=now))

  async def verify(self, call: VerifyCall) -> bytes:
    """Waits for the reply frame; see `Dispatcher.verify`."""
    return await self._reply(lambda now: self.dispatcher.verify(call, now=now))

  def close(self, tenant: Tenant | None, stream: bytes) -> None:
    """See `Dispatcher.close`."""
    with self._lock:
      self.dispatcher.close(tenant, stream)
    self._wake.set()

  async def _reply(self, arrive: Callable[[float], Future[bytes]]) -> bytes:
    """Queues a call by a function of the time, and waits for its reply.

    Raises:
      CloudError: if the call is refused.
    """
    with self._lock:
      reply = arrive(self.clock())
    self._wake.set()
    # A cancelled caller must not cancel the future: others may wait for it, and a retry finds the reply in the table.
    return await asyncio.shield(asyncio.wrap_future(reply))

  def _run(self) -> None:
    try:
      while not self._stopping:
        with self._lock:
          idle = self.dispatcher.is_idle
        if idle:
          self._wake.wait(1.0)  # then remove idle streams
          self._wake.clear()
        self._step_began = self.clock()
        results = run_once(self.dispatcher, self.engine, self.clock, self._lock, self._metrics)
        self._step_began = None
        if not results:
          self._wake.wait(_PAUSE_S)  # the engine waits for more rows, or had no work
    except BaseException as error:  # after any error the engine's state is unknown
      _LOG.exception("The engine failed")
      self.failure = error
      self._give_up("the server's engine failed")

  def _give_up(self, reason: str) -> None:
    with self._lock:
      self.dispatcher.stop(reason)
