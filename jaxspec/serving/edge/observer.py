"""The observer of the calls of a stream."""

from __future__ import annotations

from collections.abc import Callable

from jaxspec.serving.wire.handshake import Handshake, HandshakeReply, Resume


class Observer:
  """Is called by `jaxspec.serving.edge.reliable_stream.ReliableStream`, and counts failures. Replayed replies of a journal
  are left out.

  Attributes:
    retries: attempts after the first ones, of all calls.
    resumes: number of times that a server had lost a stream.
  """

  def __init__(self):
    self.retries = self.resumes = 0

  def begins(self) -> None:
    """A call begins; the handshake is one."""

  def opened(self, handshake: Handshake, opened: HandshakeReply) -> None:
    """A new stream was opened; resumed streams are left out."""

  def answered(self, seq: int, part: int, frame: bytes, reply: bytes, resume: Callable[[], Resume]) -> None:
    """A call has its reply.

    Args:
      frame: the frame that was sent.
      reply: the frame of the reply.
      resume: returns the state of the stream before this call.
    """

  def retried(self) -> None:
    """An attempt failed, and another one follows."""
    self.retries += 1

  def resumed(self) -> None:
    """A stream was resumed at a server that had lost it."""
    self.resumes += 1
