"""Two-sided quantiles of the normal and of Student's t distribution: the level is the probability between -q and q."""

from __future__ import annotations

import functools
from statistics import NormalDist


def normal_quantile(level: float) -> float:
  check_level(level)
  return NormalDist().inv_cdf((1 + level) / 2)


@functools.lru_cache(maxsize=4096)
def t_quantile(level: float, degrees: int) -> float:
  """The t with probability ``level`` between -t and t, for Student's t with ``degrees`` degrees of freedom."""
  from scipy import special  # takes 0.2 s, which commands without intervals save

  if level == 0:
    return 0.0
  check_level(level)
  if degrees < 1:
    raise ValueError(f"Must have at least one degree of freedom, we instead got {degrees}")
  return -float(special.stdtrit(degrees, (1 - level) / 2))


def check_level(level: float) -> None:
  if not 0 < level < 1:
    raise ValueError(f"Must have a level in (0, 1), we instead got {level}")
