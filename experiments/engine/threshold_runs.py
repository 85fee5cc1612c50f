"""Long runs of the controller of C-SQS: the mean dropped mass beside its bound (arXiv 2510.09942, Theorem 2).

A stream draws one text after the other, and the first threshold of a text is the last of the previous text.
"""

from __future__ import annotations

import dataclasses
import logging
import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from experiments.engine.bench import Bench
from experiments.engine.cache import key_of
from experiments.engine.experiment import Lab
from experiments.engine.link import PROMPTS, LinkTable
from experiments.engine.quality import as_json
from experiments.engine.rows import Row
from jaxspec.core.state import SpecParams
from jaxspec.run.compression import count_rounds
from jaxspec.run.run import prepare


@dataclasses.dataclass(frozen=True, kw_only=True)
class ThresholdRuns(LinkTable):
  """Streams of texts, with the dropped mass after several numbers of texts.

  Supports are as large as the vocabulary and there is no budget, so that nothing is truncated and the bound holds on every
  path. The bound is compared with the controller's error, which is at least the dropped mass.

  Attributes:
    texts: of every stream, ``tokens`` each; figures are after the first, a tenth and all of them.
    prompts: one for each stream.
  """

  temperatures: tuple[float, ...] = (1.0,)
  prompts: tuple[str, ...] = PROMPTS[:16]
  seeds: int = 1  # streams of a prompt
  tokens: int = 240
  texts: int = 20
  budget: float = math.inf
  kind: ClassVar[str] = "threshold_runs"

  def __post_init__(self):
    super().__post_init__()
    if self.budget != math.inf or self.edge_ms or len(self.temperatures) != 1:
      raise ValueError("Must have no budget, no times of a pass and one temperature: the table is of masses on whole paths")

  def measure(self, lab: Lab) -> dict[str, Any]:
    """See `Experiment.measure`."""
    bench, rows = self.bench(lab), []
    read = sorted({1, max(self.texts // 10, 1), self.texts})
    vocab = bench.pipeline.family.space.vocab_size
    for entry in self.rows:
      placed = self.placed(entry, self.temperatures[0]).but(support=vocab)
      path = self.path(bench, placed)
      options = bench.settings(placed)["options"]
      of = {name: options[name] for name in ("beta1", "eta", "alpha")}
      after = {str(texts): figures(path, texts, **of) for texts in read}
      rows.append(as_json(placed, bench) | {"after": after, "worst_by_text": worst_by_text(path)})
    config = {name: getattr(self, name) for name in ("tokens", "texts", "max_drafts", "ell")}
    config["temperature"] = self.temperatures[0]
    return {"config": config, "vocab": vocab, "streams": bench.batch, "rows": rows}

  def path(self, bench: Bench, entry: Row) -> dict[str, np.ndarray]:
    """Per stream and text ``[streams, texts]``: tokens, the controller's error, dropped mass, and the threshold after the
    text."""
    job = dataclasses.replace(bench.job(entry), max_len=self.tokens, ends=False)
    parts = job.decoder.parts

    def from_thresholds(first: np.ndarray) -> SpecParams:
      sparsifier = parts.params.draft.sparsifier._replace(first=jnp.asarray(first))
      return parts.params._replace(draft=parts.params.draft._replace(sparsifier=sparsifier))

    start = np.full(bench.batch, job.method.beta1, np.float32)
    # Rows that differ in traced settings share a program.
    run = prepare(job, bench.batches(entry, bench.batch), from_thresholds(start))

    def text(number: int, first: np.ndarray) -> dict[str, np.ndarray]:
      batches = bench.batches(entry.but(seed=number), bench.batch)
      result = jax.device_get(run(batches.key_data[0], batches.condition[0], from_thresholds(first)))
      stats, counts = result.report.stats, count_rounds(result)
      return {
        "tokens": counts.tokens, "fed": stats.fed, "dropped": stats.dropped, "support": stats.support / counts.drafted,
        "threshold": result.report.sparsifier.value,
      }  # fmt: skip

    def all_texts() -> dict[str, np.ndarray]:
      logging.info("%d texts in %d streams: %s", self.texts, bench.batch, entry.name)
      found, first = [], start
      for number in range(self.texts):
        found.append(text(number, first))
        first = np.asarray(found[-1]["threshold"])
      return {name: np.stack([np.asarray(each[name], np.float64) for each in found], axis=1) for name in found[0]}

    settings = bench.settings(entry) | {"texts": self.texts, "prompts": list(self.prompts), "seeds": self.seeds}
    return bench.kept(f"thresholds-{key_of(bench.weights(entry), settings)}", all_texts)


def bound(tokens, *, beta1: float, eta: float, alpha: float):
  """Bound on the dropped mass per token of a path with this number of committed tokens, for eta above 0."""
  return alpha + (beta1 + eta * (1 - alpha)) / (eta * tokens)


def figures(path: dict[str, np.ndarray], texts: int, *, beta1: float, eta: float, alpha: float) -> dict[str, Any]:
  """Dropped mass per token of the first ``texts`` of every stream beside the bound; JSON.

  There is no bound for a fixed threshold.
  """
  total = {name: path[name][:, :texts].sum(axis=1) for name in ("tokens", "fed", "dropped")}
  per_token = total["fed"] / total["tokens"]
  bounds = bound(total["tokens"], beta1=beta1, eta=eta, alpha=alpha) if eta else None
  return {
    "tokens": float(total["tokens"].mean()), "fed": float(per_token.mean()), "worst": float(per_token.max()),
    "dropped": float((total["dropped"] / total["tokens"]).mean()), "bound": None if bounds is None else float(bounds.max()),
    "over": None if bounds is None else int(np.sum(per_token > bounds)),
    "threshold": float(path["threshold"][:, texts - 1].mean()),
    "support": float(path["support"][:, :texts].mean()),
  }  # fmt: skip


def worst_by_text(path: dict[str, np.ndarray]) -> list[list[float]]:
  """After every text: tokens of a stream, and the controller's mean error in the worst stream; JSON."""
  tokens, fed = (np.cumsum(path[name], axis=1) for name in ("tokens", "fed"))
  return [[float(count), float(worst)] for count, worst in zip(tokens.mean(axis=0), (fed / tokens).max(axis=0))]
