"""Tables of digits, drawn by networks of continuous tokens (``cspd``): acceptance and marginals; and the judge of digits."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import scipy.stats

from experiments.data.batches import in_batches
from experiments.data.class_images import Split, load_images
from experiments.engine.bench import Bench
from experiments.engine.experiment import Experiment, Lab
from experiments.engine.quality import as_json
from experiments.engine.rows import Row
from experiments.engine.statistics import acceptance
from jaxspec.core import rng
from jaxspec.core.state import Counters, DecodeResult, Origin
from jaxspec.models.conditions import OrderedLabels

MOST_TRIES = 100  # largest number of proposals with its own count


def every_class(num_classes: int, num: int, seed: int = 0) -> list[int]:
  """``num`` labels: classes in epochs, each in a random order."""
  generator = np.random.default_rng(seed)
  return np.concatenate([generator.permutation(num_classes) for _ in range(-(-num // num_classes))])[:num].tolist()


def orders_of(bench: Bench, row: Row) -> np.ndarray | None:
  """Positions ``[P, L]`` in generation order, for a masked network; None for raster order."""
  batches = bench.batches(row, bench.batch)
  prepare = lambda data, condition: bench.pipeline.family.prepare(rng.of_key_data(data), condition)
  found = [prepare(data, condition) for data, condition in zip(batches.key_data, batches.condition)]
  if not isinstance(found[0], OrderedLabels):
    return None
  return np.concatenate([np.asarray(condition.order) for condition in found])[: batches.num]


def in_order(result: DecodeResult, order: np.ndarray | None) -> np.ndarray:
  """Origins ``[P, L]`` in the order of generation."""
  return result.origin if order is None else np.take_along_axis(result.origin, order, axis=1)


def counted(result: DecodeResult, origin: np.ndarray) -> dict[str, Any]:
  """Counts with 95 % intervals over images; JSON.

  Args:
    origin: in the order of generation.
  """
  counters = {name: np.asarray(getattr(result.counters, name)) for name in Counters.__dataclass_fields__}
  found: dict[str, Any] = {"images": len(result.tokens)} | {name: int(values.sum()) for name, values in counters.items()}
  found["calls_per_image"] = float(counters["target_calls"].mean())
  if found["drafted"]:
    tested = np.stack([(origin == kind).sum(axis=1) for kind in (Origin.DRAFT, Origin.REPLACED)], axis=1)
    # Drafts after a rejection are never tested: alpha counts only tested drafts, unlike perhaps the published "acceptance
    # rate".
    found["alpha"] = acceptance(tested[:, 0], tested.sum(axis=1))._asdict()
    found["accepted_share"] = found["accepted"] / found["drafted"]
    found["per_image"] = {"accepted": tested[:, 0].tolist(), "rejected": tested[:, 1].tolist()}
  return found


def figures(result: DecodeResult, origin: np.ndarray) -> dict[str, Any]:
  """Counts, and numbers of proposals after a rejection; JSON. Arguments as in `counted`."""
  found = counted(result, origin)
  if found["drafted"]:
    rejected = result.origin == Origin.REPLACED
    tries = np.asarray(result.metrics.tries)[rejected]
    found["mean_tries"] = float(tries.mean()) if tries.size else None
    found["fallbacks"] = int(np.asarray(result.metrics.fallback).sum())
    # Number of rejections with 0, 1, ... proposals; the last entry has all others.
    found["tries"] = np.bincount(np.minimum(tries, MOST_TRIES + 1), minlength=MOST_TRIES + 2).tolist()
    found["kept_steps"] = float(np.asarray(result.metrics.steps)[rejected].mean()) if tries.size else None
  return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassTable(Experiment):
  """Base of all tables of classes.

  Attributes:
    bundle: the pair of networks.
    rows: the compared decodes.
    num_images: number of images, classes in turn.
    batch: images decoded together.
    steps, stop: of the chains, if they differ from those of training.
  """

  bundle: str
  rows: tuple[Row, ...]
  num_images: int
  batch: int
  steps: str = ""
  stop: int | None = None

  def placed(self, row: Row) -> Row:
    """The row with the chains of this table."""
    chains = ({"steps": self.steps} if self.steps else {}) | ({} if self.stop is None else {"stop": self.stop})
    return row.but(sampling=chains | dict(row.sampling))

  def bench(self, lab: Lab, labels: Sequence[int] | None = None) -> tuple[Bench, np.ndarray]:
    """The bench and its classes."""
    pipeline = lab.pipeline(self.bundle)
    labels = every_class(pipeline.target.config.num_classes, self.num_images) if labels is None else labels
    return Bench(pipeline, labels, lab.decodes, batch=self.batch), np.asarray(labels)

  def pixels(self, bench: Bench, row: Row, result: DecodeResult) -> np.ndarray:
    """Images ``[P, H, W, 3]`` uint8."""
    decode = functools.partial(bench.of(row).family.decode, sampling=bench.decoder(row).sampling)
    return in_batches(decode, result.tokens, batch=32)

  def about(self, bench: Bench) -> dict[str, Any]:
    """Common fields of documents of this kind; JSON."""
    return {"bundle": bench.pipeline.name, "batch": self.batch, "intervals": "over images"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Acceptance(ClassTable):
  """Acceptance of drafts over one setting.

  Attributes:
    walked: options and sampling settings with their own columns.
  """

  walked: tuple[str, ...]
  kind: ClassVar[str] = "acceptance"

  def measure(self, lab: Lab) -> dict[str, Any]:
    """See `Experiment.measure`."""
    bench, _ = self.bench(lab)
    rows = []
    for row in map(self.placed, self.rows):
      result = bench.decode(row)
      origin = in_order(result, orders_of(bench, row))
      about = as_json(row, bench)
      values = about["options"] | about["sampling"]
      rows.append(about | {"walked": {name: values[name] for name in self.walked}, "figures": figures(result, origin),
                           "along": along_the_row(origin)})  # fmt: skip
    return self.about(bench) | {"rows": rows}


def along_the_row(origin: np.ndarray) -> dict[str, list[int]]:
  """Tested and accepted drafts at every position of the generation order."""
  accepted = (origin == Origin.DRAFT).sum(axis=0)
  return {"accepted": accepted.tolist(), "tested": (accepted + (origin == Origin.REPLACED).sum(axis=0)).tolist()}


def as_pixels(images: np.ndarray) -> np.ndarray:
  """Images ``[N, H, W, 3]`` uint8 as inputs of the judge of digits."""
  return images.mean(axis=-1).reshape(len(images), -1) / 255.0


def shifted(split: Split, times: int = 1) -> tuple[np.ndarray, np.ndarray]:
  """Every digit ``times`` times at random positions, as in training, and its labels."""
  rows = np.tile(np.arange(len(split.labels)), times)
  return as_pixels(split.draw(rows, np.random.default_rng(0))), split.labels[rows]


def fit_judge() -> tuple[Any, np.ndarray]:
  """The classifier of digits, and whether it classifies each held-out real digit correctly, ``[M]`` bool.

  It is a support vector machine on pixels, fitted here to the training digits; needs the ``eval`` extra and
  ``experiments.data.digits``.

  Raises:
    ValueError: without the extra.
  """
  try:
    from sklearn.svm import SVC
  except ImportError as error:
    raise ValueError("Must have scikit-learn to judge digits: pip install 'jaxspec-decoding[eval]'") from error
  digits = load_images("digits")
  judge = SVC(C=10.0, gamma="scale").fit(*shifted(digits.train, 3))
  pixels, labels = shifted(digits.held_out)
  return judge, judge.predict(pixels) == labels


@dataclasses.dataclass(frozen=True, kw_only=True)
class Marginals(ClassTable):
  """Tests of the distribution of a token under speculation: Kolmogorov-Smirnov at a fixed position.

  Thousands of rows of one class draw the first tokens of their order. The two-sample distance compares each component of one
  draftable token with the target's; p is the smallest p value of the components times their number. An exact rule gives
  distances like those of the target with other seeds; a small p shows a bias.

  Attributes:
    rows: the first is the target, the reference of all others.
    name: of the class.
    position: of the token in the order, 0 is the first. One more token is drawn, because the last token of a decode is never
      drafted.
  """

  name: str = "3"
  position: int = 2
  kind: ClassVar[str] = "marginals"

  def measure(self, lab: Lab) -> dict[str, Any]:
    """See `Experiment.measure`."""
    bench, _ = self.bench(lab, [self.name] * self.num_images)
    rows, (reference, *others) = [], [self.placed(row.but(max_len=self.position + 2)) for row in self.rows]
    target, _ = self._token(bench, reference)
    for row in others:
      token, origin = self._token(bench, row)
      found = figures(bench.decode(row), origin)
      found["drafted_here"] = float(np.isin(origin[:, self.position], (Origin.DRAFT, Origin.REPLACED)).mean())
      found.pop("per_image", None)  # thousands
      rows.append(as_json(row, bench) | {"figures": found, **compare(target, token)})
    gamma = max((dict(row.options).get("gamma", 0) for row in others), default=0)
    about = {"class": self.name, "position": self.position, "gamma": gamma, "components": target.shape[1]}
    return self.about(bench) | about | {"rows": rows}

  def _token(self, bench: Bench, row: Row) -> tuple[np.ndarray, np.ndarray]:
    """The token ``[P, C]`` at the position of every row's order, and origins in that order."""
    result, order = bench.decode(row), orders_of(bench, row)
    at = self.position if order is None else order[:, self.position]
    return result.tokens[np.arange(len(result.tokens)), at], in_order(result, order)


def compare(a: np.ndarray, b: np.ndarray) -> dict[str, float]:
  """KS distances of all components of two samples ``[P, C]``; JSON."""
  tests = [scipy.stats.ks_2samp(u, v) for u, v in zip(a.T, b.T)]
  distances = [float(test.statistic) for test in tests]
  p = min(1.0, len(tests) * min(float(test.pvalue) for test in tests))
  return {"ks": max(distances), "ks_mean": float(np.mean(distances)), "p": p}
