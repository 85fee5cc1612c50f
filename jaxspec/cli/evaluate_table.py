"""What ``jaxspec evaluate`` prints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from jaxspec.cli.declared import declarations
from jaxspec.cli.summary import words_of

_MIN_WIDTH = 104  # a broken figure is worse than a broken line


def print_document(console: Console, document: dict[str, Any], out: Path) -> None:
  """Warnings, a heading, a row per figure with its interval, and what was written."""
  images, reference, real = document["images"], document["reference"], document["real_images"]
  console.width = max(console.width, _MIN_WIDTH)
  print_head(console, document, f"{images['count']} images against {reference['count']} real ones")
  table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
  for title in ["", "these images"] + ["real images of the prompts"] * bool(real):
    table.add_column(title)
  for name, figure in document["metrics"].items():
    lower = name.startswith(("kid_", "frechet_"))
    title = Text.assemble(name, (" (lower is better)" if lower else "", "dim"))
    cells = [_cell(figure, images["count"], lower)]
    if real:
      cells.append(_cell(real[name], images["count"], lower) if name in real else Text("-"))
    table.add_row(title, *cells)
  for name, value in document.get("standard", {}).items():
    table.add_row(name, f"{value:.4g}")
  console.print(table)
  console.print()
  print_written(console, out)


def print_head(console: Console, document: dict[str, Any], what: str) -> None:
  """Warnings, and a heading: where the images come from, what is measured, and how they were drawn."""
  for warning in document["warnings"]:
    click.echo(click.style("Warning:", fg="yellow") + f" {warning}", err=True)
  images = document["images"]
  console.print()
  head = Text.assemble((images["source"], "bold"), f"  {what}")
  if settings := images.get("settings"):
    is_changed = lambda name, value: all(value != option.default for option in declarations()[name])
    changed = [words_of(name, value) for name, value in settings["sampling"].items() if is_changed(name, value)]
    head.append("  " + ", ".join([settings["method"], *changed, f"seed {settings['seed']}"]), style="dim")
  console.print(head, soft_wrap=True)
  console.print()


def print_written(console: Console, out: Path) -> None:
  """The last line."""
  console.print(Text.assemble(("wrote ", "dim"), str(out)), soft_wrap=True)


def _cell(figure: dict[str, Any], total: int, is_distance: bool) -> Text:
  shown = (lambda x: f"{x:.4f}") if is_distance else (lambda x: f"{x:.3f}")
  text = Text.assemble((shown(figure["value"]), "bold"), f"  {shown(figure['low'])} to {shown(figure['high'])}")
  return text.append(f"  of {figure['count']}", style="dim") if figure["count"] != total else text
