"""The report of ``jaxspec audit``: a row per setting, and the worst prefix in words."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from jaxspec.cli.audit_report import Report, Row
from jaxspec.cli.outputs import print_written
from jaxspec.render.text_map import text_map
from jaxspec.run.decode_options import flag
from jaxspec.statistics import FEWEST_CLUSTERS, Interval

_MIN_WIDTH = 96


def print_report(console: Console, report: Report, files: list[Path]) -> None:
  """A heading, a row per setting, the worst prefix, and the written files."""
  console.width = max(console.width, _MIN_WIDTH)  # in a narrow window a broken line is better than a truncated figure
  console.print()
  head = Text.assemble((report.source, "bold"), f"  {report.method.name}: {report.method.title}")
  console.print(head, soft_wrap=True)
  console.print(Text(", ".join(report.about), style="dim"), soft_wrap=True)
  console.print()
  console.print(_enumerated_table(report) if report.tiny else _measured_table(report))
  if not report.tiny and any(math.isnan(row.measured().tv.high) for row in report.rows):
    least = f"{FEWEST_CLUSTERS} prompts, or {FEWEST_CLUSTERS} {report.noun}s of one prompt"
    console.print(Text(f"-: no interval, which takes at least {least}", style="dim"), soft_wrap=True)
  console.print()
  console.print(_worst(report), soft_wrap=True)
  if (found := _map(report)) is not None:
    console.print()
    console.print(found, soft_wrap=True)
  print_written(console, *files)


def _empty_table(report: Report, *columns: str) -> Table:
  table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
  table.add_column("" if report.swept is None else flag(report.swept).removeprefix("--"), no_wrap=True)
  for column in columns:
    table.add_column(column, justify="right", no_wrap=True)
  return table


def _measured_table(report: Report) -> Table:
  table = _empty_table(report, "tokens/call", "TV/token", "KL", "accepted", "lossless", "worst")
  for row in report.rows:
    f = row.measured()
    table.add_row(
      value_of(row, report),
      f"{f.tokens_per_call.value:.2f}",
      Text(_spread(f.tv), style="bold"),
      _small(f.kl.value),
      *((f"{f.alpha.value:.1%}", f"{f.alpha_sd.value:.1%}") if row.details["judged_positions"] else ("-", "-")),
      _small(row.details["worst"]["tv"]),
    )
  return table


def _enumerated_table(report: Report) -> Table:
  table = _empty_table(report, "tokens/call", "TV/token", "closed form", "KL", "accepted", "lossless", "sequences")
  for row in report.rows:
    f = row.enumerated()
    table.add_row(
      value_of(row, report),
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
    label, worst = max(((row.label, row.enumerated()) for row in report.rows), key=lambda row: row[1].worst_tv)
    prefix = " ".join(map(str, worst.worst_prefix)) or "(empty)"
    error = max(abs(row.enumerated().tv - row.enumerated().closed_form) for row in report.rows)
    distribution_error = max(row.enumerated().distribution_error for row in report.rows)
    return Text(
      f"Worst prefix: {prefix}, TV of the next token {_small(worst.worst_tv)} ({label})\n"
      f"Enumeration and closed form differ by at most {error:.0e} (single positions by {distribution_error:.0e})"
    )
  row, noun = max(report.rows, key=lambda row: row.details["worst"]["tv"]), report.noun
  worst = row.details["worst"]
  at = f"the first {worst['token']} tokens of {worst['prompt']!r} ({noun} {worst[noun] + 1})"
  return Text(f"Worst prefix: {at}, TV of the next token {_small(worst['tv'])} ({row.label})")


def _map(report: Report) -> Text | None:
  """The KL of the tokens at each place, of the row with the largest total variation; None without a grid, or if all are 0.

  Where a KL is infinite, as with top-p, the map is that of the total variation.
  """
  rows = [row for row in report.rows if "kl_map" in row.details]
  if report.method.is_exact or not rows:
    return None
  row = max(rows, key=lambda row: row.measured().tv.value)
  name, values = "KL", np.asarray(row.details["kl_map"])
  if not np.isfinite(values).all():
    name, values = "TV", np.asarray(row.details["tv_map"])
  if not values.max() > 0:
    return None
  head = f"{name} per token by place, mean over {report.noun}s, up to {_small(float(values.max()))} ({row.label})"
  return Text("\n".join([head, *text_map(values)]))


def _small(value: float) -> str:
  """Four decimals, or the power of ten of smaller numbers."""
  if not math.isfinite(value):
    return "inf"
  return f"{value:.4f}" if abs(value) >= 5e-4 or value == 0 else f"{value:.0e}"


def _spread(interval: Interval) -> str:
  if math.isnan(interval.high):  # too few prompts
    return f"{_small(interval.value)} -"
  if not interval.high - interval.low >= 5e-5:
    return _small(interval.value)
  low, high = (_small(bound).removeprefix("0") for bound in (interval.low, interval.high))
  return f"{_small(interval.value)} [{low}, {high}]"


def value_of(row: Row, report: Report) -> str:
  """The label of a row below a heading with the option."""
  return row.label if report.swept is None else row.label.split(maxsplit=1)[-1]
