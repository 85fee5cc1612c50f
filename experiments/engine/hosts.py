"""Tables of digits with scores of a judge: CIAR's Table 10 on small pairs (``hosts``), continuous tokens (``cspd``).

1. Every row draws the same classes with the same keys, so rows are compared image by image.
2. A judge of digits (`experiments.engine.classes.fit_judge`) classifies the images. The kernel distance to held-out real
   digits is in the space of principal components.
3. Rows with a ``rate`` get the threshold that gives this rate on the first images (``num_calibration``); the table shows the
   rate on all images.
4. Rows are timed in turns, at every batch size, without the judge.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np

from experiments.data.class_images import load_images
from experiments.engine.bench import Bench
from experiments.engine.cache import key_of
from experiments.engine.classes import (
  ClassTable,
  along_the_row,
  as_pixels,
  counted,
  every_class,
  fit_judge,
  in_order,
  orders_of,
  shifted,
)
from experiments.engine.experiment import Lab
from experiments.engine.quality import as_json
from experiments.engine.rows import Row
from experiments.engine.statistics import estimate_of, interval_fields
from jaxspec import statistics
from jaxspec.evaluation.distances import kernel_distance_difference, kernel_distance_interval
from jaxspec.statistics import share

COMPONENTS = 32
ACCURACY, DISTANCE = "class_accuracy", "kid_digits"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hosts(ClassTable):
  """A table of target, draft and methods; the first row is the reference of the others.

  Attributes:
    num_calibration: leading images for the search of thresholds.
    clocks: timed batch sizes; () times nothing.
    turns: timed runs of every row at each batch size.
  """

  num_images: int = 1000
  batch: int = 50
  num_calibration: int = 200
  clocks: tuple[int, ...] = (1, 8)
  turns: int = 15
  kind: ClassVar[str] = "hosts"

  def __post_init__(self):
    super().__post_init__()
    if self.num_calibration < 1 or min(self.clocks, default=1) < 1:
      raise ValueError(
        f"Must have num_calibration and clocks of at least 1, we instead got {self.num_calibration} and {self.clocks}"
      )

  def measure(self, lab: Lab) -> dict[str, Any]:
    """See `Experiment.measure`."""
    judge, seen = DigitJudge(), []  # first, because it needs the real digits
    bench, labels = self.bench(lab)
    trial, _ = self.bench(lab, labels[: self.num_calibration].tolist())
    placed, left_out = [], []
    for row in map(self.placed, self.rows):
      try:
        placed.append(row if row.rate is None else trial.matched(row).but(rate=row.rate))
      except ValueError as error:
        left_out.append(f"Left out {row.name}: {error}.")
    rows = []
    for row in placed:
      result = bench.decode(row)
      origin = in_order(result, orders_of(bench, row))
      seen.append(judge.look(self.pixels(bench, row, result), labels))
      rows.append(
        as_json(row, bench)
        | {"figures": counted(result, origin), "num_tokens": int(result.tokens.shape[1])}
        | {"along": along_the_row(origin), "metrics": judge.metrics(seen[-1])}
        | {"per_image": {ACCURACY: seen[-1].right.astype(int).tolist()}}
      )
    for entry, compared in zip(rows[1:], judge.compared(seen)):
      entry["minus_first"] = compared
    for entry, seconds in zip(rows, self.seconds(lab, placed)):
      entry["seconds"] = seconds
    real = {"images": len(judge.right), ACCURACY: estimate_of(share(judge.right))._asdict()}
    about = {"real": real, "components": COMPONENTS, "reference_images": len(judge.reference), "base": rows[0]["label"]}
    return self.about(bench) | about | {"rows": rows, "left_out": left_out}

  def seconds(self, lab: Lab, rows: list[Row]) -> list[dict[str, list[float]]]:
    """Wall seconds of every row, turn by turn, by batch size; cached."""
    found: list[dict[str, list[float]]] = [{} for _ in rows]
    for batch in self.clocks if self.turns else ():
      classes = every_class(lab.pipeline(self.bundle).target.config.num_classes, batch * self.turns)
      bench = Bench(lab.pipeline(self.bundle), classes, lab.decodes, batch=batch)
      settings = [bench.settings(row) for row in rows]
      weights = [digest for row in rows for digest in bench.weights(row)]
      name = f"hosts-{key_of(weights, {'rows': settings, 'batch': batch, 'turns': self.turns})}"
      race = lambda: bench.race(rows, turns=self.turns, batch=batch)[0]  # noqa: B023, called at once
      for row, seconds in zip(found, lab.clocks.get(name, race, again=lab.retime)):
        row[str(batch)] = seconds
    return found


@dataclasses.dataclass(frozen=True, eq=False)
class Seen:
  """Output of the judge for the images of a row.

  Attributes:
    right: ``[P]`` bool, whether an image is of its class.
    features: ``[P, D]`` float64.
  """

  right: np.ndarray
  features: np.ndarray


class DigitJudge:
  """The classifier of digits, and the space of its kernel distance.

  Features are the leading principal components of real training digits, each of unit deviation on them.
  """

  def __init__(self):
    self.classifier, self.right = fit_judge()
    digits = load_images("digits")
    pixels, _ = shifted(digits.train)
    self._mean = pixels.mean(axis=0)
    values, vectors = np.linalg.eigh(np.cov(pixels - self._mean, rowvar=False))
    self._axes = vectors[:, -COMPONENTS:] / np.sqrt(values[-COMPONENTS:])
    self.reference = self.embed(shifted(digits.held_out)[0])

  def embed(self, pixels: np.ndarray) -> np.ndarray:
    """``[P, COMPONENTS]`` features of inputs of the judge (`as_pixels`)."""
    return (pixels - self._mean) @ self._axes

  def look(self, images: np.ndarray, labels: np.ndarray) -> Seen:
    """Judges images ``[P, H, W, 3]`` uint8 of labels ``[P]``."""
    pixels = as_pixels(images)
    return Seen(self.classifier.predict(pixels) == labels, self.embed(pixels))

  def metrics(self, seen: Seen) -> dict[str, dict[str, float]]:
    """Accuracy and distance to real digits, with intervals; JSON."""
    accuracy, distance = share(seen.right), kernel_distance_interval(seen.features, self.reference)
    return {ACCURACY: estimate_of(accuracy)._asdict(), DISTANCE: interval_fields(distance)}

  def compared(self, seen: list[Seen]) -> list[dict[str, dict[str, float]]]:
    """Every row but the first minus the first, image by image: corrected over all rows and both metrics; JSON."""
    first, *others = seen
    found = {}
    for number, other in enumerate(others):
      found[number, ACCURACY] = statistics.paired_share_difference(other.right, first.right)
      found[number, DISTANCE] = kernel_distance_difference(other.features, first.features, self.reference)
    corrected = statistics.correct_table(found)
    fields = lambda one: one.difference._asdict() | {"adjusted": one.adjusted, "detectable": one.detectable}
    return [{name: fields(corrected[number, name]) for name in (ACCURACY, DISTANCE)} for number in range(len(others))]
