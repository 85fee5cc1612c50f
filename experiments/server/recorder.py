"""Makes traces of decodes while they run."""

from __future__ import annotations

import time
from collections.abc import Callable

from experiments.server.trace import Trace, TracedCall
from jaxspec.serving.edge.observer import Observer
from jaxspec.serving.wire.cloud import Description
from jaxspec.serving.wire.handshake import Handshake, HandshakeReply, Resume


class Recorder(Observer):
  """Keeps the calls of the newest stream.

  Args:
    clock: seconds, growing. What the recorder itself does is no thinking of the edge's.
  """

  def __init__(self, clock: Callable[[], float] = time.monotonic):
    super().__init__()
    self._clock = clock
    self._handshake: Handshake | None = None
    self._calls: list[TracedCall] = []
    self._resume = Resume(0, 0, (), (), ())
    self._free = self._think_s = 0.0

  def begins(self) -> None:
    self._think_s = self._clock() - self._free

  def opened(self, handshake: Handshake, opened: HandshakeReply) -> None:
    self._handshake, self._opened, self._calls, self._resume = handshake, opened, [], Resume(0, 0, (), (), ())
    self._free = self._clock()

  def answered(self, seq: int, part: int, frame: bytes, reply: bytes, resume: Callable[[], Resume]) -> None:
    if part == 0:
      self._resume = resume()
    self._calls.append(TracedCall(self._think_s, seq, part, self._resume.round, frame, reply))
    self._free = self._clock()

  def trace(self, served: Description, num_tokens: int) -> Trace:
    """The newest stream, once its row is finished.

    Args:
      served: the server's description.
      num_tokens: tokens of the row.
    Raises:
      ValueError: where no stream was opened; one out of a journal was not.
    """
    if self._handshake is None:
      raise ValueError("Must have a decode over a network to trace it, we instead got none")
    handshake, opened, self._handshake = self._handshake, self._opened, None
    profile = next(each for each in served.profiles if each.id == handshake.profile)._replace(id=0)
    return Trace(handshake, profile, opened.numerics, opened.frame, tuple(self._calls), self._resume, num_tokens)
