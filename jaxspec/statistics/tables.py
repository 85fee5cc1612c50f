"""A table of differences, corrected for multiple comparisons."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from jaxspec.statistics.differences import Difference
from jaxspec.statistics.power import detectable_difference

_Name = TypeVar("_Name", bound=Hashable)


class Corrected(NamedTuple):
  """One comparison of a table."""

  difference: Difference
  adjusted: float  # p value of Holm over the table
  detectable: float  # smallest true difference that this comparison detects with the given power


def holm(p_values: Sequence[float] | np.ndarray) -> np.ndarray:
  """Adjusted p values ``[M]`` (Holm 1979): rejecting those below 0.05 keeps the family-wise error below 0.05.

  Valid for any dependence between the tests. NaN stands for a missing test and stays NaN.
  """
  p_values = np.asarray(p_values, np.float64)
  adjusted = np.full(p_values.shape, np.nan)
  order = [i for i in np.argsort(p_values, kind="stable") if not np.isnan(p_values[i])]
  reached = 0.0
  for rank, i in enumerate(order):
    reached = max(reached, min((len(order) - rank) * p_values[i], 1.0))
    adjusted[i] = reached
  return adjusted


def correct_table(
  differences: Mapping[_Name, Difference], *, level: float = 0.95, power: float = 0.8
) -> dict[_Name, Corrected]:
  """The comparisons of a table, corrected for all of them.

  Every comparison of the table belongs in it: all methods against the baseline, all columns. Differences of several kinds
  may be mixed; detectable differences are in the unit of each.

  Args:
    differences: of `paired_difference`, `paired_share_difference`, or of `jaxspec.evaluation.distances`, by any name.
    level: 1 minus the family-wise error of the table.
  """
  adjusted = holm([difference.p_value for difference in differences.values()])
  tests = len(differences)
  return {
    name: Corrected(difference, float(p), detectable_difference(difference, tests=tests, level=level, power=power))
    for (name, difference), p in zip(differences.items(), adjusted)
  }
