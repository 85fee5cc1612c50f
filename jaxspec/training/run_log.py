"""Metrics of a run as JSON lines, one object per logged step, and optionally as TensorBoard events."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def read_metrics(path: str | os.PathLike) -> list[dict[str, Any]]:
  """All records of a metrics file; an incomplete last line is left out."""
  records = []
  for line in Path(path).read_text().split("\n"):
    try:
      records.append(json.loads(line))
    except json.JSONDecodeError:
      break
  return records


class MetricsWriter:
  """Appends records to a JSONL file; use it as a context manager.

  Floats are written with all their digits, so that equal lines mean equal bits. Numbers that are not finite become
  strings (``"nan"``), since JSON cannot express them.

  Args:
    path: the file; its folder is created.
    first_step: records from this step on are removed from an existing file, because a resumed run writes them again.
    tensorboard_dir: also write scalar events there (needs the package tensorboardX).
  """

  def __init__(self, path: str | os.PathLike, *, first_step: int = 0, tensorboard_dir: str | os.PathLike | None = None):
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = [r for r in read_metrics(path) if r["step"] < first_step] if path.exists() else []
    work = path.with_name(path.name + ".new")
    work.write_text("".join(json.dumps(r) + "\n" for r in kept))
    work.replace(path)
    self._file = path.open("a")
    self._board = None
    if tensorboard_dir is not None:
      try:
        from tensorboardX import SummaryWriter
      except ImportError as error:
        raise ValueError(
          "Must have the package tensorboardX for TensorBoard events: pip install 'jaxspec-decoding[train]'"
        ) from error
      self._board = SummaryWriter(str(tensorboard_dir), purge_step=first_step)

  def __enter__(self) -> MetricsWriter:
    return self

  def __exit__(self, *exc_info) -> None:
    self._file.close()
    if self._board is not None:
      self._board.close()

  def write(self, step: int, values: Mapping[str, float]) -> None:
    """Appends one record; ``step`` counts from 0."""
    values = {name: float(value) for name, value in values.items()}
    safe = {name: value if math.isfinite(value) else str(value) for name, value in values.items()}
    self._file.write(json.dumps({"step": step} | safe) + "\n")
    self._file.flush()
    if self._board is not None:
      for name, value in values.items():
        self._board.add_scalar(name, value, step)
