"""Bootstrap intervals: how far a figure may be off because the samples are few."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class Interval(NamedTuple):
  """A figure and the percentile interval around it."""

  value: float
  low: float
  high: float


def bootstrap(
  statistic_fn: Callable[..., float],
  *samples: np.ndarray,
  repeats: int = 200,
  level: float = 0.95,
  seed: int = 0,
  centred: bool = False,
) -> Interval:
  """Percentile bootstrap (Efron 1979) of ``statistic_fn(*samples)``; each sample is resampled by its own rows.

  Args:
    samples: arrays whose first axis counts the samples.
    level: coverage of the interval, in (0, 1).
    centred: shift the draws so that their mean is the value. For statistics that the repeated rows of a resample change
      systematically, such as the Frechet distance, which grows where the distinct samples are fewer.
  Raises:
    ValueError: for a level outside (0, 1), no repeats, or an empty sample.
  """
  if not 0 < level < 1 or repeats < 1:
    raise ValueError(f"Must have a level in (0, 1) and repeats >= 1, we instead got {level} and {repeats}")
  if any(len(sample) == 0 for sample in samples):
    raise ValueError("Must have at least one sample, we instead got none")
  generator = np.random.default_rng(seed)
  value = float(statistic_fn(*samples))
  draws = []
  for _ in range(repeats):
    draws.append(float(statistic_fn(*(s[generator.integers(len(s), size=len(s))] for s in samples))))
  shift = value - float(np.mean(draws)) if centred else 0.0
  return interval(value, np.asarray(draws) + shift, level)


def interval(value: float, draws: np.ndarray, level: float = 0.95) -> Interval:
  """``value`` with the central ``level`` of its resampled ``draws``."""
  low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
  return Interval(value, float(low), float(high))
