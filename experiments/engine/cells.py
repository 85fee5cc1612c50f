"""Cells, columns and kinds of tables in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from experiments.engine import statistics
from experiments.engine.statistics import Estimate

Document = dict[str, Any]
RowDocument = dict[str, Any]


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
  """A table in Markdown; cells are text."""
  line = lambda cells: "| " + " | ".join(cells) + " |"
  return "\n".join([line(head), "|" + "---|" * len(head), *(line(row) for row in rows)])


def interval(
  found: Estimate | dict[str, float] | Sequence[float] | None, scale: float = 1, digits: int = 2, sign: str = ""
) -> str:
  """``value [low, high]``; the value alone if it is exact or has no interval, empty without a value."""
  estimate = statistics.estimate_of(found)
  if estimate is None:
    return ""
  value, low, high = (scale * number for number in estimate)
  if not low < high:
    return f"{value:{sign}.{digits}f}"
  return f"{value:{sign}.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def spread(ratio: statistics.Ratio | None) -> str:
  """``median [lowest, highest]``; 1 for a row over itself."""
  if ratio is None:
    return ""
  if ratio.low == ratio.high:
    return "1" if ratio.median == 1 else f"{ratio.median:.2f}"
  return f"{ratio.median:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"


class Column(NamedTuple):
  """A column: its head, and the cell of a row."""

  head: str
  cell: Callable[[RowDocument, Document], str]


def percent(value: float, digits: int = 0) -> str:
  return f"{100 * value:.{digits}f}"


def number(head: str, *path: str, digits: int = 2, scale: float = 1, comma: bool = False) -> Column:
  """A number of a row, found by its names; empty for None."""

  def cell(row: RowDocument, document: Document) -> str:
    value = row
    for name in path:
      value = value[name]
    return "" if value is None else f"{scale * value:{',' if comma else ''}.{digits}f}"

  return Column(head, cell)


def metric(head: str, name: str, *, scale: float = 100, digits: int = 1, sign: str = "") -> Column:
  """A metric of a row with its interval, Wilson's for a share."""

  def cell(row: RowDocument, document: Document) -> str:
    return interval(statistics.metric_of(row, name), scale, digits, sign)

  return Column(head, cell)


LABEL = Column("decode", lambda row, document: row["label"])
ALPHA = Column("alpha", lambda row, document: interval(statistics.alpha_of(row), digits=3))
SMALLEST = "Smallest true difference detectable (95 % level, 80 % power):"


class Kind(NamedTuple):
  """Layout of documents of a kind.

  Attributes:
    columns: of a document.
    intro: the sentence after the command.
    below: lines under the table, besides notes and rows that were left out.
  """

  columns: Callable[[Document], list[Column]]
  intro: Callable[[Document], str]
  below: Callable[[Document], list[str]] = lambda document: []
  rows: Callable[[Document], list[RowDocument]] = lambda document: document["rows"]
