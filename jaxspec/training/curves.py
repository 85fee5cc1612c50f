"""Curves of a training: loss and expected acceptance over updates, of the updates and of the held-out rows."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from jaxspec.io.whole_files import write_whole
from jaxspec.training.run_log import read_metrics

CURVES_FILE = "curves.png"
_LABELS = {"loss": "loss", "acceptance": "expected acceptance"}
_UPDATES, _HELD_OUT = "#b5c9e4", "#3b6fb6"


def can_plot() -> bool:
  """Whether matplotlib is installed."""
  return importlib.util.find_spec("matplotlib") is not None


def write_curves(run_dir: Path) -> Path | None:
  """Writes ``curves.png`` of the two logs of a run; None without matplotlib."""
  if not can_plot():
    return None
  from matplotlib.backends.backend_agg import FigureCanvasAgg
  from matplotlib.figure import Figure

  updates, held_out = (read_metrics(run_dir / name) for name in ("metrics.jsonl", "eval.jsonl"))
  shown = [name for name in _LABELS if any(name in record for record in (*updates, *held_out))]
  figure = Figure(figsize=(4.6 * len(shown), 3.4), layout="constrained")
  FigureCanvasAgg(figure)
  for axes, name in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown):
    axes.plot(*_points(updates, name), color=_UPDATES, linewidth=1.2, label="updates")
    axes.plot(*_points(held_out, name), color=_HELD_OUT, marker="o", markersize=3, linewidth=1.2, label="held out")
    axes.set_xlabel("updates")
    axes.set_ylabel(_LABELS[name])
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, fontsize=8.5)
  file = run_dir / CURVES_FILE
  write_whole(file, lambda path: figure.savefig(path, dpi=150, format="png"))
  return file


def _points(records: list[dict[str, Any]], name: str) -> tuple[list[int], list[float]]:
  found = [(record["step"], float(record[name])) for record in records if name in record]
  return [step for step, _ in found], [value for _, value in found]
