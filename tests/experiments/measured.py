"""Committed tables as tests of the pages read them."""

import json

from experiments.run import RESULTS

DOCS = RESULTS.parents[1] / "docs" / "results"


def rows_of(name: str) -> dict[str, dict]:
  """Rows of a committed table by their label."""
  return {row["label"]: row for row in json.loads((RESULTS / f"{name}.json").read_text())["rows"]}


def table_of(name: str) -> list[str]:
  """Lines of a committed table."""
  return [line for line in (RESULTS / f"{name}.md").read_text().splitlines() if line.startswith("| ")]


def detectable_points(name: str, starts: tuple[str, ...] = ("",)) -> list[float]:
  """Smallest and largest detectable difference of accuracy from the first row, over rows with these labels."""
  found = [row["minus_first"] for label, row in rows_of(name).items() if "minus_first" in row and label.startswith(starts)]
  return [round(100 * pick(one["class_accuracy"]["detectable"] for one in found), 1) for pick in (min, max)]
