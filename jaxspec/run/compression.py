"""Figures of a decode under a bit budget: bits and bytes sent, against tokens gained.

Token 0 comes from the prefill and sends nothing on the uplink, so it is not counted.

* ``resampling_rate`` is the number of rejections per round; a round has at most one.
* ``formula_bits`` are the published prices of the drafted distributions. The budget limits them. With coding ``lazy`` they
  exclude the distributions that are sent after rejections.
* ``coded_bits``, ``uplink_bytes`` and the other counts of `jaxspec.serving.wire.traffic.Traffic` are the traffic of a decode
  through messages.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from jaxspec.core.state import DecodeResult, Origin

_SENT_FOR_TOKENS = ("coded_bits", "uplink_bytes", "downlink_bytes")


class Rounds(NamedTuple):
  """Counts of a decode, ``[B]`` int64."""

  tokens: np.ndarray  # tokens committed by rounds
  rounds: np.ndarray
  empty_rounds: np.ndarray  # without a draft
  drafted: np.ndarray
  accepted: np.ndarray
  rejected: np.ndarray  # rounds that ended with a rejection
  edge_passes: np.ndarray  # passes of the draft network, without its prefill


def count_rounds(result: DecodeResult) -> Rounds:
  """Counts of a decode by a compressed drafter."""
  counters = result.counters
  numbers = (
    np.asarray(result.lengths) - 1,
    counters.rounds,
    result.report.stats.empty_rounds,
    counters.drafted,
    counters.accepted,
    np.sum(np.asarray(result.origin) == Origin.REPLACED, axis=1),
    np.asarray(counters.draft_calls) - 1,
  )
  return Rounds(*(np.asarray(number).astype(np.int64) for number in numbers))


def compression_figures(result: DecodeResult, traffic: Any = None) -> dict[str, Any]:
  """Totals over the rows as plain numbers, with their ratios (None if nothing was drafted or committed).

  Args:
    result: a decode by a compressed drafter, leaves ``[B, ...]``.
    traffic: `jaxspec.serving.wire.traffic.Traffic` of the same decode through messages.
  """
  counts = count_rounds(result)
  total = {name: int(values.sum()) for name, values in counts._asdict().items()}
  stats = result.report.stats
  over = lambda value, name: float(value) / total[name] if total[name] else None
  figures = total | {
    "tokens_per_round": over(total["tokens"], "rounds"),
    "drafts_per_round": over(total["drafted"], "rounds"),
    "resampling_rate": over(total["rejected"], "rounds"),
    "rejections_per_draft": over(total["rejected"], "drafted"),
    "support": over(np.sum(stats.support), "drafted"),
    "dropped": over(np.sum(stats.dropped), "tokens"),
    "dropped_as_fed": over(np.sum(stats.fed), "tokens"),
    "formula_bits": float(np.sum(stats.formula_bits)),
    "formula_bits_per_token": over(np.sum(stats.formula_bits), "tokens"),
  }
  if result.report.sparsifier:  # top-K has no threshold
    beta = np.asarray(result.report.sparsifier.high, np.float64) + np.asarray(result.report.sparsifier.low)
    figures |= {"final_beta": float(beta.mean()), "final_beta_each": beta.tolist()}
  if traffic is not None:
    emitted = {name: int(np.sum(values)) for name, values in traffic._asdict().items()}
    ratios = {f"{name}_per_token": over(emitted[name], "tokens") for name in _SENT_FOR_TOKENS}
    figures |= emitted | ratios
  return figures
