"""Cloud calls of a decode and the origin of its tokens, computed from a `DecodeResult`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxspec.core.state import DecodeResult, Origin
from jaxspec.statistics import FEWEST_CLUSTERS, bounded_ratio
from jaxspec.verifiers.ciar_target import num_catch_ups


class CloudCalls(NamedTuple):
  """Figures of a batch of rows.

  ``target_calls`` counts exchanges, and the prefill if the cloud draws token 0. A prefix drawn by the cloud counts one call
  for each token. Passes that only read a backlog are counted by `cloud_passes` instead.
  """

  call_rate: float  # cloud calls / tokens; plain decoding has 1
  interval: tuple[float, float] | None  # 95 % of the call rate over rows, from 0 to 1; None for fewer than `FEWEST_CLUSTERS`
  steps_cloud: float  # tokens / cloud calls; infinite without a call
  local: float  # share of tokens accepted locally by the edge
  accepted: float  # share drafted by the edge and accepted by the cloud
  by_cloud: float  # share drawn by the cloud


def cloud_calls(outcome: DecodeResult) -> CloudCalls:
  """The figures of all rows together; a row's weight is its number of tokens."""
  lengths, calls = np.asarray(outcome.lengths, np.float64), np.asarray(outcome.counters.target_calls, np.float64)
  origin = np.asarray(outcome.origin)
  share = lambda *kinds: float(np.isin(origin, kinds).sum() / lengths.sum())
  rate, low, high = bounded_ratio(calls, lengths)  # a call yields at least one token
  return CloudCalls(
    rate,
    (low, high) if len(calls) >= FEWEST_CLUSTERS else None,
    float(lengths.sum() / calls.sum()) if calls.sum() else float("inf"),
    share(Origin.LOCAL),
    share(Origin.DRAFT),
    share(Origin.FIRST, Origin.REPLACED, Origin.BONUS),
  )


def cloud_passes(outcome: DecodeResult, *, window: int, widest: int) -> np.ndarray:
  """Forward passes of the cloud for every row ``[B]`` if decoded alone, from the origins and rounds of its tokens.

  They are one pass for each of ``target_calls``, and the passes in which `jaxspec.verifiers.ciar_target.CiarVerifier` only
  reads a backlog. Rows of a batch are read together, and a row may have more inputs of a pass there than alone.

  Args:
    window: the drafter's window.
    widest: tokens of the widest pass, the last of the verifier's ``widths``.
  """
  passes = np.array(outcome.counters.target_calls, np.int64)
  origin, rounds, lengths = (np.asarray(leaf) for leaf in (outcome.origin, outcome.commit_round, outcome.lengths))
  for row, length in enumerate(lengths):
    read = 0
    for number in range(1, int(rounds[row, :length].max(initial=0)) + 1):
      (positions,) = np.nonzero(rounds[row, :length] == number)
      if not len(positions) or origin[row, positions[-1]] == Origin.LOCAL:
        continue  # no cloud call
      local = int((origin[row, positions] == Origin.LOCAL).sum())
      passes[row] += num_catch_ups(int(positions[0]) + local - 1 - read, window, widest)
      read = int(positions[-1])  # all but the newest token
  return passes
