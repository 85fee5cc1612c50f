"""Makes a table: ``python -m experiments.run scenes:gsd_groups``.

    python -m experiments.run --list                              # every table with its title
    python -m experiments.run scenes:gsd_groups --set scorer.num=96  # another size
    python -m experiments.run scenes_ciar:tau scenes_ciar:code --set timings=0  # several, without the wall clock
    python -m experiments.run scenes:exact --outlook              # its expected time and power
    python -m experiments.run --render                            # renders every committed table

A table is ``MODULE:NAME`` of `experiments.configs`; ``MODULE:*`` are all of a module. ``--set`` changes a field of the table
and may be repeated. Figures go to ``experiments/results/MODULE_NAME.json`` and the table to ``.md``; decodes and wall times
are cached under ``runs/tables``, named after weights, settings and code, so that killed runs resume and no decode is stale.
"""

from __future__ import annotations

import fnmatch
import importlib
import json
import logging
import math
import pkgutil
import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from jaxspec.core.command_line import PATH, script, set_option
from jaxspec.core.options import suggestion
from jaxspec.io.whole_files import write_whole

RESULTS = Path(__file__).parent / "results"


@script(__doc__)
@click.argument("names", nargs=-1, metavar="[MODULE:NAME]...")
@set_option
@click.option("--list", "lists", is_flag=True, help="Show all tables.")
@click.option("--render", "renders", is_flag=True, help="Render the tables of existing JSON; measures nothing.")
@click.option("--outlook", "looks", is_flag=True, help="Print the expected time and power of tables, and stop.")
@click.option("--retime", is_flag=True, help="Repeat cached wall times.")
@click.option("--official", type=PATH, metavar="DIR", help="Checkout of official code (bench:official, official_mar).")
@click.option("--runs", type=PATH, default="runs/tables", help="Folder of decodes and wall times.")
@click.option("--results", type=PATH, default=RESULTS, help="Folder of the tables.")
def main(
  names: tuple[str, ...], assignments: tuple[str, ...], lists: bool, renders: bool, looks: bool, retime: bool,
  official: Path | None, runs: Path, results: Path,
) -> None:  # fmt: skip
  logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
  if lists + renders + looks > 1:
    raise click.UsageError("Give one of --list, --render and --outlook")
  if assignments and (lists or renders or not names):
    raise click.UsageError("Give --set with the names of tables to make")
  if renders:
    render_all(results, [file_name(name) for name in names])
  elif lists or not names:
    print("\n".join(f"{name:<28}{table.title}" for name, table in tables().items()))
  else:
    from experiments.engine.experiment import Lab

    can_write(runs, "--runs")
    if not looks:
      can_write(results, "--results")
    lab = Lab(runs, retime=retime, official=official)
    for name in chosen(names):
      if looks:
        print("\n".join([name, *outlook(name, assignments, lab)]))
      else:
        make(name, assignments, lab, results)


def tables() -> dict[str, Any]:
  """Every table by its name, ``MODULE:NAME``."""
  from experiments import configs

  found = {}
  for info in pkgutil.iter_modules(configs.__path__):
    module = importlib.import_module(f"experiments.configs.{info.name}")
    found |= {f"{info.name}:{name}": table for name, table in module.TABLES.items()}
  return found


def chosen(names: Sequence[str]) -> list[str]:
  """The tables that match names and patterns.

  Raises:
    ValueError: for an unknown name.
  """
  known, found = tables(), []
  for name in names:
    matches = fnmatch.filter(known, name)
    if not matches:
      module = name.partition(":")[0]
      near = [table for table in known if table.startswith(f"{module}:")] or list(known)
      raise ValueError(f"Must have a table in {', '.join(near)}, we instead got {name!r}{suggestion(name, known)}")
    found += matches
  return list(dict.fromkeys(found))


def file_name(name: str) -> str:
  """Name of a table's files, without the suffix."""
  return name.replace(":", "_")


def command_of(name: str, assignments: Sequence[str]) -> str:
  """The command that measures a table again."""
  settings = [f"--set {shlex.quote(assignment)}" for assignment in assignments]
  return " ".join(["python -m experiments.run", name, *settings])


def make(name: str, assignments: Sequence[str], lab: Any, results: Path) -> dict[str, Any]:
  """Measures a table and writes its two files; returns the document.

  Raises:
    ValueError: for an invalid assignment, or missing networks.
  """
  from experiments.engine.experiment import keep_compiled
  from experiments.engine.tables import render
  from jaxspec.core.overrides import override

  table = override(tables()[name], assignments)
  keep_compiled()
  logging.info("%s: %s", name, table.title)
  document = finite(table.frame(file_name(name), command_of(name, assignments)) | table.measure(lab))
  results.mkdir(parents=True, exist_ok=True)
  written = {"json": json.dumps(document, indent=1) + "\n", "md": render(document)}
  for suffix, text in written.items():
    _write(results / f"{file_name(name)}.{suffix}", text)
  print(written["md"])
  return document


def outlook(name: str, assignments: Sequence[str], lab: Any) -> list[str]:
  """Lines about the expected time and power of a table; decodes and caches one batch of every row.

  Raises:
    ValueError: for a table without images of prompts.
  """
  from experiments.engine.experiment import keep_compiled
  from experiments.engine.quality import Quality
  from jaxspec.core.overrides import override

  table = override(tables()[name], assignments)
  if not isinstance(table, Quality):
    raise ValueError(f"Must have a table of images of prompts for --outlook, we instead got {name!r}")
  keep_compiled()
  return table.outlook(lab).lines()


def finite(value: Any) -> Any:
  """JSON with None for numbers that are not finite."""
  if isinstance(value, dict):
    return {name: finite(part) for name, part in value.items()}
  if isinstance(value, (list, tuple)):
    return [finite(part) for part in value]
  return None if isinstance(value, float) and not math.isfinite(value) else value


def can_write(folder: Path, option: str) -> None:
  """Makes a folder, before the work whose results it gets.

  Raises:
    ValueError: if it cannot be written to.
  """
  try:
    folder.mkdir(parents=True, exist_ok=True)
    tempfile.TemporaryFile(dir=folder).close()
  except OSError as error:
    raise ValueError(f"Cannot write to {folder}: {error.strerror}, choose another {option}") from error


def _write(file: Path, text: str) -> None:
  write_whole(file, lambda path: path.write_text(text, encoding="utf-8"))


def documents(results: Path) -> dict[str, dict[str, Any]]:
  """The documents of tables in a folder, by file name.

  Raises:
    ValueError: for a file that is not JSON.
  """
  found = {}
  for path in sorted(results.glob("*.json")):
    try:
      found[path.stem] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
      raise ValueError(f"Corrupt {path}: {error}; make its table again or remove it") from error
  return {name: document for name, document in found.items() if "kind" in document}


def render_all(results: Path, names: Sequence[str]) -> None:
  """Renders the tables of all documents in a folder, or of those that match names and patterns.

  Raises:
    ValueError: for a folder without documents, or a name that matches none.
  """
  from experiments.engine.tables import render

  known = documents(results)
  if not known and not names:
    raise ValueError(f"Must have documents of tables (.json) in {results}, there are none")
  for pattern in names or ["*"]:
    found = fnmatch.filter(known, pattern)
    if not found:
      raise ValueError(f"Must have a document in {results}, we instead got {pattern!r}")
    for name in found:
      _write(results / f"{name}.md", render(known[name]))


if __name__ == "__main__":
  main()
