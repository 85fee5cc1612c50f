"""Images of emoji, judged by networks: distances to real drawings, retrieval, attributes.

Metrics are those of ``jaxspec evaluate`` (docs/evaluation.md). Two more compare with plain decoding of the same prompts by
another seed, which tells distributions apart that real images do not:

- ``kid_plain``: kernel distance to those images. Pairs of the same prompt are left out, so it is 0 on average for plain
  decoding. (Tables with intervals of a bootstrap were measured with these pairs, which makes plain samples look nearer.)
- ``prompt_retrieval_change``: mean difference per prompt, paired.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar, NamedTuple

import numpy as np

from experiments.engine.bench import Bench
from experiments.engine.rows import PLAIN, PLAIN_AGAIN, Row
from experiments.engine.statistics import KID, interval_fields
from jaxspec.data.emoji import STYLES, load_emoji
from jaxspec.data.prompts import canonical_prompt, parse_prompt
from jaxspec.data.tokens import BACKGROUND_NAMES
from jaxspec.decode.state import DecodeResult
from jaxspec.metrics import evaluation, evaluators, statistics
from jaxspec.metrics.distances import kernel_distance_difference, kernel_distance_interval

SPLITS = ("train", "val_style", "val_concept")
ENCODER = "concept"


class Prompts(NamedTuple):
  """What is drawn."""

  texts: list[str]
  image: np.ndarray  # [P] int, the real images that were asked for


@dataclasses.dataclass(frozen=True)
class Emoji:
  """Prompts that name emoji.

  Attributes:
    num_train: prompts that name training images of ``group``; ``num_held_out`` of each held-out split.
  """

  num_train: int = 48
  num_held_out: int = 8
  group: str = "Food & Drink"

  kind: ClassVar[str] = "quality"
  seconds_an_image: ClassVar[float] = 0.02

  def __post_init__(self):
    if self.num_train < 1 or self.num_held_out < 0:
      raise ValueError(f"Must have num_train of at least 1, we instead got {self.num_train} and {self.num_held_out}")

  @functools.cached_property
  def prompts(self) -> Prompts:
    """The prompts and the real images that they name."""
    emoji, texts, images = load_emoji(), [], []
    for split in SPLITS:
      image, painting = evaluation.choose_images(emoji, split, self.num_of(split), groups=(self.group,), seed=0)
      for index, background, small in zip(image, painting.background, painting.small):
        label = emoji.emoji[emoji.concept[index]]
        texts.append(canonical_prompt(label, STYLES[emoji.style[index]], BACKGROUND_NAMES[background], bool(small)))
      images.append(image)
    return Prompts(texts, np.concatenate(images))

  def texts(self) -> list[str]:
    """See `Scorer.texts`."""
    return self.prompts.texts

  def judge(self, bench: Bench) -> EmojiJudge:
    """See `Scorer.judge`."""
    return EmojiJudge(self, bench)

  def num_of(self, split: str) -> int:
    """Prompts of a split."""
    return self.num_train if split == "train" else self.num_held_out


class EmojiJudge:
  """The evaluators and what they saw of plain decoding and of real images; see `Judge`."""

  def __init__(self, scorer: Emoji, bench: Bench):
    self._scorer, self._bench, self._networks, emoji = scorer, bench, evaluators.load_evaluators(), load_emoji()
    self._gallery = evaluation.make_gallery(self._networks, emoji)
    self._prompts = [parse_prompt(text) for text in scorer.prompts.texts]
    exclude = dict(exclude=scorer.prompts.image, groups=(scorer.group,))
    self._reference = evaluation.reference_images(emoji, SPLITS, self._prompts, **exclude)
    self._real = self._networks.embed(ENCODER, self._reference)
    self._plain: dict[int, tuple[np.ndarray, dict[str, np.ndarray]]] = {}
    self._features: dict[str, np.ndarray] = {}  # of all rows, by label

  def figures(self, row: Row, result: DecodeResult) -> dict[str, Any]:
    """See `Judge.figures`."""
    features, scores = self._seen(result)
    plain_features, plain_scores = self._of_plain(PLAIN if row.seed else PLAIN_AGAIN)
    self._features[row.name], prompts = features, np.arange(len(features))
    retrieval = scores["prompt_retrieval"]
    found = evaluation.set_distances(features, self._real, ENCODER) | evaluation.summarize_scores(scores)
    metrics = {name: figure.interval for name, figure in found.items()}
    metrics["kid_plain"] = kernel_distance_interval(features, plain_features, clusters=prompts, other_clusters=prompts)
    metrics["prompt_retrieval_change"] = statistics.mean(retrieval - plain_scores["prompt_retrieval"])
    return {
      "metrics": {name: interval_fields(interval) for name, interval in metrics.items()},
      "per_image": {name: np.round(values, 6).tolist() for name, values in scores.items()},
    }

  def compare(self, rows: list[dict[str, Any]], subject: str) -> None:
    """Adds the difference of the subject's distance to real images and a row's, pair by pair."""
    for row in rows:
      if row["label"] != subject and subject in self._features:
        found = kernel_distance_difference(self._features[subject], self._features[row["label"]], self._real)
        row["subject_minus_row"] = {KID: found._asdict()}

  def hits(self, result: DecodeResult) -> None:
    """See `Judge.hits`: retrieval is a probability."""

  def about(self) -> dict[str, Any]:
    """See `Judge.about`."""
    return {
      "prompts": {split: self._scorer.num_of(split) for split in SPLITS}, "group": self._scorer.group,
      "reference_images": len(self._reference), "encoder": ENCODER, "intervals": "over prompts",
    }  # fmt: skip

  def _seen(self, result: DecodeResult) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    pixels = evaluators.in_batches(self._bench.pipeline.host.decode, result.tokens, batch=32)
    scores = evaluation.image_scores(self._networks, self._gallery, pixels, self._prompts)
    return self._networks.embed(ENCODER, pixels), scores

  def _of_plain(self, row: Row) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    if row.seed not in self._plain:
      self._plain[row.seed] = self._seen(self._bench.decode(row))
    return self._plain[row.seed]
