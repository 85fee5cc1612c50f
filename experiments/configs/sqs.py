"""K-SQS and C-SQS (arXiv 2510.09942) on the shipped language pair: latency, traffic of every coding, and long runs.

Expected, as published: latency of K-SQS grows with temperature, that of C-SQS less. The paper states no rate, times, prompts
or lengths; its settings are ell 100, a budget of 5,000 bits, eta 0.001 and alpha 0.0005, on a vocabulary of 50,257 tokens
(here 2,048). A second controller (eta 0.05, alpha 0.05) moves far enough within a continuation to show the effect of
adaptation.

Rows of `sweep` have at most 5 drafts per round, so that rows differ in traffic, not in draft length. The budget then ends
only rounds of large supports. Rows of `budget` draft until the bits run out, as published, up to a window of 80 drafts.
"""

from __future__ import annotations

import math

from experiments.engine.link import Codecs, Sweep
from experiments.engine.rows import row
from experiments.engine.threshold_runs import ThresholdRuns

CONTROLLERS = {"fixed": (0.0, 5e-4), "published": (1e-3, 5e-4), "quick": (5e-2, 5e-2)}  # eta, alpha
PUBLISHED = dict(zip(("eta", "alpha"), CONTROLLERS["published"]))


def top(support: int, label: str = "", **given):
  """K-SQS."""
  return row("sqs", label or f"K-SQS, K = {support}", **({"sparsifier": "topk", "support": support} | given))


def conformal(label: str, *, beta1: float, eta: float, alpha: float, **given):
  """C-SQS."""
  settings = dict(sparsifier="conformal", support=256, beta1=beta1, eta=eta, alpha=alpha)
  return row("sqs", label, **(settings | given))


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
    subject="K-SQS, K = 4",
    notes=("Published: K-SQS is faster at low temperatures, C-SQS at high ones; adapting is never slower than not.",),
  ),
  "budget": Sweep(
    title="Sparse quantize-and-sample, rounds ended by the budget alone",
    temperatures=(0.2, 0.6, 1.0),
    rows=(
      *(top(support) for support in (4, 32, 64)),
      *(
        conformal(f"C-SQS, beta_1 = {first:g}, {name}", beta1=first, eta=eta, alpha=alpha, support=None)
        for first in (5e-3, 2e-2)
        for name, (eta, alpha) in CONTROLLERS.items()
      ),
    ),
    subject="K-SQS, K = 32",
    seeds=4,
    tokens=96,
    max_drafts=80,
    # Times of a pass as measured for `sweep`, so that both tables differ in the rule alone.
    edge_ms=0.1042,
    cloud_ms=0.4122,
    cloud_token_ms=0.0336,
    notes=(
      "The budget of 5,000 bits or a window of 80 drafts ends a round, and C-SQS sends any number of tokens.",
      "Published: K-SQS is faster at low temperatures, C-SQS at high ones; adapting is never slower than not.",
    ),
  ),
  "codecs": Codecs(
    title="What every coding sends",
    temperatures=(0.2, 0.6, 1.0),
    # One budget would end the rounds of expensive codings earlier.
    budget=math.inf,
    rows=(
      *(top(support) for support in (8, 32, 64)),
      conformal("C-SQS, beta_1 = 0.01, published", beta1=0.01, **PUBLISHED),
      row("sqs", "dense", sparsifier="topk", coding="dense"),
      *(
        top(64, f"{words}, K = 64", coding=coding)
        for words, coding in (("Rice", "rice"), ("trimmed", "trimmed"), ("lazy", "lazy"))
      ),
      # Traffic without quantization.
      top(2048, "half precision", coding="half"),
    ),
  ),
  "long_runs": ThresholdRuns(
    title="The threshold of C-SQS over long runs",
    rows=(
      *(
        conformal(f"{name}, beta_1 = {first:g}", beta1=first, eta=CONTROLLERS[name][0], alpha=CONTROLLERS[name][1])
        for name in ("published", "quick")
        for first in (5e-3, 1e-1)
      ),
      conformal("fixed, beta_1 = 0.005", beta1=5e-3, eta=0.0, alpha=5e-4),
      *(
        conformal(f"quick, beta_1 = 0.1, {policy} policy", beta1=1e-1, eta=5e-2, alpha=5e-2, policy=policy)
        for policy in ("literal", "drafted")
      ),
    ),
    notes=("The bound is that of the policy of the text; the other two are shown for what they miss.",),
  ),
}
