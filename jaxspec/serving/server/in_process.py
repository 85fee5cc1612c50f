"""A cloud in this process: dispatcher and engine, without their own thread and without sockets.

A thread that waits for a reply runs the steps. Calls that arrive during a step share the next one. Neither gRPC nor protobuf
is needed.
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from jaxspec.serving.server.dispatcher import Dispatcher, Limits, OpenCall, VerifyCall, refusal_of
from jaxspec.serving.server.engine_interface import Engine, description_of
from jaxspec.serving.server.engine_thread import run_once
from jaxspec.serving.server.idempotency import Position
from jaxspec.serving.server.quotas import Tenant
from jaxspec.serving.server.versions import check_versions
from jaxspec.serving.wire.bitstream import MessageError
from jaxspec.serving.wire.framing import unframe
from jaxspec.serving.wire.handshake import Handshake, HandshakeReply, Resume

_TENANT = Tenant("")
_PAUSE_S = 1e-3


class LocalCloud:
  """A `Cloud` around an engine; threads may share it.

  Calls have no deadline, because their caller computes them: ``timeout_s`` is not read.

  Args:
    engine: computes replies; only this cloud may call it.
    limits: by default as many streams as the engine knows.
    clock: seconds.

  Attributes:
    description: of the server.
  """

  def __init__(self, engine: Engine, *, limits: Limits | None = None, clock: Callable[[], float] = time.monotonic):
    self.description = description_of(engine)
    self._engine, self._clock = engine, clock
    self._dispatcher = Dispatcher(Limits(engine.max_known) if limits is None else limits, jitter=random.random)
    self._dispatcher_lock, self._engine_lock = threading.Lock(), threading.Lock()

  def open(self, handshake: Handshake, resume: Resume | None = None, *, timeout_s: float = math.inf) -> HandshakeReply:
    """See `Cloud.open`."""
    check_versions(handshake, self.description)
    plain, request = repr(handshake).encode(), repr((handshake, resume)).encode()
    with self._dispatcher_lock:
      reply = self._dispatcher.open(OpenCall(_TENANT, handshake, resume, plain, request), now=self._clock())
    return HandshakeReply(self._wait(reply), 1 if resume is None else resume.next_seq, self.description.numerics)

  def verify(self, stream: bytes, seq: int, part: int, frame: bytes, *, timeout_s: float = math.inf) -> bytes:
    """See `Cloud.verify`."""
    try:
      call = VerifyCall(stream, Position(seq, part), unframe(frame, len(frame)), 0, _TENANT)
    except MessageError as error:
      raise refusal_of(error) from error
    with self._dispatcher_lock:
      reply = self._dispatcher.verify(call, now=self._clock())
    return self._wait(reply)

  def close(self, stream: bytes, *, timeout_s: float = math.inf) -> None:
    """See `Cloud.close`."""
    with self._dispatcher_lock:
      self._dispatcher.close(_TENANT, stream)
    with self._engine_lock:
      self._step()

  def _wait(self, reply: Future[bytes]) -> bytes:
    """Runs steps until there is a reply, or waits while another thread runs them.

    Raises:
      CloudError: if the call is refused.
    """
    has_results = True
    while not reply.done():
      with self._engine_lock:
        if not reply.done():
          has_results = self._step() > 0
      # A waiting thread can take the lock now. A pause without results leaves the core to other work.
      time.sleep(0 if has_results else _PAUSE_S)
    return reply.result()

  def _step(self) -> int:
    return run_once(self._dispatcher, self._engine, self._clock, self._dispatcher_lock)
