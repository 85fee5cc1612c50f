"""The items of every step: a new permutation in every epoch, as a pure function of the step."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np


def epochs_of(
  items: Sequence[int] | np.ndarray, batch_size: int, seed: int | tuple[int, ...]
) -> Callable[[int], np.ndarray]:
  """A function from a step, counted from 0, to its ``batch_size`` items."""
  seeds = seed if isinstance(seed, tuple) else (seed,)

  @functools.lru_cache(maxsize=2)
  def order(epoch: int) -> np.ndarray:
    return np.random.default_rng((*seeds, epoch)).permutation(items)

  def chosen(step: int) -> np.ndarray:
    positions = range(step * batch_size, (step + 1) * batch_size)
    return np.array([order(i // len(items))[i % len(items)] for i in positions])

  return chosen
