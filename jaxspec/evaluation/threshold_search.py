"""Search for CIAR's threshold: finds the tau for a target rate of cloud calls.

Accepted tokens feed back into the context, so quantiles of recorded scores can only start the search. The whole decoder runs
at every trial threshold, with the same keys. The search returns the threshold with the nearest rate. Rates differ from image
to image, so a threshold for other prompts takes hundreds of images: most trials decode a few of them.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

_LARGEST_LOG = 80.0  # largest log of a trial threshold; float32 overflows soon after
MOST_TRIALS_AGAIN = 8  # of the second search among a few images
_NEAR = 1.15  # factor of a threshold between two trials, after a search on fewer images


class Calibrated(NamedTuple):
  """A threshold and its rate on the calibration prompts."""

  tau: float
  rate: float
  trials: int


def quantile_threshold(scores: np.ndarray, share_sent: float) -> float:
  """The tau exceeded by a given share of recorded scores. NaN entries (positions without a score) do not count.

  Raises:
    ValueError: for a share outside of [0, 1], or without scores.
  """
  known = np.asarray(scores, np.float64)
  known = known[~np.isnan(known)]
  if not 0 <= share_sent <= 1:
    raise ValueError(f"Must have a share from 0 to 1, we instead got {share_sent}")
  if not len(known):
    raise ValueError("Must have scores to take a quantile of, we instead got none")
  return float(np.quantile(known, 1 - share_sent))


def find_threshold(
  rate_of: Callable[[float], float],
  target: float,
  *,
  start: float,
  tolerance: float = 0.001,
  max_trials: int = 24,
  factor: float = 2.0,
) -> Calibrated:
  """Root search in log tau for a rate that falls (up to noise) in tau: brackets, then interpolates inside the bracket.

  Args:
    rate_of: cloud calls per token at a threshold; a whole decode.
    target: target rate.
    start: a positive threshold near the solution.
    tolerance: the search ends when the rate is this close to ``target``.
    max_trials: largest number of decodes.
    factor: ratio of the first two trials; near 1 for a good start.
  Returns:
    The trial with the nearest rate. It may miss ``tolerance`` if the trials run out or the rate jumps.
  Raises:
    ValueError: if the nearest rate is further away than 0.02 and ``tolerance``.
  """
  if not start > 0:
    raise ValueError(f"Must have a start above 0, we instead got {start}")
  if not factor > 1:
    raise ValueError(f"Must have a factor above 1, we instead got {factor}")
  best = Calibrated(start, rate_of(start), 1)

  def try_at(log_tau: float) -> float:
    nonlocal best
    rate = rate_of(math.exp(log_tau))
    trials = best.trials + 1
    nearer = abs(rate - target) < abs(best.rate - target)
    best = Calibrated(math.exp(log_tau), rate, trials) if nearer else best._replace(trials=trials)
    return rate

  low = high = math.log(start)
  rate_low = rate_high = rate = best.rate
  step = math.log(factor)
  down = rate < target  # too few calls: a lower threshold
  while abs(best.rate - target) > tolerance:
    moved = (low - step) if down else (high + step)
    if best.trials >= max_trials or abs(moved) > _LARGEST_LOG:
      break
    rate = try_at(moved)
    if down:
      low, rate_low = moved, rate
      if rate >= target:
        break
      high, rate_high = moved, rate
    else:
      high, rate_high = moved, rate
      if rate <= target:
        break
      low, rate_low = moved, rate
    step *= 2
  while abs(best.rate - target) > tolerance and best.trials < max_trials and high - low > 1e-6:
    # Every trial is a full decode. Linear interpolation saves half of them; a step shrinks the bracket by a tenth at least.
    share = (rate_low - target) / (rate_low - rate_high) if rate_low > rate_high else 0.5
    middle = low + min(max(share, 0.1), 0.9) * (high - low)
    rate = try_at(middle)
    if rate > target:
      low, rate_low = middle, rate
    else:
      high, rate_high = middle, rate
  if abs(best.rate - target) > max(tolerance, 0.02):
    raise ValueError(f"Must have a rate that a threshold reaches, the nearest to {target:g} is {best.rate:.4f}")
  return best


def find_threshold_by_few(
  rate_of: Callable[[float], float],
  rate_of_few: Callable[[float], float],
  target: float,
  *,
  start: float,
  tolerance: float,
  max_trials: int = 24,
) -> Calibrated:
  """`find_threshold` on many images, with most trials on a few of them.

  The rates of the few and of all differ by nearly the same amount at every threshold, which one trial of all measures.

  Args:
    rate_of: cloud calls per token of all images at a threshold; the last search repeats thresholds, so cache its results.
    rate_of_few: the same for a few of them.
    target, start, tolerance: as for `find_threshold`; ``start`` is for the few.
    max_trials: of the first search on the few and of the last one.
  Returns:
    The trial of all images with the nearest rate; ``trials`` counts those of the last search.
  Raises:
    ValueError: if the nearest rate of the few or of all images is further away than 0.02 and ``tolerance``. A rate that the
      few cannot reach is not tried on all.
  """
  near = find_threshold(rate_of_few, target, start=start, tolerance=tolerance, max_trials=max_trials)
  off = rate_of(near.tau) - target
  start = near.tau
  if abs(off) > tolerance:
    wanted = near.rate - off
    with contextlib.suppress(ValueError):  # a rate that the few cannot reach
      start = find_threshold(
        rate_of_few, wanted, start=start, tolerance=tolerance / 2, max_trials=MOST_TRIALS_AGAIN, factor=_NEAR
      ).tau
  return find_threshold(rate_of, target, start=start, tolerance=tolerance, max_trials=max_trials, factor=_NEAR)


def prompts_hash(prompts: Sequence[str]) -> str:
  """Hash of the calibration prompts of a threshold."""
  return hashlib.sha256("\n".join(prompts).encode()).hexdigest()[:16]
