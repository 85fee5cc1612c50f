"""The figure of ``jaxspec diagnose --plot``."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from jaxspec.evaluation.diagnosis import CERTAIN, FLAT, Diagnosis
from jaxspec.run.job import Job

_LINE, _QUIET, _BINS = "#3b6fb6", "#8a9099", 20


def plot(job: Job, found: Diagnosis, path: Path) -> None:
  """Histogram of the largest probability of each token (figure 1 of the supplement of arXiv 2508.07747)."""
  from matplotlib.backends.backend_agg import FigureCanvasAgg
  from matplotlib.figure import Figure
  from matplotlib.ticker import PercentFormatter

  largest = found.tokens.largest
  figure = Figure(figsize=(6.4, 3.6), layout="constrained")
  FigureCanvasAgg(figure)
  axes = figure.add_subplot()
  axes.hist(
    largest, np.linspace(0, 1, _BINS + 1).tolist(), weights=np.full(len(largest), 1 / len(largest)), color=_LINE, rwidth=0.92
  )
  axes.set_ylim(top=1.12 * axes.get_ylim()[1])  # words above the bars
  for mark, words, side in (
    (FLAT, f"{found.flat:.0%} below {FLAT:g}", "left"),
    (CERTAIN, f"{found.certain:.0%} above {CERTAIN:g}", "right"),
  ):
    axes.axvline(mark, color=_QUIET, linewidth=0.8, linestyle="--")
    axes.annotate(
      words, (mark, 1), xycoords=("data", "axes fraction"), xytext=(4 if side == "left" else -4, -12),
      textcoords="offset points", ha=side, color=_QUIET, fontsize=9,
    )  # fmt: skip
  axes.set_xlabel("largest probability of a token")
  axes.set_ylabel("share of tokens")
  axes.yaxis.set_major_formatter(PercentFormatter(1))
  axes.set_xlim(0, 1)
  axes.set_title(f"{job.pipeline.name}: {len(largest):,} tokens", fontsize=10.5, loc="left")
  axes.spines[["top", "right"]].set_visible(False)
  axes.grid(alpha=0.25)
  axes.set_axisbelow(True)
  figure.savefig(path, dpi=150)
