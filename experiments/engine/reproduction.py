"""Renders what the papers show beside the tables here (`experiments.papers`).

Every figure of this project is looked up in a rendered table, so that no page can quote another value. In the texts of an
`Item` a lookup stands in double brackets:

- ``[[TABLE | ROW | COLUMN]]`` is the cell of ``experiments/results/TABLE.md``; ``[[TABLE | ROW | COLUMN | batch=1]]`` is
  that of the row with this value in another column, and so on.
- ``[[mean | TABLE | SETTING]]`` is the mean share of correct images over the trainings of a setting, in percent.
- ``[[apart | CELL ;; CELL]]`` says whether the intervals of two cells, written as above, overlap.
- ``[[order | CLAIM]]`` is the result of a published order (`experiments.engine.published`), with its difference.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from experiments.engine import published, seeds
from experiments.engine.cells import interval, markdown
from experiments.engine.statistics import mean

SAME, PARTLY, REVERSED, OPEN, NO_ORDER = "same", "partly", "reversed", "not significant", "no order"
IMPOSSIBLE = "not possible here"
STATES = (SAME, PARTLY, REVERSED, OPEN, NO_ORDER, IMPOSSIBLE)
STATED = (SAME, PARTLY, REVERSED, OPEN)  # statements on an order, which stand on a difference
_INTERVAL = re.compile(r"\[([\d.-]+), ([\d.-]+)\]")
_LOOKUP = re.compile(r"\[\[(.*?)\]\]")


class Item(NamedTuple):
  """A table or a figure of a paper.

  Attributes:
    name: in the paper.
    made_by: tables (``MODULE:NAME``) and modules of figures (``figures.NAME``) that make it here.
    theirs: what it shows, with its figures.
    ours: the same here; lookups.
    state: one of `STATES`.
    why: a clause, with the difference on which a statement on the order stands; lookups.
  """

  name: str
  made_by: tuple[str, ...]
  theirs: str
  ours: str
  state: str
  why: str


def table(items: tuple[Item, ...], results: Path, documents: Mapping[str, Any], folder: str) -> str:
  """The items of a paper.

  Args:
    results: folder of the rendered tables; ``folder`` is its path from the page.
  Raises:
    ValueError: for a lookup without a table, a row, a column or a claim.
  """
  head = ("item", "made by", "in the paper", "here", "order of the methods")
  orders = published_orders(documents)
  rows = []
  for item in items:
    value = lambda found: _value(found[1], results, documents, orders)
    ours, why = (_LOOKUP.sub(value, text) for text in (item.ours, item.why))
    rows.append([item.name, _commands(item, results, folder), item.theirs, ours, f"**{item.state}**: {why}"])
  return markdown(head, rows) + "\n"


def _commands(item: Item, results: Path, folder: str) -> str:
  """Names of what makes an item; tables are linked."""
  file = lambda name: f"{name.replace(':', '_')}.md"
  link = lambda name: f"[`{name}`]({folder}/{file(name)})" if (results / file(name)).is_file() else f"`{name}`"
  return ", ".join(link(name) for name in item.made_by)


def _value(lookup: str, results: Path, documents: Mapping[str, Any], orders: Mapping[str, Any]) -> str:
  kind, *parts = (part.strip() for part in lookup.split(" | "))
  if kind == "order":
    return _order(parts[0], orders)
  if kind == "apart":
    both = lookup.removeprefix("apart | ").split(" ;; ")
    return _apart(*(cell(results, *(part.strip() for part in one.split(" | "))) for one in both))
  if kind == "mean":
    name, setting = parts
    if name not in documents or setting not in (groups := seeds.settings_of(documents[name])):
      raise ValueError(f"Must have a setting of a training in a table, we instead got {lookup!r}")
    return f"{100 * mean(groups[setting]):.1f}"
  return cell(results, kind, *parts)


def _apart(first: str, second: str) -> str:
  """Whether the intervals ``[low, high]`` of two cells overlap."""
  low, high = zip(*(map(float, _INTERVAL.search(text).groups()) for text in (first, second)))
  return "the brackets do not overlap" if max(low) > min(high) else "the brackets overlap"


def published_orders(documents: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
  """The published orders with their tests, by their text."""
  return {order.text: (order, found) for order, found in published.verdicts(documents).items()}


def _order(claim: str, found: Mapping[str, tuple[Any, Any]]) -> str:
  if claim not in found:
    raise ValueError(f"Must have a published order in {', '.join(found)}, we instead got {claim!r}")
  order, corrected = found[claim]
  (factor, unit), one = published.scale_of(order), corrected.difference
  shown = interval((one.value, one.low, one.high), factor, 1, sign="+")
  return f"{published.outcome(corrected).strip('*')} ({shown} {unit}, p {corrected.adjusted:.2g})"


def cell(results: Path, name: str, row: str, column: str, *where: str) -> str:
  """A cell of a rendered table.

  Raises:
    ValueError: unless one row and one column have these names.
  """
  head, rows = _rendered(results / f"{name}.md")
  wanted = dict(condition.split("=", 1) for condition in where)
  if unknown := [one for one in (column, *wanted) if head.count(one) != 1]:
    raise ValueError(f"Must have one column of {name} by each name, we instead got {unknown[0]!r}")
  has = lambda entry: all(entry[head.index(key)] == value for key, value in wanted.items())
  found = [entry for entry in rows if entry[0] == row and has(entry)]
  if len(found) != 1 or not found[0][head.index(column)]:
    raise ValueError(f"Must have one row of {name} with a figure, we instead got {row!r} {where}")
  return found[0][head.index(column)]


@functools.cache
def _rendered(path: Path) -> tuple[list[str], list[list[str]]]:
  """Head and rows of a table; the first column is the name of a row.

  Raises:
    ValueError: without the table.
  """
  if not path.is_file():
    raise ValueError(f"Must have a table in {path.parent}, we instead got {path.stem!r}")
  lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
  head, _, *rows = ([part.strip() for part in line.split("|")[1:-1]] for line in lines)
  return head, rows
