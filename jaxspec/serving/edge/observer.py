"""What somebody is told about the calls of streams while they are decoded."""

from __future__ import annotations

from collections.abc import Callable

from jaxspec.serving.wire.cloud import Opened, Opening, Resume


class Watch:
  """Told by `jaxspec.serving.edge.reliable_stream.Session`; counts what went wrong. Replies out of a journal are not told.

  Attributes:
    retries: attempts after the first ones, of all calls.
    resumes: how often a server had lost a stream.
  """

  def __init__(self):
    self.retries = self.resumes = 0

  def begins(self) -> None:
    """A call begins; the opening is one."""

  def opened(self, opening: Opening, opened: Opened) -> None:
    """A new stream was opened; not told when it is opened again."""

  def answered(self, seq: int, part: int, frame: bytes, reply: bytes, resume: Callable[[], Resume]) -> None:
    """A call was answered.

    Args:
      frame: that was sent.
      reply: the frame that came back.
      resume: makes what another server would need to go on before this call.
    """

  def retried(self) -> None:
    """An attempt failed, and another one follows."""
    self.retries += 1

  def resumed(self) -> None:
    """A server had lost the stream, and has it again."""
    self.resumes += 1
