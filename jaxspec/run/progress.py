"""What a long computation says while it runs."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
  """Receives what begins, and how much of it is done; `jaxspec.render.working.Working` shows it in a terminal."""

  def __call__(self, text: str) -> None:
    """A new stage begins."""

  def step(self, done: int, total: int, unit: str, text: str | None = None, *, at_most: bool = False) -> None:
    """``done`` of ``total`` units of the stage are done; ``text`` replaces the name of the stage."""


class Silent:
  """A `Progress` that shows nothing."""

  def __call__(self, text: str) -> None:
    pass

  def step(self, done: int, total: int, unit: str, text: str | None = None, *, at_most: bool = False) -> None:
    pass


SILENT = Silent()
