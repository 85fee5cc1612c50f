"""How often a decode asked its cloud, and what each side decided: read off a `DecodeResult`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxspec.decode.state import DecodeResult, Origin
from jaxspec.verifiers.gated import num_catch_ups


class CloudCalls(NamedTuple):
  """Figures of a batch of rows.

  ``target_calls`` counts exchanges, and the prefill of rows whose token 0 the cloud drew; a prefix from the cloud counts one
  call for each token. Passes that only catch up with a long backlog belong to the exchange that needs them; `cloud_passes`
  counts them.
  """

  call_rate: float  # cloud calls / tokens; plain decoding has 1
  interval: tuple[float, float]  # 95 % of the mean call rate over rows, normal approximation
  steps_cloud: float  # tokens / cloud calls; infinite without a call
  settled: float  # share of tokens that the device decided
  accepted: float  # share that the device drafted and the cloud accepted
  by_cloud: float  # share that the cloud drew

  def steps_with_device(self, device_calls: float, tokens: float, kappa: float) -> float:
    """``L / (cloud calls + kappa device calls)`` with the measured cost ratio ``kappa`` of a device to a cloud pass."""
    return tokens / (self.call_rate * tokens + kappa * device_calls)


def cloud_calls(outcome: DecodeResult) -> CloudCalls:
  """The figures of all rows together; rows weigh by their tokens."""
  lengths, calls = np.asarray(outcome.lengths, np.float64), np.asarray(outcome.counters.target_calls, np.float64)
  origin = np.asarray(outcome.origin)
  share = lambda *kinds: float(np.isin(origin, kinds).sum() / lengths.sum())
  rates = calls / lengths
  margin = 1.96 * rates.std(ddof=1) / np.sqrt(len(rates)) if len(rates) > 1 else float("inf")
  rate = float(calls.sum() / lengths.sum())
  return CloudCalls(
    rate,
    (max(rate - margin, 0.0), rate + margin),
    float(lengths.sum() / calls.sum()) if calls.sum() else float("inf"),
    share(Origin.SETTLED),
    share(Origin.DRAFT),
    share(Origin.FIRST, Origin.REPLACED, Origin.BONUS),
  )


def cloud_passes(outcome: DecodeResult, *, window: int, widest: int) -> np.ndarray:
  """Forward passes of the cloud in every row ``[B]``, as many as the row alone would need, from its origins and rounds.

  One for each of ``target_calls``, and those in which `jaxspec.gated_target` only reads a backlog. Rows of a batch are read
  together: what the batch took is at least the largest of them.

  Args:
    window: the drafter's.
    widest: tokens of the widest pass, the last of the verifier's ``widths``.
  """
  passes = np.array(outcome.counters.target_calls, np.int64)
  origin, rounds, lengths = (np.asarray(leaf) for leaf in (outcome.origin, outcome.commit_round, outcome.lengths))
  for row, length in enumerate(lengths):
    read = 0
    for number in range(1, int(rounds[row, :length].max(initial=0)) + 1):
      (places,) = np.nonzero(rounds[row, :length] == number)
      if not len(places) or origin[row, places[-1]] == Origin.SETTLED:
        continue  # nothing was asked
      settled = int((origin[row, places] == Origin.SETTLED).sum())
      passes[row] += num_catch_ups(int(places[0]) + settled - 1 - read, window, widest)
      read = int(places[-1])  # all but the newest token
  return passes
