"""What an edge needs of a cloud: three functions on bytes, whatever stands behind them.

A stream is one row. Its name is a string of bytes that the edge chose. The edge owns the truth: all that a cloud holds of a
stream can be made again from its `OpenCall` and a `Resume`, so a cloud may forget a stream at any time (`UnknownStream`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from jaxspec.types import PyTree

KEY_KIND = "threefry2x32"  # of row keys
_PAUSE_S = 1e-3


class OpenCall(NamedTuple):
  """How a stream is opened."""

  profile: int  # number of one of the cloud's profiles, from 0
  key: bytes  # 8 bytes big-endian, the data of a threefry2x32 row key
  condition: PyTree  # the family's condition with one row, a named tuple of host arrays
  max_len: int
  end_tokens: tuple[int, ...] = ()
  temperature: float = 1.0
  top_p: float = 1.0
  cfg_scale: float = 1.0


class Resume(NamedTuple):
  """What a cloud had read of a stream, so that another one goes on with it.

  The tokens are those after the last answered call: all that the cloud had read, and its own newest one.
  """

  round: int  # the first round that may come
  tokens: tuple[int, ...]
  gained: tuple[int, ...]  # of every answered call: tokens that the cloud then knew more than before
  fed: tuple[int, ...]  # of every answered call: tokens that it brought, drafts included


class UnknownStream(LookupError):
  """The cloud knows no stream of this name; it may have forgotten it."""


class Cloud(Protocol):
  """A target behind bytes. Frames are those of `jaxspec.link.message` and `jaxspec.link.gated_message`."""

  def open(self, stream: bytes, opening: OpenCall, resume: Resume | None = None) -> bytes:
    """Opens a stream and returns its first frame, token 0."""
    ...

  def verify(self, stream: bytes, part: int, frame: bytes) -> bytes:
    """Answers the frame of one round; part 1 brings the distribution that the answer to part 0 requested.

    Raises:
      UnknownStream: if the cloud has forgotten the stream; it can be opened again with a `Resume`.
      MessageError: for a frame that is not valid; nothing has changed then.
    """
    ...

  def close(self, stream: bytes) -> None:
    """Forgets a stream, also one that is not known."""
    ...


class Server(Protocol):
  """The part of `jaxspec.server.engine.Engine` that a `LocalCloud` drives."""

  def open(self, stream: bytes, opening: OpenCall, resume: Resume | None = None, *, now: float) -> None: ...

  def submit(self, stream: bytes, part: int, frame: bytes, *, now: float) -> None: ...

  def step(self, now: float) -> list[tuple[bytes, bytes | Exception]]: ...

  def close(self, stream: bytes) -> None: ...


class LocalCloud:
  """A `Cloud` in this process: whoever waits for an answer runs the steps of an engine. Threads may share it.

  Args:
    engine: what answers.
    clock: seconds.
  """

  def __init__(self, engine: Server, clock: Callable[[], float] = time.monotonic):
    self._engine, self._clock = engine, clock
    self._lock = threading.Lock()
    self._answers: dict[bytes, bytes | Exception] = {}

  def open(self, stream: bytes, opening: OpenCall, resume: Resume | None = None) -> bytes:
    """See `Cloud.open`."""
    with self._lock:
      self._engine.open(stream, opening, resume, now=self._clock())
    return self._answer(stream)

  def verify(self, stream: bytes, part: int, frame: bytes) -> bytes:
    """See `Cloud.verify`."""
    with self._lock:
      self._engine.submit(stream, part, frame, now=self._clock())
    return self._answer(stream)

  def close(self, stream: bytes) -> None:
    """See `Cloud.close`."""
    with self._lock:
      self._engine.close(stream)
      self._answers.pop(stream, None)

  def _answer(self, stream: bytes) -> bytes:
    """Runs steps until the stream is answered; between two steps other threads may call."""
    while True:
      with self._lock:
        found = [] if stream in self._answers else self._engine.step(self._clock())
        self._answers.update(found)
        answer = self._answers.pop(stream, None)
      if isinstance(answer, Exception):
        raise answer
      if answer is not None:
        return answer
      # Lets a thread have the lock that waits for it; calls that wait for others must not keep a core busy.
      time.sleep(0 if found else _PAUSE_S)
