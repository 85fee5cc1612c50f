"""Tables of images of prompts: target calls, wall clock and offline metrics of every row (``gsd``, ``lantern``, ``ciar``).

Metrics are those of ``jaxspec evaluate`` (docs/evaluation.md). Two more compare with plain decoding of the same prompts by
another seed, which tells distributions apart that real images do not:

- ``kid_plain``: kernel distance to those images. Pairs of the same prompt are left out, so it is 0 on average for plain
  decoding. (Tables with intervals of a bootstrap were measured with these pairs, which makes plain samples look nearer.)
- ``prompt_retrieval_change``: mean difference per prompt, paired.
"""

from __future__ import annotations

import dataclasses
import logging
from typing import Any, ClassVar, NamedTuple

import numpy as np

from experiments.engine import claims
from experiments.engine.bench import Bench
from experiments.engine.cache import key_of
from experiments.engine.experiment import Experiment, Lab
from experiments.engine.rows import PLAIN, PLAIN_AGAIN, Row
from experiments.engine.statistics import KID, interval_fields
from jaxspec.data.emoji import STYLES, load_emoji
from jaxspec.data.prompts import canonical_prompt, parse_prompt
from jaxspec.data.tokens import BACKGROUND_NAMES
from jaxspec.decode.state import DecodeResult, Origin
from jaxspec.metrics import evaluation, evaluators, statistics
from jaxspec.metrics.cloud_calls import cloud_calls
from jaxspec.metrics.distances import kernel_distance_difference, kernel_distance_interval

SPLITS = ("train", "val_style", "val_concept")
ENCODER = "concept"
LEAST_RATE_ERROR = 0.005  # cloud calls per token: rows that are further off say so


class Prompts(NamedTuple):
  """What is drawn."""

  texts: list[str]
  image: np.ndarray  # [P] int, the real images that were asked for


@dataclasses.dataclass(frozen=True, kw_only=True)
class Quality(Experiment):
  """A table of rows that all draw the same prompts with the same keys.

  Attributes:
    rows: besides plain decoding by two seeds, which every table has.
    layout: columns of ``calls`` (of the target) or of the ``cloud``.
    num_train: prompts that name training images of ``group``; ``num_held_out`` of each held-out split.
    batch: images decoded together.
    timings: pairs of wall times, of one image by plain decoding and by the row; 0 takes no time.
    bundle: the networks.
    draft: edge network of rows of CIAR that name none; "" is the bundle's first.
    subject: a label that the others are compared with below the table.
  """

  rows: tuple[Row, ...]
  layout: str = "calls"
  num_train: int = 48
  num_held_out: int = 8
  group: str = "Food & Drink"
  batch: int = 8
  timings: int = 5
  bundle: str = "emoji64"
  draft: str = ""
  subject: str = ""

  kind: ClassVar[str] = "quality"

  def measure(self, lab: Lab) -> dict[str, Any]:
    """See `Experiment.measure`."""
    pipeline, prompts = lab.pipeline(self.bundle), self.prompts()
    bench = Bench(pipeline, prompts.texts, lab.decodes, batch=self.batch)
    judge, rows, left_out = Judge(self, bench, prompts), [], []
    for row in (PLAIN.but(label=claims.PLAIN), PLAIN_AGAIN.but(label=f"{claims.PLAIN}, another seed"), *self.rows):
      try:
        row = self.placed(row, bench)
      except ValueError as error:
        left_out.append(f"Left out {row.name}: {error}.")
        logging.warning(left_out[-1])
        continue
      wall = self.wall(row, bench, lab) if self.timings and row.method != "ar" else None
      found = judge.figures(row, bench.decode(row)) | {"wall": wall}
      if row.rate is not None and abs(found["cloud"]["call_rate"] - row.rate) > LEAST_RATE_ERROR:
        left_out.append(f"Not matched {row.name}: {found['cloud']['call_rate']:.4f} is the nearest rate of a threshold.")
      rows.append(found)
    judge.compare(rows, self.subject or claims.PLAIN)
    counts = {split: self.num_train if split == "train" else self.num_held_out for split in SPLITS}
    return {
      "layout": self.layout, "subject": self.subject, "prompts": counts, "group": self.group, "batch": self.batch,
      "reference_images": len(judge.reference), "encoder": ENCODER, "intervals": "over prompts",
      "rows": rows, "left_out": left_out,
    }  # fmt: skip

  def prompts(self) -> Prompts:
    """The same prompts for all rows and all tables of this size."""
    emoji, texts, images = load_emoji(), [], []
    for split in SPLITS:
      num = self.num_train if split == "train" else self.num_held_out
      image, painting = evaluation.choose_images(emoji, split, num, groups=(self.group,), seed=0)
      for index, background, small in zip(image, painting.background, painting.small):
        label = emoji.emoji[emoji.concept[index]]
        texts.append(canonical_prompt(label, STYLES[emoji.style[index]], BACKGROUND_NAMES[background], bool(small)))
      images.append(image)
    return Prompts(texts, np.concatenate(images))

  def placed(self, row: Row, bench: Bench) -> Row:
    """The row with its draft, and with the threshold of its rate.

    Raises:
      ValueError: for a network that the bundle lacks, or a rate that no threshold gives.
    """
    if row.method == "ciar" and self.draft and row.draft is None:
      row = row.but(label=row.name, draft=self.draft)
    row.value(bench.pipeline)
    return row if row.rate is None else bench.matched(row).but(rate=row.rate)

  def wall(self, row: Row, bench: Bench, lab: Lab) -> dict[str, list[float]]:
    """Wall seconds of single images, ``plain`` and ``own`` in turns; read back if they were kept."""
    name = f"wall-{key_of(bench.weights(row), bench.settings(row) | {'prompts': bench.prompts, 'turns': self.timings})}"

    def measure() -> dict[str, list[float]]:
      (plain, own), _ = bench.race([PLAIN, row], turns=self.timings)
      return {"plain": plain, "own": own}

    return lab.clocks.get(name, measure, again=lab.retime)


class Judge:
  """The evaluators and what they saw of plain decoding and of real images."""

  def __init__(self, table: Quality, bench: Bench, prompts: Prompts):
    self._bench, self._networks, emoji = bench, evaluators.load_evaluators(), load_emoji()
    self._gallery = evaluation.make_gallery(self._networks, emoji)
    self._prompts = [parse_prompt(text) for text in prompts.texts]
    exclude = dict(exclude=prompts.image, groups=(table.group,))
    self.reference = evaluation.reference_images(emoji, SPLITS, self._prompts, **exclude)
    self._real = self._networks.embed(ENCODER, self.reference)
    self._plain: dict[int, tuple[np.ndarray, dict[str, np.ndarray]]] = {}
    self._features: dict[str, np.ndarray] = {}  # of all rows, by label

  def figures(self, row: Row, result: DecodeResult) -> dict[str, Any]:
    """The figures of a row; JSON."""
    num_tokens, calls = result.tokens.shape[1], result.counters.target_calls
    features, scores = self._seen(result)
    plain_features, plain_scores = self._of_plain(PLAIN if row.seed else PLAIN_AGAIN)
    self._features[row.name], prompts = features, np.arange(len(features))
    retrieval = scores["prompt_retrieval"]
    found = evaluation.set_distances(features, self._real, ENCODER) | evaluation.summarize_scores(scores)
    metrics = {name: figure.interval for name, figure in found.items()}
    metrics["kid_plain"] = kernel_distance_interval(features, plain_features, clusters=prompts, other_clusters=prompts)
    metrics["prompt_retrieval_change"] = statistics.mean(retrieval - plain_scores["prompt_retrieval"])
    return as_json(row, self._bench) | {
      "images": len(calls),
      "counters": {name: int(getattr(result.counters, name).sum()) for name in result.counters.__dataclass_fields__},
      "calls_per_image": float(calls.mean()),
      "step_reduction": statistics.ratio(np.full(len(calls), num_tokens), calls)._asdict(),
      "cloud": cloud_shares(result),
      "metrics": {name: interval_fields(interval) for name, interval in metrics.items()},
      "per_image": {"target_calls": calls.tolist()}
      | {name: np.round(values, 6).tolist() for name, values in scores.items()},
    }

  def compare(self, rows: list[dict[str, Any]], subject: str) -> None:
    """Adds to the JSON of every row the difference of the subject's distance to real images and its own, pair by pair."""
    for row in rows:
      if row["label"] != subject and subject in self._features:
        found = kernel_distance_difference(self._features[subject], self._features[row["label"]], self._real)
        row["subject_minus_row"] = {KID: found._asdict()}

  def _seen(self, result: DecodeResult) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    pixels = evaluators.in_batches(self._bench.pipeline.host.decode, result.tokens, batch=32)
    scores = evaluation.image_scores(self._networks, self._gallery, pixels, self._prompts)
    return self._networks.embed(ENCODER, pixels), scores

  def _of_plain(self, row: Row) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    if row.seed not in self._plain:
      self._plain[row.seed] = self._seen(self._bench.decode(row))
    return self._plain[row.seed]


def cloud_shares(result: DecodeResult) -> dict[str, Any]:
  """How often the cloud was called, and what each side decided; JSON."""
  calls, origin = cloud_calls(result), np.asarray(result.origin)
  shares = {"local": (Origin.LOCAL,), "accepted": (Origin.DRAFT,), "by_cloud": (Origin.FIRST, Origin.REPLACED, Origin.BONUS)}
  share_of = {name: float(np.isin(origin, kinds).mean()) for name, kinds in shares.items()}
  return {"call_rate": calls.call_rate, "interval": list(calls.interval)} | share_of


def as_json(row: Row, bench: Bench) -> dict[str, Any]:
  """What a document says of a row besides its figures."""
  settings = bench.settings(row)
  about = {name: settings[name] for name in ("method", "options", "sampling", "draft", "alone", "seed", "matmul_precision")}
  return {"label": row.name, "wanted_rate": row.rate, **about}
