"""Committed tables as tests of the pages read them."""

import functools
import json
from typing import Any

from experiments.engine import claims
from experiments.run import RESULTS, documents

DOCS = RESULTS.parents[1] / "docs" / "results"


@functools.cache
def committed() -> dict[str, dict[str, Any]]:
  """The documents of all committed tables, read once."""
  return documents(RESULTS)


@functools.cache
def verdicts_of(name: str) -> dict[tuple[str, str], claims.Verdict]:
  """The comparisons of a committed table of scenes, computed once."""
  return claims.verdicts(committed()[name])


@functools.cache
def _document(name: str) -> dict[str, Any]:
  return json.loads((RESULTS / f"{name}.json").read_text())


def rows_of(name: str) -> dict[str, dict]:
  """Rows of a committed table by their label."""
  return {row["label"]: row for row in _document(name)["rows"]}


def table_of(name: str) -> list[str]:
  """Lines of a committed table."""
  return [line for line in (RESULTS / f"{name}.md").read_text().splitlines() if line.startswith("| ")]


def detectable_points(name: str, starts: tuple[str, ...] = ("",)) -> list[float]:
  """Smallest and largest detectable difference of accuracy from the first row, over rows with these labels."""
  found = [row["minus_first"] for label, row in rows_of(name).items() if "minus_first" in row and label.startswith(starts)]
  return [round(100 * pick(one["class_accuracy"]["detectable"] for one in found), 1) for pick in (min, max)]
