"""Fills the tables of pages: options of methods from their declarations, figures from the tables of the experiments.

    python docs/_ext/method_pages.py

Marks in a page name its tables; the text between the marks is generated::

    <!-- options: gsd -->
    <!-- end -->

    <!-- figures: scenes_speed
    rows: plain decoding; GSD, G 14
    columns: decode; batch; target calls
    where: batch = 1
    -->
    <!-- end -->

    <!-- table: server_recovery -->
    <!-- end -->

    <!-- lossy: settings -->
    <!-- end -->

    <!-- audit: audit_gsd -->
    <!-- end -->

    <!-- paper: ciar -->
    <!-- end -->

``<!-- methods -->`` lists all methods. ``figures`` takes rows and columns of ``experiments/results/NAME.md`` by their names
there; ``where`` is optional and keeps the rows with that value. ``table`` is a whole table with its caption. ``lossy`` joins
the tables of scenes: ``settings``, the same ``without top-p``, published ``orders``, or ``limits``. ``audit`` reads a file
of `jaxspec audit --out`. ``paper`` lists what a paper shows, from `experiments.papers`.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from jaxspec.cli.methods import value_word
from jaxspec.core.token_kinds import KINDS
from jaxspec.methods import METHODS
from jaxspec.run.method_schema import method_schema, range_text

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = DOCS / "methods"
RESULTS = ROOT / "experiments" / "results"
_MARK = re.compile(r"(<!-- (options|figures|methods|table|lossy|audit|paper)\b:?([^>]*?)-->\n).*?(<!-- end -->)", re.S)
_OUTPUT = {True: "exact", False: "not exact", "option": "exact with `--exact`"}


def filled(page: str, folder: Path = PAGES) -> str:
  """The text of a page in a folder with the tables that its marks ask for.

  Raises:
    ValueError: for a table, a row or a column that is not there.
  """
  return _MARK.sub(lambda mark: f"{mark[1]}\n{_table(mark[2], mark[3], folder)}\n{mark[4]}", page)


def _table(kind: str, content: str, folder: Path) -> str:
  if kind == "options":
    return options(content.strip())
  if kind == "methods":
    return all_methods()
  if kind == "table":
    return whole(content.strip())
  if kind == "lossy":
    return lossy(content.strip())
  if kind == "audit":
    return audit(content.strip())
  if kind == "paper":
    return paper(content.strip(), folder)
  name, *lines = content.strip().splitlines()
  fields = {key: [part.strip() for part in rest.split(";")] for key, _, rest in (line.partition(":") for line in lines)}
  where = tuple(tuple(part.strip() for part in condition.split("=")) for condition in fields.get("where", ()))
  return figures(name.strip(), fields["rows"], fields["columns"], folder, where=where)


def options(name: str) -> str:
  """The options of a method: flag and field, default, meaning and values."""
  found = method_schema(METHODS[name])["options"]
  rows = [(_flag(option), f"`{field}`", value_word(option["default"]), _meaning(option)) for field, option in found.items()]
  return _markdown(("option", "in Python", "default", "meaning"), rows) if rows else "This method has no options.\n"


def _flag(option: dict[str, Any]) -> str:
  return f"`{option['flag'].replace('--', '--[no-]', 1) if option['type'] == 'bool' else option['flag']}`"


def _meaning(option: dict[str, Any]) -> str:
  values = range_text(option)
  return f"{option['help']} *{values}*" if values else option["help"]


def all_methods() -> str:
  """Every method with its page."""
  rows = []
  for name in METHODS:
    found = method_schema(METHODS[name])
    tokens = "all" if len(found["tokens"]) == len(KINDS) else " or ".join(found["tokens"])
    rows.append((f"[`{name}`]({name}.md)", found["title"], _OUTPUT[found["exact"]], found["drafts_by"], tokens))
  return _markdown(("method", "name", "output", "source of the drafts", "tokens"), rows)


def figures(
  name: str, rows: list[str], columns: list[str], folder: Path = PAGES, *, where: tuple[tuple[str, str], ...] = ()
) -> str:
  """Some rows and columns of a table of the experiments, its command, and a link to it from the folder.

  Args:
    where: columns and the value that a row must have there.
  Raises:
    ValueError: for a missing row or column, or a name that several columns have.
  """
  text = (RESULTS / f"{name}.md").read_text(encoding="utf-8")
  head, _, *body = ([cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|"))
  if missing := [column for column in [*columns, *(column for column, _ in where)] if column not in head]:
    raise ValueError(f"Must have columns of {name}, we instead got {missing[0]!r}")
  if several := [column for column in columns if head.count(column) > 1]:
    raise ValueError(f"Must have one column of {name} by each name, we instead got several {several[0]!r}")
  label = columns[0]
  chosen = [dict(zip(head, cells)) for cells in body]
  chosen = [row for row in chosen if row[label] in rows and all(row[column] == value for column, value in where)]
  if missing := [row for row in rows if row not in {found[label] for found in chosen}]:
    raise ValueError(f"Must have rows of {name}, we instead got {missing[0]!r}")
  command = re.search(r"`(python -m experiments\.run [^`]*)`", text)[1]
  table = _markdown(tuple(columns), [tuple(row[column] for column in columns) for row in chosen])
  return f"{table}\n`{command}` makes [the whole table]({os.path.relpath(RESULTS, folder)}/{name}.md).\n"


def whole(name: str) -> str:
  """A table of the experiments without its title, and what else its file says.

  Raises:
    ValueError: for a table that is not there.
  """
  path = RESULTS / f"{name}.md"
  if not path.is_file():
    raise ValueError(f"Must have a table in {RESULTS}, we instead got {name!r}")
  return path.read_text(encoding="utf-8").partition("\n")[2]


def audit(name: str) -> str:
  """The settings of an audit, with their bias and what they gain.

  Raises:
    ValueError: for a file that is not there.
  """
  path = RESULTS / f"{name}.json"
  if not path.is_file():
    raise ValueError(f"Must have an audit in {RESULTS}, we instead got {name!r}")
  rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
  cell = lambda one, digits: f"{one['value']:.{digits}f} [{one['low']:.{digits}f}, {one['high']:.{digits}f}]"
  cells = [(row["label"].replace("-", " "), cell(row["tv"], 4), cell(row["tokens_per_call"], 2)) for row in rows]
  return _markdown(("setting", "total variation per token", "tokens per call of the target"), cells)


def lossy(part: str) -> str:
  """What the tables of scenes say together.

  Raises:
    ValueError: for another part, or without such tables.
  """
  _find_experiments()
  from experiments.engine import lossy, published
  from experiments.run import documents

  parts = {
    "settings": lossy.settings,
    "without top-p": lossy.settings_without_top_p,
    "orders": published.table,
    "limits": lossy.limits,
  }
  if part not in parts:
    raise ValueError(f"Must have a part in {', '.join(parts)}, we instead got {part!r}")
  return parts[part](documents(RESULTS))


def paper(name: str, folder: Path) -> str:
  """What a paper shows, beside the tables here.

  Raises:
    ValueError: for a paper without a module in `experiments.papers`, or a figure that no table has.
  """
  _find_experiments()
  from experiments.engine import reproduction
  from experiments.run import documents

  try:
    items = importlib.import_module(f"experiments.papers.{name}").ITEMS
  except ModuleNotFoundError as error:
    raise ValueError(f"Must have a paper in experiments/papers, we instead got {name!r}") from error
  return reproduction.table(items, RESULTS, documents(RESULTS), os.path.relpath(RESULTS, folder))


def _find_experiments() -> None:
  if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))


def filled_pages() -> list[Path]:
  """The pages that have marks."""
  written = [path for folder in (DOCS, PAGES, DOCS / "results") for path in sorted(folder.glob("*.md"))]
  return [path for path in written if _MARK.search(path.read_text(encoding="utf-8"))]


def _markdown(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
  lines = [head, ("---",) * len(head), *rows]
  return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def main() -> int:
  """Writes all pages."""
  for path in filled_pages():
    path.write_text(filled(path.read_text(encoding="utf-8"), path.parent), encoding="utf-8")
  return 0


if __name__ == "__main__":
  sys.exit(main())
