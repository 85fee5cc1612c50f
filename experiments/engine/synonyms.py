"""What lossy rules gain over the strength of synonyms, from the tables of the lifted world."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from experiments.configs.lifted import group_size
from experiments.engine import claims, statistics
from experiments.engine.lifted import Lift
from jaxspec.methods import METHODS
from jaxspec.statistics import Difference, Interval, correct_table, ratio

Document = dict[str, Any]
GROWING, FIXED, LENT = ("GSD, groups that grow with the synonyms", "GSD, groups of 100", "LANTERN++, lambda 5")


class Point(NamedTuple):
  """A lossy rule at one strength of synonyms.

  Attributes:
    curve: ``GROWING``, ``FIXED`` or ``LENT``.
    label: of the rule and of its exact sibling.
    twins: synonyms of a background code.
    nats: entropy of a synonym.
    fewer: calls of the exact sibling over those of the rule.
    change: of the share of correct images.
    p_value: of no change; Holm over all points.
  """

  curve: str
  label: str
  twins: int
  nats: float
  fewer: Interval
  change: Interval
  p_value: float


def points(found: Mapping[str, Document]) -> list[Point]:
  """Every lossy row of the tables of strengths, by curve and entropy."""
  pairs: dict[tuple[str, str], Difference] = {}
  about: dict[tuple[str, str], tuple[Lift, dict[str, Any], dict[str, Any]]] = {}
  for name, document in found.items():
    if not name.startswith("lifted_strength_"):
      continue
    rows = {row["label"]: row for row in document["rows"]}
    for row in rows.values():
      if not METHODS[row["method"]].exact:
        other = rows[claims.reference_of(row, document)]
        pairs[name, row["label"]] = statistics.difference(row, other, "right")
        about[name, row["label"]] = Lift(**document["lift"]), row, other
  corrected, made = correct_table(pairs), []
  for key, (lift, row, other) in about.items():
    calls = (np.asarray(entry["per_image"]["target_calls"], float) for entry in (other, row))
    difference = corrected[key].difference
    change = Interval(difference.value, difference.low, difference.high)
    label = f"{row['label']} over {other['label']}"
    about_point = label, lift.twins, lift.nats(), ratio(*calls), change, corrected[key].adjusted
    made += [Point(curve, *about_point) for curve in curves_of(row, lift)]
  return sorted(made, key=lambda point: (point.curve, point.nats))


def curves_of(row: dict[str, Any], lift: Lift) -> list[str]:
  """The curves that a row lies on."""
  if row["method"] == "lantern":
    return [LENT]
  size = row["options"]["group_size"]
  return [GROWING] * (size == group_size(lift.twins)) + [FIXED] * (size == 100)
