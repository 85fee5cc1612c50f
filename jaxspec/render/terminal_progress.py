"""Progress of a training run in the terminal: a rich bar, or plain lines when the output is no terminal."""

from __future__ import annotations

import datetime
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn


class OnTerminal:
  """A context manager that shows a bar while it is open, where there is a terminal."""

  _console: Console
  _progress: Progress

  def __enter__(self) -> Self:
    if self._console.is_terminal:
      self._progress.start()
    return self

  def __exit__(self, *exc_info) -> None:
    if self._console.is_terminal:
      self._progress.stop()


class TrainProgress(OnTerminal):
  """Reports loss, throughput and remaining time; a `jaxspec.training.train_loop.ReportFn` and a context manager.

  Args:
    title: name of the run.
    items_per_step: batch size, for the throughput.
    item: what an item is called.
    console: where to write; by default the standard output.
    line_every: without a terminal, seconds between two lines.
  """

  def __init__(
    self,
    title: str,
    *,
    items_per_step: int = 1,
    item: str = "image",
    console: Console | None = None,
    line_every: float = 10.0,
  ):
    self._console = console or Console()
    self._title, self._items, self._item, self._line_every = title, items_per_step, item, line_every
    self._last_line: float | None = None
    columns = [TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}")]
    columns += [TextColumn("{task.fields[figures]}"), TimeElapsedColumn()]
    self._progress = Progress(*columns, console=self._console)
    self._task = None

  def __call__(self, step: int, num_steps: int, metrics: dict[str, float], rate: float) -> None:
    left = datetime.timedelta(seconds=round((num_steps - step) / max(rate, 1e-9)))
    throughput = rate * self._items
    figures = f"loss {metrics['loss']:.4f}  {throughput:.1f} {self._item}s/s  {left} left"
    if self._console.is_terminal:
      if self._task is None:
        self._task = self._progress.add_task(self._title, total=num_steps, figures=figures)
      self._progress.update(self._task, completed=step, figures=figures)
      return
    now = self._progress.get_time()
    if self._last_line is None or now - self._last_line >= self._line_every or step >= num_steps:
      self._last_line = now
      self._console.print(f"{self._title}  step {step}/{num_steps}  {figures}", highlight=False, soft_wrap=True)
