"""Time and power of a table, estimated before its rows are drawn.

- Time: one batch of every row is decoded and cached; the rest is proportional to the number of batches. A search for a
  threshold counts as `TRIALS` decodes of its first images, and as `LAST_TRIALS` of all images if those are not all.
- Power: plain decoding with two seeds, on the first images, gives the share of captions with one correct and one incorrect
  image. It determines the number of images for a given difference, and for equivalence within a margin.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments.engine.bench import Bench
from experiments.engine.rows import CLOSED, Row
from experiments.engine.scoring import Judge
from jaxspec import statistics
from jaxspec.statistics import Difference

PILOT = 128  # images
TRIALS, LAST_TRIALS = 5, 2


class Cost(NamedTuple):
  """Expected time of a row."""

  label: str
  seconds: float


class Pilot(NamedTuple):
  """Two rows of one distribution."""

  differ: float  # share of the captions with one correct and one incorrect image
  difference: Difference  # of their shares of correct images


def pilot_of(bench: Bench, judge: Judge, plain: tuple[Row, Row]) -> Pilot | None:
  """Variation of plain decoding between seeds; None for a judge without correct images."""
  first, second = (judge.hits(bench.decode(row, PILOT)) for row in plain)
  if first is None or second is None:
    return None
  return Pilot(float(np.mean(first != second)), statistics.paired_share_difference(first, second))


@dataclasses.dataclass(frozen=True)
class Outlook:
  """Expected time and power of a table.

  Attributes:
    images: of every row.
    costs: of the rows, in their order.
    pilot: two seeds of plain decoding, None for a judge without correct images.
    comparisons: of the table, for Holm's correction; ``claims`` of equality.
    wanted, margin: see `Quality`.
  """

  images: int
  costs: tuple[Cost, ...]
  pilot: Pilot | None
  comparisons: int
  claims: int
  wanted: float
  margin: float

  @classmethod
  def of(
    cls, bench: Bench, rows: Sequence[Row], pilot: Pilot | None, *, search_images: int, seconds_an_image: float,
    comparisons: int, wanted: float, margin: float,
  ) -> Outlook:  # fmt: skip
    """The outlook of a table; decodes one batch of every incomplete row."""
    images = len(bench.prompts) * bench.samples
    costs = tuple(cost_of(bench, row, search_images, images * seconds_an_image) for row in rows)
    claims = sum(row.method != "ar" for row in rows) if margin else 0
    return cls(images, costs, pilot, comparisons, claims, wanted, margin)

  @property
  def seconds(self) -> float:
    return sum(cost.seconds for cost in self.costs)

  def needed(self) -> int | None:
    """Number of images to detect a true difference of ``wanted`` with 80 % power."""
    if self.pilot is None:
      return None
    return statistics.required_clusters(self.pilot.difference, self.wanted, tests=self.comparisons)

  def needed_for_margin(self) -> int | None:
    """Number of images to show equal rows to be within the margin."""
    if self.pilot is None or not self.claims:
      return None
    return statistics.required_equivalent_clusters(self.pilot.difference, self.margin, tests=self.claims)

  def lines(self) -> list[str]:
    """Lines for the console."""
    longest = sorted(self.costs, key=lambda cost: -cost.seconds)[:5]
    each = ", ".join(f"{cost.label} {_time(cost.seconds)}" for cost in longest if cost.seconds >= 1)
    total = f"about {_time(self.seconds)}, without the wall clock, for {len(self.costs)} rows of {self.images} images"
    return [total + (f" ({each})" if each else ""), *outlook_sentences(self.document())]

  def document(self) -> dict[str, Any]:
    """JSON; without the time, so that repeated tables agree."""
    pilot = None if self.pilot is None else {"images": self.pilot.difference.clusters, "differ": self.pilot.differ}
    return {
      "images": self.images, "pilot": pilot, "comparisons": self.comparisons, "wanted": self.wanted, "needed": self.needed(),
      "margin": self.margin, "claims": self.claims, "needed_for_margin": self.needed_for_margin(),
    }  # fmt: skip


def cost_of(bench: Bench, row: Row, search_images: int, judging_s: float) -> Cost:
  """Expected time of a row; 0 if it is cached. Without ``search_images`` its threshold is known."""
  is_searched = row.rate is not None and search_images > 0
  closed = row.but(label=row.name, tau=CLOSED, rate=None) if is_searched else row
  per_batch = bench.seconds_a_batch(closed)
  batches = missing = bench.num_missing(closed)
  if is_searched:
    first, every = (-(-images // bench.batch) for images in (search_images, len(bench.prompts) * bench.samples))
    batches = min(missing, first) + TRIALS * first + (LAST_TRIALS * every if first < every else 0)
  return Cost(row.name, per_batch * batches + (judging_s if per_batch else 0.0))


def outlook_sentences(document: dict[str, Any]) -> list[str]:
  """The sentences of `Outlook.document`."""
  if document["pilot"] is None:
    return []
  pilot = document["pilot"]
  found = (
    f"Computed before the rows were drawn, from {pilot['images']} captions of which two seeds of plain decoding do not "
    f"agree in {100 * pilot['differ']:.0f} %: a difference of {100 * document['wanted']:g} points takes "
    f"{document['needed']:,} images with {document['comparisons']} comparisons"
  )
  if document["needed_for_margin"] is not None:
    found += (
      f", and to show that equal rows differ by less than {100 * document['margin']:g} points takes "
      f"{document['needed_for_margin']:,}"
    )
  return [f"{found}. The table has {document['images']:,}."]


def _time(seconds: float) -> str:
  return str(datetime.timedelta(seconds=int(np.ceil(seconds))))
