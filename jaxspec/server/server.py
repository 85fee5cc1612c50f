"""A whole server: engine, desk, front end, health, metrics, and how it starts and ends.

1. Health says ``SERVING`` once the port is open and the engine runs.
2. On SIGTERM (or `Server.drain`) it says ``NOT_SERVING``, lets no call in, answers those that wait, and ends.
3. When the engine fails or hangs, calls that wait are refused and the process ends: it never serves half alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import random
import signal
import threading
from collections.abc import Callable

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # or its library writes bytes of strangers to the terminal
try:
  import grpc
  from grpc_health.v1 import health, health_pb2, health_pb2_grpc

  from jaxspec.server.front import SERVICE, Front
  from jaxspec.server.metrics import Metrics
except ImportError as missing:
  raise ImportError("A server needs: pip install 'jaxspec-decoding[serve]'") from missing

from jaxspec.link.connection import is_loopback
from jaxspec.server import requests
from jaxspec.server.desk import Desk, Limits
from jaxspec.server.interface import Engine, description_of
from jaxspec.server.service import Service
from jaxspec.server.tokens import TokenFile

_LOG = logging.getLogger(__name__)
_WATCH_S = 0.05
GRACE_S = 10.0
_OPTIONS = {
  "grpc.so_reuseport": 0,  # a second server on the same port is an error
  "grpc.http2.min_ping_interval_without_data_ms": 100,
  "grpc.http2.min_recv_ping_interval_without_data_ms": 100,
  "grpc.http2.max_ping_strikes": 2,
  "grpc.http2.bdp_probe": 0,  # frames are small: its pings would cost as much as they do
  "grpc.max_concurrent_streams": 64,
  "grpc.server_handshake_timeout_ms": 5000,
  "grpc.max_connection_idle_ms": 300_000,
  "grpc.max_connection_age_ms": 600_000,  # nothing else ends a call whose body never comes
  "grpc.max_connection_age_grace_ms": 30_000,
  "grpc.max_metadata_size": 4096,
  "grpc.absolute_max_metadata_size": 4096,
}


@dataclasses.dataclass(frozen=True)
class Listen:
  """Where a server listens, and who may connect.

  Attributes:
    address: ``HOST:PORT``; port 0 takes a free one.
    certificate: PEM, with ``key``; without them there is no TLS.
    client_ca: PEM; clients must have a certificate of it.
    insecure: without TLS, listen on other addresses than those of this machine.
    reflection: whether tools may ask for the protocol.
    options: gRPC's, over those of the module.
  """

  address: str = "127.0.0.1:0"
  certificate: bytes | None = None
  key: bytes | None = None
  client_ca: bytes | None = None
  insecure: bool = False
  reflection: bool = False
  options: dict[str, int] = dataclasses.field(default_factory=dict)

  def __post_init__(self):
    host, colon, port = self.address.rpartition(":")
    if not (host and colon and port.isdigit()):
      raise ValueError(f"Must have an address HOST:PORT to listen on, we instead got {self.address!r}")
    if (self.certificate is None) != (self.key is None):
      raise ValueError("Must have a certificate and its key, we instead got one of them")
    if self.certificate is None and self.client_ca is not None:
      raise ValueError("Must have a certificate and its key to ask clients for theirs, we instead got none")
    if self.certificate is None and not self.insecure and not is_loopback(host):
      raise ValueError(
        f"Must have TLS (a certificate and its key) or --insecure to listen on {host}, we instead got neither"
      )


class Server:
  """A server of one engine. As a context it runs in a thread; `run` runs it in this one until a signal.

  Args:
    engine: compiled and ready.
    tokens: who may open streams; None lets everybody.
    limits: by default as many streams as the engine holds.
    grace_s: how long calls that wait may take after SIGTERM.

  Attributes:
    address: what clients connect to, valid while it runs.
    token: a secret for whoever has this object, without a quota; None where everybody is let in.
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
    self._listen, self._tokens, self._grace_s = listen, tokens, grace_s
    self.metrics = Metrics() if metrics is None else metrics
    self.desk = Desk(Limits(engine.max_held) if limits is None else limits, jitter=random.random)
    self.service = Service(engine, self.desk, report=self.metrics)
    self.metrics.watch(lambda: len(self.desk.table), lambda: self.desk.waiting)
    self._served = description_of(engine)
    self._front = Front(self.service, self._served, tokens=tokens, auth_every_call=auth_every_call, metrics=self.metrics)
    self._thread: threading.Thread | None = None
    self._loop: asyncio.AbstractEventLoop | None = None
    self._end: asyncio.Event | None = None
    self.address = ""
    self.token = None if tokens is None else tokens.issue("this process")

  def __enter__(self) -> Server:
    ready, failure = threading.Event(), []

    def work() -> None:
      try:
        asyncio.run(self._serve(ready.set))
      except BaseException as error:
        failure.append(error)
      finally:
        ready.set()

    self._thread = threading.Thread(target=work, name="jaxspec-server", daemon=True)
    self._thread.start()
    ready.wait()
    if failure:
      raise failure[0]
    return self

  def __exit__(self, *_) -> None:
    self.drain()
    self._thread.join()

  def drain(self) -> None:
    """No new calls; what waits is answered, and the server ends."""
    with contextlib.suppress(RuntimeError):  # it has ended
      self._loop.call_soon_threadsafe(self._end.set)

  def run(self, ready: Callable[[], None] = lambda: None) -> int:
    """Serves until SIGTERM or SIGINT, or until the engine fails. SIGHUP reads the tokens again.

    Args:
      ready: called once the server answers.
    Returns:
      The exit status: 0 after a signal, 1 after a failure.
    """
    asyncio.run(self._serve(ready, signals=True))
    return 1 if self.service.failure is not None else 0

  async def _serve(self, ready: Callable[[], None], *, signals: bool = False) -> None:
    self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
    server = grpc.aio.server(options=list((self._options() | self._listen.options).items()))
    server.add_generic_rpc_handlers((self._front.handlers,))
    status = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(status, server)
    if self._listen.reflection:
      from grpc_reflection.v1alpha import reflection

      reflection.enable_server_reflection((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    self.address = self._bind(server)
    self.service.start()
    await server.start()
    await self._say(status, health_pb2.HealthCheckResponse.SERVING)
    if signals:
      for number in (signal.SIGTERM, signal.SIGINT):
        self._loop.add_signal_handler(number, self._end.set)
      if self._tokens is not None:
        self._loop.add_signal_handler(signal.SIGHUP, self._tokens.reload)
    ready()
    await self._until_the_end()
    await self._say(status, health_pb2.HealthCheckResponse.NOT_SERVING)
    self.service.drain()
    deadline = self._loop.time() + self._grace_s
    while not self.service.is_idle and not self.service.has_failed and self._loop.time() < deadline:
      await asyncio.sleep(_WATCH_S / 5)
    await server.stop(min(1.0, self._grace_s))
    self.service.stop(timeout_s=1.0)

  async def _until_the_end(self) -> None:
    while not self._end.is_set() and not self.service.has_failed:
      with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(self._end.wait(), _WATCH_S)

  async def _say(self, status: health.aio.HealthServicer, value: int) -> None:
    for name in ("", SERVICE):
      await status.set(name, value)

  def _options(self) -> dict[str, int]:
    return _OPTIONS | {"grpc.max_receive_message_length": requests.max_request_bytes(self._served)}

  def _bind(self, server: grpc.aio.Server) -> str:
    """Opens the port; returns the address that a client connects to."""
    listen = self._listen
    host = listen.address.rpartition(":")[0]
    try:
      if listen.certificate is None:
        port, scheme = server.add_insecure_port(listen.address), "grpc"
      else:
        pair = ((listen.key, listen.certificate),)
        asks = listen.client_ca is not None
        port = server.add_secure_port(listen.address, grpc.ssl_server_credentials(pair, listen.client_ca, asks))
        scheme = "grpcs"
    except RuntimeError as error:
      raise OSError(f"Cannot listen on {listen.address}: the port is taken, or the certificate is not one") from error
    return f"{scheme}://{host}:{port}"
