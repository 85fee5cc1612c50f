"""The hooks of a server for its metrics, which do nothing here."""

from __future__ import annotations


class MetricsHooks:
  """Hooks of the engine's thread and of the servicer."""

  def waited(self, seconds: float) -> None:
    """A call was queued for ``seconds``."""

  def stepped(self, seconds: float, rows: int) -> None:
    """A step of the engine took ``seconds`` and computed ``rows`` rows, at least one."""

  def called(self, method: str, status: str, seconds: float) -> None:
    """A call ended with a status after ``seconds``."""

  def resumed(self) -> None:
    """A stream was opened with a prefix."""

  def frames(self, up: int, down: int) -> None:
    """The frames of a call had ``up`` bytes in the request and ``down`` bytes in the reply."""
