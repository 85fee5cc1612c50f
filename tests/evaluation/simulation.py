"""Coverage of 95 % intervals over simulated data sets."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from scipy.stats import binom

PROOF = 2000  # data sets of a proof; fewer are simulated by default
SIZES = pytest.mark.parametrize("number", [400, pytest.param(PROOF, marks=pytest.mark.slow)])


def coverages(find_fn: Callable[[np.random.Generator, int], Sequence], truths: Sequence[float], number: int) -> np.ndarray:
  """Shares of ``number`` data sets whose intervals contain the true values.

  Args:
    find_fn: from a generator and a seed, the intervals of one data set.
    truths: true value of each interval.
  """
  hits = np.zeros(len(truths))
  for seed in range(number):
    found = find_fn(np.random.default_rng(seed), seed)
    hits += [interval.low <= truth <= interval.high for interval, truth in zip(found, truths, strict=True)]
  return hits / number


def assert_covered(shares: np.ndarray, number: int) -> None:
  """93 to 97 % of the data sets of a proof; for fewer, the 99.9 % range of a correct interval."""
  low, high = (0.93, 0.97) if number == PROOF else np.array(binom.interval(0.999, number, 0.95)) / number
  assert np.all((low <= shares) & (shares <= high)), shares
