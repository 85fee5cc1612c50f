"""The report of ``jaxspec evaluate``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from jaxspec.cli.outputs import print_written
from jaxspec.cli.summary import words_of
from jaxspec.run.decode_options import declarations


def print_standard(console: Console, document: dict[str, Any], out: Path) -> None:
  """Warnings, a heading, a row per figure, and the written files."""
  images, reference = document["images"], document["reference"]
  print_head(console, document, f"{images['count']} images against {reference['count']} real ones")
  table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), show_header=False)
  for name, value in document["standard"].items():
    table.add_row(Text.assemble(name, (" (lower is better)" if name == "fid" else "", "dim")), f"{value:.4g}")
  console.print(table)
  console.print()
  print_written(console, out)


def print_head(console: Console, document: dict[str, Any], what: str) -> None:
  """Warnings, and a heading: source of the images, kind of figures, and settings."""
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
