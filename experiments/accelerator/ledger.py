"""Cells of a step: measured once, written at once, and skipped when the step runs again."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


class TimeIsUp(Exception):
  """The time limit of this run is reached; the text names the next cell."""


class Clock:
  """Time limit of a run.

  Args:
    seconds: after which no cell begins.
  """

  def __init__(self, seconds: float):
    self._end = time.monotonic() + seconds

  @property
  def left(self) -> float:
    """Seconds."""
    return self._end - time.monotonic()

  def check(self, following: str) -> None:
    """Raises `TimeIsUp` after the limit."""
    if self.left <= 0:
      raise TimeIsUp(following)


def is_failed(cell: Any) -> bool:
  """Whether a cell holds an error instead of figures."""
  return isinstance(cell, dict) and "error" in cell


class Ledger:
  """The file of a step: ``{..., "cells": {name: figures}}``; a context that writes it at its end.

  Args:
    file: JSON; cells of earlier runs stay.
    about: facts of the newest run besides the cells.
    again: whether failed cells are repeated.
  Raises:
    ValueError: for a file of a rehearsal in a real run, the reverse, or a file without a step.
  """

  def __init__(self, file: Path, about: dict[str, Any], *, again: bool = False):
    self._file = file
    old = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    if not isinstance(old, dict) or (old and not (isinstance(old.get("cells"), dict) and "rehearsal" in old)):
      raise ValueError(f"Corrupt {file}: must hold the cells of a step")
    if old and old["rehearsal"] != about["rehearsal"]:
      kinds = {True: "a rehearsal", False: "a real run"}
      raise ValueError(f"Must have a folder of {kinds[about['rehearsal']]}, {file} is of {kinds[old['rehearsal']]}")
    cells = {name: cell for name, cell in old.get("cells", {}).items() if not (again and is_failed(cell))}
    self._document = {**about, "cells": cells}

  def __enter__(self) -> Ledger:
    return self

  def __exit__(self, *_: object) -> None:
    self._write()

  @property
  def folder(self) -> Path:
    """Folder of its file."""
    return self._file.parent

  @property
  def cells(self) -> dict[str, Any]:
    """The measured cells."""
    return self._document["cells"]

  @property
  def failed(self) -> list[str]:
    """One line for every cell that failed."""
    return [f"{name}: {cell['error']}" for name, cell in self.cells.items() if is_failed(cell)]

  def cell(self, name: str, clock: Clock, measure: Callable[[], Any]) -> Any:
    """The figures of a cell, measured if they are missing; a failure is written with its error.

    Raises:
      TimeIsUp: instead of measuring it.
    """
    if name not in self.cells:
      clock.check(name)
      started = time.perf_counter()
      try:
        figures = measure()
      except (TimeIsUp, KeyboardInterrupt):
        raise
      except Exception as error:  # a network that does not fit must not end the run
        figures = {"error": " ".join(str(error).split())[:300] or type(error).__name__}
      self.cells[name] = figures
      self._write()
      print(f"{name}: {time.perf_counter() - started:.1f} s", file=sys.stderr, flush=True)
    return self.cells[name]

  def _write(self) -> None:
    work = self._file.with_suffix(".part")
    work.write_text(json.dumps(self._document, indent=1) + "\n", encoding="utf-8")
    os.replace(work, self._file)
