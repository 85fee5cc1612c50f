"""The report of ``jaxspec evaluate --scenes``: shares by task, and unconstrained attributes against the painter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from jaxspec.cli.evaluate_table import print_head
from jaxspec.cli.outputs import print_written
from jaxspec.evaluation.scenes import DEMANDS

_MIN_WIDTH = 112  # a broken line is better than a broken figure


def print_scenes(console: Console, document: dict[str, Any], out: Path) -> None:
  """Warnings, a heading, both tables, and the written files."""
  console.width = max(console.width, _MIN_WIDTH)
  count = document["images"]["count"]
  print_head(console, document, f"{count} images, percent that do as their captions say, with 95 % intervals")
  console.print(_score_table(document["scores"]))
  if distances := document["unconstrained"]:
    console.print("Unconstrained attributes of the correct images, against the painter", soft_wrap=True)
    console.print()
    console.print(_distances_table(distances))
  else:
    console.print("No image is correct: nothing to compare with the painter", soft_wrap=True)
  console.print()
  print_written(console, out)


def _score_table(scores: dict[str, dict[str, Any]]) -> Table:
  """A row by task of two lines: the shares, and their intervals."""
  table = _table()
  for title in ("", *DEMANDS):
    table.add_column(title.replace("_", "\n"), no_wrap=True)
  for name, row in scores.items():
    total = row["right"]["count"]
    cells = [_share(row[demand], total) if demand in row else Text("-\n") for demand in DEMANDS]
    table.add_row(Text.assemble((name.replace("_", " "), "bold"), (f"\nof {total}", "dim")), *cells)
    table.add_row()
  return table


def _share(figure: dict[str, Any], total: int) -> Text:
  """A share and its interval; its count if it differs from the row's."""
  text = Text(f"{100 * figure['value']:.1f}", style="bold")
  if figure["count"] != total:
    text.append(f" of {figure['count']}", style="not bold dim")
  return text.append(f"\n{100 * figure['low']:.0f} to {100 * figure['high']:.0f}", style="not bold")


def _distances_table(distances: dict[str, Any]) -> Table:
  """A row by aspect."""
  table = _table()
  table.add_column("")
  for title in ("total variation", "expected if equal", "p", "seen"):
    table.add_column(title, justify="right", no_wrap=True)
  for aspect, row in distances.items():
    cells = [f"{row['expected']:.3f}", f"{row['p_value']:.3f}", str(row["count"])]
    table.add_row(aspect, Text(f"{row['distance']:.3f}", style="bold"), *cells)
  return table


def _table() -> Table:
  return Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
