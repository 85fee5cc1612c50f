"""Times of rounds over a link, measured, for drafters that choose the length of a draft by them.

A round of K drafts takes ``(K + 1) t_d + D + K c``: the passes of the draft network, the exchange with the target's pass,
and what each draft adds to the exchange (its bits over the rate of the uplink). All three are moving estimates of the last
rounds (`estimate`), by medians: a single late reply, or a call that waited for a compiler, changes little.

**Which rounds count.** The length of round r may depend on the past alone. An edge that sends m drafts ahead may have
drafted round r from the reply to round r - m on, and again later with the same random numbers. So it reads the times up to
round ``r - m`` only: those were measured before the first draft of round r. The times of void drafts are not read.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np

from jaxspec.drafters import length_choice
from jaxspec.drafters.length_choice import LengthState
from jaxspec.methods.auto_length import in_plain_rounds
from jaxspec.methods.method import Method
from jaxspec.methods.sqs import DELAY, FIXED
from jaxspec.serving.edge.round_timing import TimedRound
from jaxspec.serving.wire.link_model import RoundSeconds

ROUNDS = 16  # that the estimate reads


class Past(NamedTuple):
  """What the length of a round may depend on.

  Attributes:
    number: number of the row's verified rounds before this one.
    rounds: the newest of them that were measured before this one was first drafted, and those of earlier rows.
    full: ``[K + 1]`` probabilities that the first 0 to K drafts are all accepted; empty without a pipeline.
    pipeline: drafts that may wait for their replies.
    most: K.
  """

  number: int
  rounds: Sequence[TimedRound]
  full: Sequence[float]
  pipeline: int
  most: int


# The times ``[K + 1]`` int32 of rounds of 0 to K drafts, see `jaxspec.drafters.length_choice.choose`; None: not known yet.
TableFn = Callable[[Past], np.ndarray | None]


class LinkTimes(NamedTuple):
  """Seconds.

  Attributes:
    draft_pass: t_d.
    exchange: D with the target's pass t_v, of a round without drafts.
    each_draft: c.
    verify: an estimate of t_v from above, the distance of replies that follow each other.
  """

  draft_pass: float
  exchange: float
  each_draft: float
  verify: float

  def round_of(self, drafts: int) -> RoundSeconds:
    """The seconds of a round."""
    link = self.exchange + drafts * self.each_draft
    verify = min(self.verify, link)
    return RoundSeconds((drafts + 1) * self.draft_pass, verify, link - verify)


def estimate(rounds: Sequence[TimedRound]) -> LinkTimes:
  """The moving estimates from measured rounds, at least one.

  The slope of exchanges over drafts is the median of the slopes of all pairs (Theil and Sen), at least 0.
  """
  rounds = rounds[-ROUNDS:]
  points = [(each.drafted, 1e-6 * each.timing.exchange_us) for each in rounds]
  slopes = [(y - x) / (b - a) for (a, x), (b, y) in itertools.combinations(points, 2) if a != b]
  slope = max(0.0, statistics.median_low(slopes)) if slopes else 0.0
  spacing = sorted(1e-6 * each.timing.spacing_us for each in rounds)
  return LinkTimes(
    statistics.median_low(1e-6 * each.timing.draft_us / (each.drafted + 1) for each in rounds),
    max(0.0, statistics.median_low(seconds - slope * drafted for drafted, seconds in points)),
    slope,
    spacing[len(spacing) // 4],
  )


def table(past: Past) -> np.ndarray | None:
  """A `TableFn`: the mean seconds from reply to reply (`RoundSeconds.mean`) by the estimates of measured rounds."""
  if not past.rounds:
    return None
  times, full = estimate(past.rounds), [0.0, *past.full[1:]] if past.full else [0.0] * (past.most + 1)
  seconds = [times.round_of(drafts).mean(full[drafts], past.pipeline) for drafts in range(past.most + 1)]
  return in_plain_rounds([max(each, 1e-6) for each in seconds])


@jax.jit
def _survival(choice: LengthState) -> jax.Array:
  return jax.vmap(length_choice.survival)(choice)


def full_acceptance(choice: LengthState) -> list[float]:
  """``Past.full`` of the one row of a drafter's state."""
  found = np.asarray(_survival(choice))[0, 0]
  return (found / found[0]).tolist()


def table_of(method: Method) -> TableFn | None:
  """`table`, for a method whose drafts follow the delay; None for others."""
  return table if getattr(method, "length", FIXED) == DELAY else None
