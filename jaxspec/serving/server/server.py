"""A server in one process: engine thread, gRPC, health, metrics, start and end.

1. The health service replies ``SERVING`` once the port is open and the engine runs.
2. On SIGTERM (or `Server.drain`) it replies ``NOT_SERVING``. New calls are refused, waiting calls get their replies, and the
   server ends.
3. When the engine fails or hangs, waiting calls are refused and the process ends.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
from collections.abc import Callable

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # or gRPC logs received bytes
try:
  from jaxspec.serving.server.grpc_server import GrpcServer
  from jaxspec.serving.server.prometheus import Metrics
  from jaxspec.serving.server.servicer import Servicer
except ImportError as missing:
  raise ImportError("A server needs: pip install 'jaxspec-decoding[serve]'") from missing

from jaxspec.serving.server.bearer_tokens import TokenFile
from jaxspec.serving.server.dispatcher import Dispatcher, Limits
from jaxspec.serving.server.engine_interface import Engine, description_of
from jaxspec.serving.server.engine_thread import EngineThread
from jaxspec.serving.server.listen import Listen

_POLL_S = 0.05
GRACE_S = 10.0


class Server:
  """A server of one engine. As a context it runs in a thread; `run` runs it in this one until a signal.

  Args:
    engine: compiled and ready.
    tokens: bearer tokens that may open streams; None disables authentication.
    auth_every_call: require the token in every call, not only in handshakes.
    limits: by default as many streams as the engine knows.
    grace_s: most seconds for the waiting calls after SIGTERM.

  Attributes:
    address: URL for clients, valid while the server runs.
    token: a secret without a quota, for the owner of this object; None without authentication.
  """

  def __init__(
    self,
    engine: Engine,
    listen: Listen = Listen(),
    *,
    tokens: TokenFile | None = None,
    auth_every_call: bool = False,
    limits: Limits | None = None,
    metrics: Metrics | None = None,
    grace_s: float = GRACE_S,
  ):
    self._tokens, self._grace_s = tokens, grace_s
    self.metrics = Metrics() if metrics is None else metrics
    self.dispatcher = Dispatcher(Limits(engine.max_known) if limits is None else limits, jitter=random.random)
    self.engine_thread = EngineThread(engine, self.dispatcher, metrics=self.metrics)
    self.metrics.set_gauges(lambda: len(self.dispatcher.table), lambda: self.dispatcher.waiting)
    served = description_of(engine)
    servicer = Servicer(self.engine_thread, served, tokens=tokens, auth_every_call=auth_every_call, metrics=self.metrics)
    self.grpc_server = GrpcServer(servicer, listen, served)
    self._end, self._ready = threading.Event(), threading.Event()
    self._failure: BaseException | None = None
    self._thread = threading.Thread(target=self._work, name="jaxspec-server", daemon=True)
    self.address = ""
    self.token = None if tokens is None else tokens.issue("this process")

  def __enter__(self) -> Server:
    self._thread.start()
    self._ready.wait()
    if self._failure is not None:
      raise self._failure
    return self

  def __exit__(self, *_) -> None:
    self.drain()
    self._thread.join()

  def drain(self) -> None:
    """Refuses new calls, replies to the waiting ones, and ends the server."""
    self._end.set()

  def run(self, ready: Callable[[], None] = lambda: None) -> int:
    """Serves until SIGTERM or SIGINT, or until the engine fails. SIGHUP reloads the tokens.

    Args:
      ready: is called once the port is open.
    Returns:
      The exit status: 0 after a signal, 1 after a failure.
    """
    asyncio.run(self._serve(ready, signals=True))
    return 0 if self.engine_thread.failure is None else 1

  def _work(self) -> None:
    try:
      asyncio.run(self._serve(self._ready.set))
    except BaseException as error:
      self._failure = error
    finally:
      self._ready.set()

  async def _serve(self, ready: Callable[[], None], *, signals: bool = False) -> None:
    loop, engine_thread = asyncio.get_running_loop(), self.engine_thread
    port = await self.grpc_server.open()
    self.address = port.address
    engine_thread.start()
    if signals:
      for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, self._end.set)
      if self._tokens is not None:
        loop.add_signal_handler(signal.SIGHUP, self._tokens.reload)
    ready()
    while not self._end.is_set() and not engine_thread.has_failed:
      await asyncio.sleep(_POLL_S)
    await port.refuse()
    engine_thread.drain()
    deadline = loop.time() + self._grace_s
    while not engine_thread.is_idle and not engine_thread.has_failed and loop.time() < deadline:
      await asyncio.sleep(_POLL_S / 5)
    await port.close(min(1.0, self._grace_s))
    engine_thread.stop(timeout_s=1.0)
