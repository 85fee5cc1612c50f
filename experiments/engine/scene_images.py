"""Images of scenes, read exactly (`jaxspec.evaluation.scenes`): whether each is correct, and its unconstrained attributes.

Captions are independent draws of the grammar, so every image is a unit: a share of correct images has the interval of
Wilson, and McNemar's test compares two methods on the same captions and keys.

``unfaithful`` is the total variation of unconstrained attributes between a row and plain decoding
(`jaxspec.evaluation.scenes.distance_between`), with a permutation test. Plain decoding is compared with its other seed,
which shows the variation by chance.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np

from experiments.data.batches import in_batches
from experiments.engine.bench import Bench
from experiments.engine.cache import key_of, tree_digest
from experiments.engine.claims import PLAIN as PLAIN_LABEL
from experiments.engine.rows import PLAIN, PLAIN_AGAIN, Row
from experiments.engine.statistics import Z, interval_fields
from jaxspec.core.state import DecodeResult
from jaxspec.evaluation import scenes
from jaxspec.statistics import Difference

UNFAITHFUL = "unfaithful"


@dataclasses.dataclass(frozen=True)
class Scenes:
  """Captions of the grammar.

  Attributes:
    num: captions, one image each.
    split: of `jaxspec.evaluation.scenes.SPLITS`; ``validation`` has combinations of training, ``held_out`` others.
    seed: of the captions. Training takes those of seeds 0 and 1.
    materials: of the backgrounds; `jaxspec.evaluation.scenes.TEXTURED_WORLD` for a target of the textured world.
  """

  num: int = 512
  split: str = "validation"
  seed: int = 2
  materials: tuple[str, ...] = scenes.FLAT_WORLD

  kind: ClassVar[str] = "scenes"
  seconds_an_image: ClassVar[float] = 0.06

  def __post_init__(self):
    if self.num < 2 or self.split not in scenes.SPLITS:
      splits = ", ".join(scenes.SPLITS)
      raise ValueError(f"Must have num from 2 and a split in {splits}, we instead got {self.num} and {self.split!r}")

  def texts(self) -> list[str]:
    """See `Scorer.texts`."""
    return [scenes.draw_scene(self.seed, number, self.split, self.materials)[0] for number in range(self.num)]

  def judge(self, bench: Bench) -> SceneJudge:
    """See `Scorer.judge`."""
    return SceneJudge(self, bench)


class SceneJudge:
  """Readings of the images of all rows; see `Judge`."""

  def __init__(self, scorer: Scenes, bench: Bench):
    self._scorer, self._bench = scorer, bench
    self._requests = scenes.parse_captions(bench.prompts)
    self._scores: dict[str, scenes.Scores] = {}  # of all rows, by label

  def figures(self, row: Row, result: DecodeResult) -> dict[str, Any]:
    """See `Judge.figures`."""
    scores = self._scores[row.name] = self._of(result)
    plain = self._of(self._bench.decode(PLAIN_AGAIN if row.but(label="") == PLAIN else PLAIN))
    table, distance = scenes.summarise(scores), scenes.distance_between(scores, plain)
    metrics = {demand: interval_fields(share) for demand, share in table["all"].items()}
    if distance is not None:
      metrics[UNFAITHFUL] = dict.fromkeys(("value", "low", "high"), distance.value)
    by_aspect = scenes.compare_sets(scores, plain).items()
    return {
      "metrics": metrics,
      "tasks": {
        task: interval_fields(found["right"]) | {"count": int(found["right"].count)} for task, found in table.items()
      },
      "open": None if distance is None else distance._asdict(),
      "aspects": {name: {field: getattr(found, field) for field in _OF_ASPECTS} for name, found in by_aspect},
      "per_image": {"right": hits_of(scores).astype(int).tolist()},
    }

  def compare(self, rows: list[dict[str, Any]], subject: str) -> None:
    """Adds the difference of distances from plain decoding in unconstrained attributes, subject minus row."""
    named = {row["label"]: row for row in rows}
    if subject not in named or named[subject]["open"] is None:
      return
    for row in rows:
      if row["label"] != subject and row["open"] is not None:
        if (found := self._farther(named[subject], row)) is None:
          del row["metrics"][UNFAITHFUL]  # no common attribute
        else:
          row["subject_minus_row"] = {UNFAITHFUL: found._asdict()}

  def about(self) -> dict[str, Any]:
    """See `Judge.about`."""
    return {"captions": dataclasses.asdict(self._scorer), "intervals": "over captions"}

  def hits(self, result: DecodeResult) -> np.ndarray:
    """See `Judge.hits`."""
    return hits_of(self._of(result))

  def _farther(self, subject: dict[str, Any], row: dict[str, Any]) -> Difference | None:
    """The subject's distance from plain decoding minus a row's; that of plain decoding is due to chance."""
    labels = subject["label"], row["label"]
    if PLAIN_LABEL in labels:
      found = self._beyond_chance(row if labels[0] == PLAIN_LABEL else subject)
      return _negated(found) if labels[0] == PLAIN_LABEL else found
    return scenes.closer(*(self._scores[label] for label in labels), self._of(self._bench.decode(PLAIN)))

  def _beyond_chance(self, row: dict[str, Any]) -> Difference:
    """Distance of a row beyond that of equal distributions; the interval is of the variation by chance."""
    found, num = scenes.Distance(**row["open"]), len(set(self._requests))
    value, half = found.value - found.expected, Z * found.standard_error
    return Difference(value, value - half, value + half, found.p_value, found.standard_error, num)

  def _of(self, result: DecodeResult) -> scenes.Scores:
    """Scores of the first images; readings are cached."""
    family, tokens = self._bench.pipeline.family, np.asarray(result.tokens)
    name = key_of([tree_digest(family.tokenizer.params), tree_digest(tokens)], {"read": "scenes"})
    read = lambda: scenes.read(in_batches(family.decode, tokens, batch=32))
    readings, num = self._bench.kept(f"reading-{name}", read), len(tokens)
    return scenes.score_readings(self._requests[:num], readings, clusters=np.arange(num))


_OF_ASPECTS = ("distance", "expected", "p_value", "count")


def hits_of(scores: scenes.Scores) -> np.ndarray:
  """Whether each image is correct, ``[N]`` bool."""
  return np.array([bool(held["right"]) for held in scores.held])


def _negated(found: Difference) -> Difference:
  return found._replace(value=-found.value, low=-found.high, high=-found.low)
