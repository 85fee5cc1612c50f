"""Comparison of settings of a training, with its seeds as units.

Rows of one `Row.setting` are trainings of one setting. The unit is the training: its share of correct images is one number,
and the variance over seeds includes training and sampling. Settings are compared with the first one by Student's t with the
standard deviation of all settings together, and Holm over the table.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from experiments.engine.statistics import LEVEL
from jaxspec.statistics import Corrected, Difference, correct_table, t_quantile

METRIC = "right"


class Comparison(NamedTuple):
  """Settings of a training against the first one."""

  base: str
  means: dict[str, float]  # of all settings
  seeds: dict[str, int]
  deviation: float  # of trainings of one setting
  degrees: int
  against: dict[str, Corrected]  # the others minus the first


def settings_of(document: dict[str, Any]) -> dict[str, list[float]]:
  """Shares of correct images of every training, by setting, in the order of the rows."""
  found: dict[str, list[float]] = {}
  for row in document["rows"]:
    if row.get("setting"):
      found.setdefault(row["setting"], []).append(row["metrics"][METRIC]["value"])
  return found


def compare(document: dict[str, Any]) -> Comparison | None:
  """The settings of a table; None with fewer than two, or without a setting trained twice."""
  groups = settings_of(document)
  degrees = sum(len(values) - 1 for values in groups.values())
  if len(groups) < 2 or degrees < 1:
    return None
  deviation = _deviation(groups, degrees)
  means = {name: float(np.mean(values)) for name, values in groups.items()}
  base, *others = groups
  differences = {name: _difference(groups[name], groups[base], deviation, degrees) for name in others}
  sizes = {name: len(values) for name, values in groups.items()}
  return Comparison(base, means, sizes, deviation, degrees, correct_table(differences))


def difference_of(document: dict[str, Any], first: str, second: str) -> Difference:
  """One setting minus another, with the standard deviation of all trainings of the table."""
  groups = settings_of(document)
  degrees = sum(len(values) - 1 for values in groups.values())
  return _difference(groups[first], groups[second], _deviation(groups, degrees), degrees)


def _deviation(groups: dict[str, list[float]], degrees: int) -> float:
  """Of trainings of one setting."""
  squares = sum(float(np.sum((np.array(values) - np.mean(values)) ** 2)) for values in groups.values())
  return math.sqrt(squares / degrees)


def _difference(first: list[float], second: list[float], deviation: float, degrees: int) -> Difference:
  value = float(np.mean(first) - np.mean(second))
  error = deviation * math.sqrt(1 / len(first) + 1 / len(second))
  half = t_quantile(LEVEL, degrees) * error
  p_value = 2 * float(special.stdtr(degrees, -abs(value) / error)) if error else float(value == 0)
  return Difference(value, value - half, value + half, p_value, error, degrees + 1)


def sentences(document: dict[str, Any]) -> list[str]:
  """The comparison of a table; empty without one."""
  if (found := compare(document)) is None:
    return []
  each = [
    f"{name} {100 * found.means[name]:.1f} % ({found.seeds[name]} trainings; "
    f"{100 * one.difference.value:+.1f} [{100 * one.difference.low:.1f}, {100 * one.difference.high:.1f}] points, "
    f"p {one.adjusted:.2g})"
    for name, one in found.against.items()
  ]
  smallest = max(one.detectable for one in found.against.values())
  return [
    f"Trainings as units (standard deviation of one setting {100 * found.deviation:.1f} points, {found.degrees} degrees of "
    f"freedom; p of Holm): correct images of {found.base} {100 * found.means[found.base]:.1f} % ({found.seeds[found.base]} "
    f"trainings); against it {'; '.join(each)}. Smallest true difference detectable with 80 % power: "
    f"{100 * smallest:.1f} points."
  ]
