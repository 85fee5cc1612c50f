"""What is told to metrics, wherever they are counted. Everything here does nothing."""

from __future__ import annotations


class StepReport:
  """What happens in the engine's thread."""

  def waited(self, seconds: float) -> None:
    """A call was in the queue for so long."""

  def stepped(self, seconds: float, rows: int) -> None:
    """A step of the engine took so long, in which its program computed so many rows: at least one."""


class CallReport:
  """What happens at a socket."""

  def called(self, method: str, status: str, seconds: float) -> None:
    """A call was answered, with a status."""

  def resumed(self) -> None:
    """A stream was opened with a prefix."""

  def frames(self, up: int, down: int) -> None:
    """A call brought and took away so many bytes of frames."""
