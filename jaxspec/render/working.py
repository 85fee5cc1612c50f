"""Progress of a long command on stderr: finished share, rate, and remaining time."""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Callable
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

LINE_EVERY_S = 15.0  # between two lines without a terminal
CHECK_EVERY_S = 1.0  # whether a line is due


class Working:
  """An updated line in the terminal, or regular new lines without one; a context manager.

  Calling it begins a stage. `step` reports its progress. Without a terminal, a stage that reports nothing (compiling) prints
  its time so far.

  Args:
    text: the first stage.
    console: by default of stderr.
    clock: seconds.
  """

  def __init__(self, text: str, *, console: Console | None = None, clock: Callable[[], float] = time.monotonic):
    self._console, self._clock = console or Console(stderr=True), clock
    plain = lambda template: TextColumn(template, markup=False)
    columns = [SpinnerColumn(), plain("{task.description}"), BarColumn(20), plain("{task.fields[figures]}")]
    self._progress = Progress(*columns, TimeElapsedColumn(), console=self._console, transient=True)
    self._text, self._begin, self._told = text, clock(), clock()
    self._task = self._progress.add_task(text, total=None, figures="")
    self._ended, self._lines = threading.Event(), threading.Lock()

  def __enter__(self) -> Self:
    if self._console.is_terminal:
      self._progress.start()
    else:
      threading.Thread(target=self._wait, daemon=True).start()
    return self

  def __exit__(self, *exc_info) -> None:
    self._ended.set()
    if self._console.is_terminal:
      self._progress.stop()

  def __call__(self, text: str) -> None:
    """Begins a stage."""
    self._text, self._begin = text, self._clock()
    self._progress.reset(self._task, description=text, total=None, figures="")
    self._tell("")

  def step(
    self, done: int, total: int, unit: str, text: str | None = None, *, at_most: bool = False, since: int = 0
  ) -> None:
    """Reports the finished units of the stage.

    Args:
      text: new text of the stage.
      at_most: whether fewer than ``total`` may be enough.
      since: units that were finished before the stage began, as in a resumed run.
    """
    self._text = self._text if text is None else text
    most = "at most " if at_most else ""
    figures = f"{done} of {most}{total} {unit}s{pace(done - since, total - since, unit, self._clock() - self._begin, most)}"
    self._progress.update(self._task, description=self._text, completed=done, total=total, figures=figures)
    self._tell(figures)

  def _tell(self, figures: str) -> None:
    with self._lines:
      now = self._clock()
      if not self._console.is_terminal and now - self._told >= LINE_EVERY_S and not self._ended.is_set():
        self._told = now
        self._console.print(f"{self._text}  {figures}".rstrip(), highlight=False, markup=False, soft_wrap=True)

  def _wait(self) -> None:
    while not self._ended.wait(CHECK_EVERY_S):
      self.tell_time()

  def tell_time(self) -> None:
    """Prints the stage and its time so far, if no line was printed for long."""
    self._tell(f"for {datetime.timedelta(seconds=round(self._clock() - self._begin))}")


def pace(done: int, total: int, unit: str, seconds: float, most: str = "") -> str:
  """Units per second (or seconds per unit) and the remaining time, if known."""
  if not done or seconds <= 0:
    return ""
  rate = done / seconds
  speed = f"{rate:.1f} {unit}s/s" if rate >= 1 else f"{1 / rate:.1f} s/{unit}"
  return f"  {speed}  {most}{datetime.timedelta(seconds=round((total - done) / rate))} left"
