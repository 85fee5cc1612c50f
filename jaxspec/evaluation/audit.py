"""Figures of audited decodes: the exact bias of tokens (`jaxspec.rules.audited`), with intervals over prompts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxspec.core.types import HostArray
from jaxspec.rules.audited import TokenAudit
from jaxspec.statistics import FEWEST_CLUSTERS, Interval, bounded_ratio, ratio, share


class AuditFigures(NamedTuple):
  """Figures of a decode, each with its 95 % interval over prompts; low and high are nan for fewer than `FEWEST_CLUSTERS`.

  The three figures of bias have no sampling error at a position: if all rows have the same figure (0 for an exact method),
  the interval is that single point. The interval of acceptance, a share, is never a point. Intervals of total variations and
  of shares stay in [0, 1].

  Attributes:
    tokens_per_call: committed tokens per pass of the target, the prefill included.
    tv: total variation, mean over committed tokens; ``kl`` likewise, inf if one token is.
    excess: least possible total variation at this acceptance, mean over committed tokens.
    alpha: probability of accepting a draft, mean over positions with a judged draft; ``alpha_sd`` is that of the lossless
      rule. Without such a position it is 0, from 0 to 1.
    worst: row and position of the largest total variation.
  """

  tokens_per_call: Interval
  tv: Interval
  kl: Interval
  excess: Interval
  alpha: Interval
  alpha_sd: Interval
  worst: tuple[int, int]


def summarize_audit(
  audit: TokenAudit, lengths: HostArray, target_calls: HostArray, *, prompts: np.ndarray | None = None
) -> AuditFigures:
  """Figures of ``P`` decoded rows of up to ``N`` tokens.

  Args:
    audit: leaves ``[P, N]``, 0 after the end of a row, as `DecodeResult.metrics` are.
    lengths: ``[P]`` tokens of each row.
    target_calls: ``[P]`` passes of the target.
    prompts: ``[P]`` prompt of each row, the unit of the intervals. Without it, or if all rows are of one prompt, rows are
      the units; in the second case the intervals are for that prompt.
  Raises:
    ValueError: for an audit with NaN.
  """
  figures = {name: np.asarray(leaf, np.float64) for name, leaf in audit._asdict().items()}
  if any(np.isnan(leaf).any() for leaf in figures.values()):
    raise ValueError("Must have finite logits of the target, we instead got NaN: are its weights damaged?")
  tokens, calls, judged = np.asarray(lengths, np.float64), np.asarray(target_calls, np.float64), figures["tested"].sum(1)
  clusters = None if prompts is None or len(np.unique(prompts)) < 2 else prompts
  units = len(tokens) if clusters is None else len(np.unique(clusters))
  of_tokens = lambda total: bounded_ratio(np.clip(total, 0.0, tokens), tokens, clusters=clusters)  # rounding

  def of_judged(total: np.ndarray) -> Interval:
    found = share(np.clip(total, 0.0, judged), judged, clusters=clusters) if judged.any() else Interval(0.0, 0.0, 1.0)
    ends = (found.low, found.high) if units >= FEWEST_CLUSTERS else (np.nan, np.nan)
    return Interval(found.value, *ends)

  row, position = np.unravel_index(np.argmax(figures["tv"]), figures["tv"].shape)
  return AuditFigures(
    tokens_per_call=ratio(tokens, calls, clusters=clusters),
    tv=of_tokens(figures["tv"].sum(1)),
    kl=ratio(np.maximum(figures["kl"].sum(1), 0.0), tokens, clusters=clusters),
    excess=of_tokens(figures["excess"].sum(1)),
    alpha=of_judged(figures["alpha"].sum(1)),
    alpha_sd=of_judged(figures["alpha_sd"].sum(1)),
    worst=(int(row), int(position)),
  )
