"""The record of a training in its folder, so that another training does not continue it by mistake."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from jaxspec.io.checkpoints import flatten
from jaxspec.io.whole_files import write_whole

RECORD_FILE = "run.json"

# Periods of a run's actions: they change no parameter.
_PERIODS = ("log_every", "eval_every", "checkpoint_every", "keep_checkpoints", "stop_after", "stop_after_s")


def begin(run_dir: Path, kind: str, settings: Any, data: dict[str, Any], *, resume: bool) -> None:
  """Writes the record of a new run, or checks that of an old one.

  Args:
    kind: of the training.
    settings: a dataclass.
    data: origin of what it learns from, as JSON.
  Raises:
    ValueError: if the folder has a run and ``resume`` is off, or a run with other settings; or if it cannot be written.
  """
  file = run_dir / RECORD_FILE
  record = json.loads(json.dumps({"kind": kind, "settings": dataclasses.asdict(settings), "data": data}))
  try:
    run_dir.mkdir(parents=True, exist_ok=True)
    there = json.loads(file.read_text(encoding="utf-8")) if file.exists() else None
  except OSError as error:
    raise ValueError(f"Cannot write to {run_dir}: {error.strerror}, choose another --run-dir") from error
  except ValueError as error:
    raise ValueError(f"Corrupt {file}: {error}") from error
  if there is None:
    if (run_dir / "checkpoints").exists():
      raise ValueError(f"Must have a new folder or one with a {RECORD_FILE}, we instead got {run_dir}")
    write_whole(file, lambda path: path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8"))
    return
  if not resume:
    raise ValueError(f"Must have a new run folder or resume a run, we instead got a run in {run_dir}")
  theirs, ours = flatten(there) if isinstance(there, dict) else {}, flatten(record)
  for name in dict.fromkeys([*ours, *theirs]):
    if name.rpartition(".")[2] not in _PERIODS and theirs.get(name) != ours.get(name):
      label = name.removeprefix("settings.").removeprefix("data.")
      raise ValueError(
        f"Must resume {run_dir} with its {label} {theirs.get(name)!r}, we instead got {ours.get(name)!r}: "
        "choose another --run-dir"
      )
