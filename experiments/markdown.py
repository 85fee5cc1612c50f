"""Tables in Markdown."""

from __future__ import annotations

from jaxspec.metrics.bootstrap import Interval


def interval_cell(interval: dict[str, float], scale: float = 1.0, digits: int = 2, sign: str = "") -> str:
  """``value [low, high]`` of an `Interval` as JSON; ``sign="+"`` shows the sign of the value."""
  value, low, high = (scale * interval[name] for name in Interval._fields)
  return f"{value:{sign}.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def table(head: list[str], rows: list[list[str]]) -> str:
  """A table; cells are text."""
  line = lambda cells: "| " + " | ".join(cells) + " |"
  return "\n".join([line(head), "|" + "---|" * len(head), *(line(row) for row in rows)])
