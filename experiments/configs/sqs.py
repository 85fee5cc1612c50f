"""K-SQS and C-SQS (arXiv 2510.09942) on the shipped language pair: modelled latency, and what every coding really sends.

Expected, as published: K-SQS slows with temperature, C-SQS less. The paper states no rate, times, prompts or lengths; its
settings are ell 100, eta 0.001 and alpha 0.0005. A second controller (eta 0.05, alpha 0.05) moves far enough within a
continuation to show what adapting does.
"""

from __future__ import annotations

import math

from experiments.engine.link import Codecs, Sweep
from experiments.engine.rows import row

CONTROLLERS = {"fixed": (0.0, 5e-4), "published": (1e-3, 5e-4), "quick": (5e-2, 5e-2)}  # eta, alpha
PUBLISHED = dict(zip(("eta", "alpha"), CONTROLLERS["published"]))


def top(support: int, label: str = "", **given):
  """K-SQS."""
  return row("sqs", label or f"K-SQS, K = {support}", **({"sparsifier": "topk", "support": support} | given))


def conformal(label: str, *, beta1: float, eta: float, alpha: float):
  """C-SQS."""
  return row("sqs", label, sparsifier="conformal", support=256, beta1=beta1, eta=eta, alpha=alpha)


TABLES = {
  "sweep": Sweep(
    title="Sparse quantize-and-sample over temperature",
    rows=(
      *(top(support) for support in (4, 8, 16, 32, 64, 128)),
      *(
        conformal(f"C-SQS, beta_1 = {first:g}, {name}", beta1=first, eta=eta, alpha=alpha)
        for first in (1e-3, 5e-3, 2e-2, 1e-1)
        for name, (eta, alpha) in CONTROLLERS.items()
      ),
    ),
  ),
  "codecs": Codecs(
    title="What every coding sends",
    temperatures=(0.2, 0.6, 1.0),
    rows=(
      *(top(support) for support in (8, 32, 64)),
      conformal("C-SQS", beta1=0.01, **PUBLISHED),
      row("sqs", "dense", sparsifier="topk", coding="dense"),
      *(
        top(64, f"{words}, K = 64", coding=coding)
        for words, coding in (("Rice", "rice"), ("trimmed", "trimmed"), ("lazy", "lazy"))
      ),
      # What is sent without quantizing; no round of it would fit into a budget.
      top(2048, "half precision, no budget", coding="half", budget=math.inf),
    ),
  ),
}
