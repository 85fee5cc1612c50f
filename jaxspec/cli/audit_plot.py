"""The figure of ``jaxspec audit --plot``: bias against saved calls."""

from __future__ import annotations

import textwrap
from pathlib import Path

import numpy as np

from jaxspec.cli.audit_report import Report
from jaxspec.cli.audit_table import value_of
from jaxspec.cli.summary import words_of
from jaxspec.run.decode_options import flag
from jaxspec.statistics import Interval

_INK, _LINE, _SPREAD, _QUIET = "#20303f", "#3b6fb6", "#b5c9e4", "#8a9099"


def plot(report: Report, path: Path) -> None:
  """Total variation per token against tokens per call, one labelled point per row; lower and further right is better."""
  from matplotlib.backends.backend_agg import FigureCanvasAgg
  from matplotlib.figure import Figure
  from matplotlib.patheffects import withStroke

  spans = lambda name: [_as_interval(getattr(row.figures, name)) for row in report.rows]
  x, y = spans("tokens_per_call"), spans("tv")
  values = lambda points: np.array([point.value for point in points])
  reach = lambda points: np.maximum([[p.value - p.low for p in points], [p.high - p.value for p in points]], 0.0)

  figure = Figure(figsize=(6.4, 4.2), layout="constrained")
  FigureCanvasAgg(figure)
  axes = figure.add_subplot()
  axes.plot(values(x), values(y), color=_LINE, linewidth=1.2, alpha=0.5, zorder=1)
  axes.errorbar(
    values(x), values(y), xerr=reach(x), yerr=reach(y), fmt="o", color=_LINE, ecolor=_SPREAD, elinewidth=1.0, capsize=2.5
  )
  axes.plot([1], [0], "s", color=_QUIET, markersize=5)
  axes.annotate("plain decoding", (1, 0), xytext=(6, 6), textcoords="offset points", color=_QUIET, fontsize=8.5)
  for row, a, b in zip(report.rows, x, y):
    # On the side away from the line, which mostly rises to the right.
    axes.annotate(
      value_of(row, report), (a.value, b.value), xytext=(-7, 7), textcoords="offset points", ha="right", fontsize=9,
      color=_INK, path_effects=[withStroke(linewidth=3, foreground="white")],
    )  # fmt: skip
  axes.axhline(0, color=_QUIET, linewidth=0.8, zorder=0)
  has_intervals = not report.tiny and any(np.isfinite(point.high) for point in y)
  axes.set_xlabel("tokens per call of the target")
  axes.set_ylabel("total variation per token" + (", 95 % interval" if has_intervals else ""))
  axes.set_title(_title(report), fontsize=10.5, loc="left")
  axes.spines[["top", "right"]].set_visible(False)
  axes.grid(alpha=0.25)
  axes.margins(x=0.12, y=0.14)
  axes.set_ylim(bottom=-0.04 * axes.get_ylim()[1])
  figure.savefig(path, dpi=150)


def _as_interval(value: Interval | float) -> Interval:
  return Interval(value, value, value) if isinstance(value, float | int) else value


def _title(report: Report) -> str:
  method, swept = report.method, report.swept
  given = {name: value for name, value in method.options().items() if name != swept and value is not None}
  words = [words_of(name, value).replace(" ", "\xa0") for name, value in given.items()]
  over = f", over {flag(swept).removeprefix('--')}" if swept else ""
  # Lines break between settings, not inside one.
  return "\n".join([f"{method.name} on {report.source}{over}", *textwrap.wrap(", ".join(words), 72, break_on_hyphens=False)])
