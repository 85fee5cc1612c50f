"""Claims of equality: whether two methods differ by less than a margin."""

from __future__ import annotations

from typing import NamedTuple

from jaxspec.statistics.differences import Difference
from jaxspec.statistics.quantiles import t_quantile


class Equivalence(NamedTuple):
  """Outcome of two one-sided tests."""

  p_value: float  # of the hypothesis that the difference is as large as the margin
  low: float  # interval that must lie within the margin
  high: float
  margin: float
  equivalent: bool


def equivalence(difference: Difference, margin: float, *, level: float = 0.95) -> Equivalence:
  """Whether two methods differ by less than a margin: two one-sided tests (TOST; Schuirmann 1987).

  A large p value of a difference is no evidence of equality; a significant test here is. Choose the margin before the
  figures are seen. The tests are Student's t about the middle of the difference's interval, so for shares of hits they are
  those of `paired_share_difference`. They are significant exactly if the interval with twice the error (90 percent for a
  ``level`` of 95) lies within the margin.

  Args:
    difference: of `paired_difference`, `paired_share_difference` or `jaxspec.evaluation.distances`.
    margin: largest difference that does not matter, above 0.
    level: 1 minus the probability of claiming equivalence when the true difference is the margin.
  """
  from scipy import special

  if not margin > 0:
    raise ValueError(f"Must have a margin above 0, we instead got {margin}")
  middle, error = (difference.low + difference.high) / 2, difference.standard_error
  degrees = difference.clusters - 1
  half = t_quantile(2 * level - 1, degrees) * error
  room = margin - abs(middle)
  p_value = float(special.stdtr(degrees, -room / error)) if error > 0 else float(room <= 0)
  return Equivalence(p_value, middle - half, middle + half, margin, p_value <= 1 - level)
