"""Progress of a long computation."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
  """Receives stages and their progress; `jaxspec.render.working.Working` shows it in a terminal."""

  def __call__(self, text: str) -> None:
    """Begins a new stage."""

  def step(
    self, done: int, total: int, unit: str, text: str | None = None, *, at_most: bool = False, since: int = 0
  ) -> None:
    """Reports that ``done`` of ``total`` units of the stage are done, ``since`` of them before it began.

    ``text`` replaces the name of the stage.
    """


class Silent:
  """A `Progress` without output."""

  def __call__(self, text: str) -> None:
    pass

  def step(
    self, done: int, total: int, unit: str, text: str | None = None, *, at_most: bool = False, since: int = 0
  ) -> None:
    pass


SILENT = Silent()
