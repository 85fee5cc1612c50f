"""A cloud in this process: the server's bookkeeping and an engine, without a thread and without sockets.

Whoever waits for an answer runs the steps. Calls that arrive while a step computes wait for the next one, which takes them
together. Neither gRPC nor protobuf is needed.
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable

from jaxspec.serving.server.dispatcher import Desk, Limits, OpenCall, Tenant, Ticket, VerifyCall, refusal_of
from jaxspec.serving.server.engine_interface import Engine, description_of
from jaxspec.serving.server.engine_thread import run_once
from jaxspec.serving.server.idempotency import Position
from jaxspec.serving.server.versions import check_versions
from jaxspec.serving.wire.bitstream import MessageError
from jaxspec.serving.wire.cloud import CloudError, Opened, Opening, Resume
from jaxspec.serving.wire.framing import unframe

_TENANT = Tenant("")
_PAUSE_S = 1e-3


class LocalCloud:
  """A `Cloud` around an engine; threads may share it.

  A call has no deadline, for its caller does the work: ``timeout_s`` is not read.

  Args:
    engine: what answers. Nobody else calls it meanwhile.
    limits: by default as many streams as the engine holds.
    clock: seconds.

  Attributes:
    description: what the engine serves.
  """

  def __init__(self, engine: Engine, *, limits: Limits | None = None, clock: Callable[[], float] = time.monotonic):
    self.description = description_of(engine)
    self._engine, self._clock = engine, clock
    self._desk = Desk(Limits(engine.max_held) if limits is None else limits, jitter=random.random)
    self._desk_lock, self._engine_lock = threading.Lock(), threading.Lock()

  def open(self, opening: Opening, resume: Resume | None = None, *, timeout_s: float = math.inf) -> Opened:
    """See `Cloud.open`."""
    check_versions(opening, self.description)
    plain, request = repr(opening).encode(), repr((opening, resume)).encode()
    with self._desk_lock:
      answer = self._desk.open(OpenCall(_TENANT, opening, resume, plain, request), now=self._clock())
    return Opened(self._wait(answer), 1 if resume is None else resume.next_seq, self.description.numerics)

  def verify(self, stream: bytes, seq: int, part: int, frame: bytes, *, timeout_s: float = math.inf) -> bytes:
    """See `Cloud.verify`."""
    try:
      call = VerifyCall(stream, Position(seq, part), unframe(frame, len(frame)), 0, _TENANT)
    except MessageError as error:
      raise refusal_of(error) from error
    with self._desk_lock:
      answer = self._desk.verify(call, now=self._clock())
    return self._wait(answer)

  def close(self, stream: bytes, *, timeout_s: float = math.inf) -> None:
    """See `Cloud.close`."""
    with self._desk_lock:
      self._desk.close(_TENANT, stream)
    with self._engine_lock:
      self._step()

  def _wait(self, answer: bytes | Ticket) -> bytes:
    """Runs steps until there is an answer, or waits while another thread runs them."""
    if isinstance(answer, Ticket):
      ticket, has_results = answer, True
      while ticket.answer is None:
        with self._engine_lock:
          if ticket.answer is None:
            has_results = self._step() > 0
        # Lets a thread have the lock that waits for it; calls that wait for others must not keep a core busy.
        time.sleep(0 if has_results else _PAUSE_S)
      answer = ticket.answer
    if isinstance(answer, CloudError):
      raise answer
    return answer

  def _step(self) -> int:
    return run_once(self._desk, self._engine, self._clock, self._desk_lock)
