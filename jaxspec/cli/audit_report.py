"""What ``jaxspec audit`` prints, writes as JSON and draws."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import math
import platform
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from jaxspec.cli.decoding import per_row
from jaxspec.cli.report import finite
from jaxspec.cli.settings import Settings
from jaxspec.decode.state import DecodeResult
from jaxspec.metrics.audit import AuditFigures
from jaxspec.metrics.bootstrap import Interval
from jaxspec.metrics.enumeration import EnumeratedFigures

_INK, _LINE, _SPREAD, _QUIET = "#20303f", "#3b6fb6", "#b5c9e4", "#8a9099"
_MIN_WIDTH = 96


class Row(NamedTuple):
  """One setting of a method."""

  label: str
  settings: Settings
  figures: AuditFigures | EnumeratedFigures
  details: dict[str, Any]  # what only the JSON has


class Report(NamedTuple):
  """All rows, and what they are about."""

  source: str
  settings: Settings
  swept: str | None
  tiny: bool
  rows: list[Row]
  warnings: list[str]


def label_of(settings: Settings, swept: str | None) -> str:
  """What tells a row from the others: the method, or the value that was swept."""
  if swept is None:
    return settings.method
  value = getattr(settings, swept)
  return f"{swept.replace('_', '-')} {value:g}" if isinstance(value, int | float) else f"{swept} {value}"


def _value_of(row: Row, report: Report) -> str:
  return row.label if report.swept is None else row.label.split(maxsplit=1)[1]


def measured_row(label: str, settings: Settings, outcome: DecodeResult, figures: AuditFigures, captions: list[str]) -> Row:
  """A row of decoded pictures; ``details`` are the worst prefix and the figures of every picture."""
  picture, token = figures.worst
  audit, counters = outcome.metrics, per_row(outcome.counters)
  at_worst = {name: float(getattr(audit, name)[picture, token]) for name in ("tv", "kl", "alpha", "alpha_sd")}
  worst = at_worst | {"picture": picture, "prompt": captions[picture], "token": token}
  worst["prefix"] = outcome.tokens[picture, :token].tolist()
  pictures = []
  for index, caption in enumerate(captions):
    judged = max(int(audit.tested[index].sum()), 1)
    pictures.append(
      {
        "prompt": caption,
        "tv": float(audit.tv[index].mean()),
        "kl": float(audit.kl[index].mean()),
        "tv_sum": float(audit.tv[index].sum()),
        "alpha": float(audit.alpha[index].sum() / judged),
        "alpha_sd": float(audit.alpha_sd[index].sum() / judged),
        "judged_places": int(audit.tested[index].sum()),
        "tokens": int(outcome.lengths[index]),
        **{name: int(values[index]) for name, values in counters.items()},
      }
    )
  return Row(label, settings, figures, {"worst": worst, "pictures": pictures})


def enumerated_row(label: str, settings: Settings, figures: EnumeratedFigures) -> Row:
  """A row of a tiny model."""
  return Row(label, settings, figures, {})


def document(report: Report) -> dict[str, Any]:
  """Every figure; JSON. Infinite ones, as KL outside the target's support, are null."""
  rows = []
  for row in report.rows:
    figures = {k: v._asdict() if isinstance(v, Interval) else v for k, v in row.figures._asdict().items() if k != "worst"}
    rows.append({"label": row.label, "settings": dataclasses.asdict(row.settings)} | figures | row.details)
  device = jax.devices()[0]
  return finite(
    {
      "source": report.source,
      "by": "enumeration" if report.tiny else "places of a decode",
      "swept": report.swept,
      "exact": report.settings.parts.is_exact,
      "rows": rows,
      "warnings": report.warnings,
      "device": {"platform": device.platform, "kind": device.device_kind},
      "versions": {
        "python": platform.python_version(),
        "jaxspec": importlib.metadata.version("jaxspec-decoding"),
        "jax": jax.__version__,
      },
    }
  )


def print_report(console: Console, report: Report, files: list[Path]) -> None:
  """A heading, a row per setting, the worst prefix, and what was written."""
  settings = report.settings
  console.width = max(console.width, _MIN_WIDTH)  # a figure cut off in a narrow window is worse than a broken line
  console.print()
  head = Text.assemble((report.source, "bold"), f"  {settings.method}: {settings.parts.title}")
  console.print(head, soft_wrap=True)
  console.print(Text(_about(report), style="dim"), soft_wrap=True)
  console.print()
  console.print(_enumerated_table(report) if report.tiny else _measured_table(report))
  console.print()
  console.print(_worst(report), soft_wrap=True)
  for path in files:
    console.print(Text.assemble(("wrote ", "dim"), str(path)), soft_wrap=True)


def _about(report: Report) -> str:
  if report.tiny:
    return f"a random model, every decode followed, seed {report.settings.seed}"
  settings, pictures = report.settings, report.rows[0].details["pictures"]
  words = [f"{len(pictures)} picture{'s' * (len(pictures) != 1)} of {pictures[0]['tokens']} tokens"]
  words += [] if settings.draft is None or settings.parts.draft_family is None else [f"draft {settings.draft}"]
  words += [f"guidance {settings.cfg_scale:g}" if settings.cfg_scale > 1 else "no guidance"]
  words += [f"top-k {settings.top_k}"] if settings.top_k else []
  words += [f"top-p {settings.top_p:g}"] if settings.top_p < 1 else []
  return ", ".join([*words, f"temperature {settings.temperature:g}", f"seed {settings.seed}"])


def _empty_table(report: Report, *columns: str) -> Table:
  table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
  table.add_column("" if report.swept is None else report.swept.replace("_", "-"), no_wrap=True)
  for column in columns:
    table.add_column(column, justify="right", no_wrap=True)
  return table


def _measured_table(report: Report) -> Table:
  table = _empty_table(report, "tokens/call", "TV/token", "KL", "kept", "lossless", "worst")
  for row in report.rows:
    f = row.figures
    table.add_row(
      _value_of(row, report),
      f"{f.tokens_per_call.value:.2f}",
      Text(_spread(f.tv), style="bold"),
      _small(f.kl.value),
      f"{f.alpha.value:.1%}",
      f"{f.alpha_sd.value:.1%}",
      _small(row.details["worst"]["tv"]),
    )
  return table


def _enumerated_table(report: Report) -> Table:
  table = _empty_table(report, "tokens/call", "TV/token", "closed form", "KL", "kept", "lossless", "sequences")
  for row in report.rows:
    f = row.figures
    table.add_row(
      _value_of(row, report),
      f"{f.tokens_per_call:.2f}",
      Text(_small(f.tv), style="bold"),
      _small(f.closed_form),
      _small(f.kl),
      f"{f.alpha:.1%}",
      f"{f.alpha_sd:.1%}",
      _small(f.sequence_tv),
    )
  return table


def _worst(report: Report) -> Text:
  """The worst prefix of all rows, in words."""
  if report.tiny:
    row = max(report.rows, key=lambda row: row.figures.worst_tv)
    prefix = " ".join(map(str, row.figures.worst_prefix)) or "(empty)"
    error = max(abs(row.figures.tv - row.figures.closed_form) for row in report.rows)
    law_error = max(row.figures.law_error for row in report.rows)
    return Text(
      f"Worst prefix: {prefix}, TV of the next token {_small(row.figures.worst_tv)} ({row.label})\n"
      f"Enumeration and closed form differ by at most {error:.0e} (laws of single places by {law_error:.0e})"
    )
  row = max(report.rows, key=lambda row: row.details["worst"]["tv"])
  worst = row.details["worst"]
  at = f"the first {worst['token']} tokens of {worst['prompt']!r} (picture {worst['picture'] + 1})"
  return Text(f"Worst prefix: {at}, TV of the next token {_small(worst['tv'])} ({row.label})")


def _small(value: float) -> str:
  """Four decimals, or the power of ten of what they would hide."""
  if not math.isfinite(value):
    return "inf"
  return f"{value:.4f}" if abs(value) >= 5e-4 or value == 0 else f"{value:.0e}"


def _spread(interval: Interval) -> str:
  if interval.high - interval.low < 5e-5:
    return _small(interval.value)
  low, high = (_small(bound).removeprefix("0") for bound in (interval.low, interval.high))
  return f"{_small(interval.value)} [{low}, {high}]"


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
    # On the side away from the line, which mostly rises to the right, and legible where it does not.
    axes.annotate(
      _value_of(row, report), (a.value, b.value), xytext=(-7, 7), textcoords="offset points", ha="right", fontsize=9,
      color=_INK, path_effects=[withStroke(linewidth=3, foreground="white")],
    )  # fmt: skip
  axes.axhline(0, color=_QUIET, linewidth=0.8, zorder=0)
  axes.set_xlabel("tokens per call of the target")
  axes.set_ylabel("total variation per token" + (", 95 % over pictures" if not report.tiny else ""))
  axes.set_title(_title(report), fontsize=10.5, loc="left")
  axes.spines[["top", "right"]].set_visible(False)
  axes.grid(alpha=0.25)
  axes.margins(x=0.12, y=0.14)
  axes.set_ylim(bottom=-0.04 * axes.get_ylim()[1])
  figure.savefig(path, dpi=150)


def _as_interval(value: Interval | float) -> Interval:
  return value if isinstance(value, Interval) else Interval(value, value, value)


def _title(report: Report) -> str:
  settings = report.settings
  fixed = [name for name in settings.parts.options if name != report.swept]
  words = [f"{name.replace('_', ' ')} {getattr(settings, name)}".replace(" ", "\xa0") for name in fixed]
  swept = f", over its {report.swept.replace('_', ' ')}" if report.swept else ""
  # Lines break between settings, not inside one.
  lines = textwrap.wrap(", ".join(words), 72)
  return "\n".join([f"{settings.method} on {report.source}{swept}", *lines])
