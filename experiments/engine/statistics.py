"""Statistics of tables: intervals of cells, ratios of times, and the smallest detectable difference.

The methods are those of `jaxspec.statistics`. Figures stored image by image are compared pair by pair (same prompt, same
key). If a document has only summaries, their intervals are printed, and differences use the normal approximation.
"""

from __future__ import annotations

import math
import statistics as plain
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from jaxspec import statistics as library
from jaxspec.run.measure import per_token
from jaxspec.statistics import Difference, TimeRatio, holm

mean, median = plain.fmean, plain.median
# Metrics that are shares of images; the others are means or distances.
SHARES = ("class_accuracy", "right")
LEVEL = 0.95
RATE_ERROR = 0.005  # tolerance of a rate, in cloud calls per token
Z = 1.959964  # half of a 95 % interval, in standard errors of a normal distribution

__all__ = ["holm"]


class Estimate(NamedTuple):
  """A figure and its 95 % interval."""

  value: float
  low: float
  high: float


class Ratio(NamedTuple):
  """Ratios of paired runs."""

  median: float
  low: float
  high: float


def estimate_of(found: Any) -> Estimate | None:
  """An estimate from JSON: ``{"value", "low", "high"}`` or three numbers; None for None, nan for ends without one."""
  if found is None:
    return None
  numbers = [found[name] for name in Estimate._fields] if isinstance(found, dict) else list(found)[:3]
  return None if numbers[0] is None else Estimate(*(math.nan if number is None else number for number in numbers))


def interval_fields(found: Any) -> dict[str, float]:
  """The figure and its interval from a result of the library; JSON."""
  return {name: float(getattr(found, name)) for name in Estimate._fields}


def wilson_of(share: float, count: int) -> Estimate:
  """A share of ``count`` independent trials with Wilson's interval."""
  return Estimate(share, *library.wilson(share, count, Z))


def num_images(row: dict[str, Any]) -> int:
  return row["images"] if "images" in row else row["figures"]["images"]


def metric_of(row: dict[str, Any], name: str) -> Estimate | None:
  """A metric of a row; a share always has Wilson's interval."""
  if (found := row["metrics"].get(name)) is None:
    return None
  return wilson_of(found["value"], num_images(row)) if name in SHARES else estimate_of(found)


def alpha_of(row: dict[str, Any]) -> Estimate | None:
  """The acceptance of tested drafts with the interval of its document.

  If that is a point because all images agree, it is Wilson's with images as trials (`library.share`).
  """
  figures = row.get("figures", {})
  if (found := estimate_of(figures.get("alpha"))) is None or found.low < found.high:
    return found
  images = figures["images"]
  agreed = library.share(np.full(images, found.value), np.ones(images), clusters=np.arange(images))
  return Estimate(found.value, agreed.low, agreed.high)


def acceptance(accepted: np.ndarray, tested: np.ndarray) -> Estimate:
  """``sum(accepted) / sum(tested)`` over images ``[P]``, each a cluster; 0 without tests."""
  if not np.sum(tested):
    return Estimate(0.0, 0.0, 1.0)
  return estimate_of(library.share(accepted, tested, clusters=np.arange(len(tested))))


# --- clocks --------------------------------------------------------------------------------------------------------------


def ratio(base: Sequence[float], own: Sequence[float]) -> Ratio:
  """Speed-up of ``own``, turn by turn."""
  found = [a / b for a, b in zip(base, own, strict=True)]
  return Ratio(median(found), min(found), max(found))


def lengths(row: dict[str, Any], document: dict[str, Any]) -> np.ndarray:
  """Tokens of every row of a batch ``[turns, batch]``, from the document or its networks."""
  shape = len(row["seconds"]), row["batch"]
  return np.reshape(row["lengths"], shape) if "lengths" in row else np.full(shape, document["num_tokens"])


def clock(row: dict[str, Any], document: dict[str, Any]) -> list[float]:
  """Seconds of every turn of a race, per token if rows end at an end token."""
  return per_token(row["seconds"], lengths(row, document).sum(1).tolist()) if document.get("ends") else row["seconds"]


def wall_ratio(row: dict[str, Any]) -> Ratio | None:
  """Plain decoding's time over the row's; None if it was not timed."""
  return None if (wall := row["wall"]) is None else ratio(wall["plain"], wall["own"])


def labelled(document: dict[str, Any], batch: int, label: str) -> dict[str, Any]:
  """The row of a race with this batch size and label."""
  return next(row for row in document["rows"] if (row["batch"], row["label"]) == (batch, label))


def base_of(row: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
  """The reference row of speeds at the same batch size."""
  return labelled(document, row["batch"], document["base"])


def over(row: dict[str, Any], document: dict[str, Any], label: str | None) -> Ratio | None:
  """Speed over another row of the same batch size."""
  return None if label is None else ratio(clock(labelled(document, row["batch"], label), document), clock(row, document))


def fixed_siblings(row: dict[str, Any], document: dict[str, Any]) -> list[str]:
  """Labels of the rows of a race that differ from a row "..., auto" by a fixed length; of the same batch size."""
  stem = row["label"].removesuffix("auto")
  if stem == row["label"]:
    return []
  labels = [other["label"] for other in document["rows"] if other["batch"] == row["batch"] and other is not row]
  return [label for label in labels if label.startswith(stem)]


def over_best_fixed(row: dict[str, Any], document: dict[str, Any]) -> Ratio | None:
  """Speed of a row "..., auto" over the fastest (by the median) of its fixed lengths; None for other rows."""
  seconds = lambda label: median(clock(labelled(document, row["batch"], label), document))
  return over(row, document, min(fixed_siblings(row, document), key=seconds, default=None))


def lowest_speeds(document: dict[str, Any]) -> dict[str, tuple[float, int]]:
  """The lowest median speed over the base of every other label over the batch sizes, and its batch."""
  lowest: dict[str, tuple[float, int]] = {}
  for row in document["rows"]:
    if row["label"] != document["base"] and (found := over(row, document, document["base"])) is not None:
      lowest[row["label"]] = min(lowest.get(row["label"], (math.inf, 0)), (found.median, row["batch"]))
  return lowest


def time_ratios(document: dict[str, Any]) -> list[tuple[TimeRatio, float] | None]:
  """For every row of a race: the median ratio with its interval, and the p value of Holm over the table; None for the
  base."""
  found = []
  for row in document["rows"]:
    base = base_of(row, document)
    found.append(None if row is base else library.time_ratio(clock(base, document), clock(row, document)))
  adjusted = iter(holm([entry.p_value for entry in found if entry is not None]))
  return [None if entry is None else (entry, float(next(adjusted))) for entry in found]


def smallest_ratio(document: dict[str, Any]) -> float | None:
  """The smallest detectable speed over the base, in the median over rows with several turns; None without such rows."""
  differences = []
  for row in document["rows"]:
    base = base_of(row, document)
    if row is not base and len(row["seconds"]) > 1:
      logs = (np.log(clock(entry, document)) for entry in (base, row))
      differences.append(library.paired_difference(*logs, resamples=0))
  tests = len(document["rows"]) - len({row["batch"] for row in document["rows"]})
  found = [library.detectable_difference(difference, tests=tests) for difference in differences]
  return math.exp(median(found)) if found else None


# --- differences ---------------------------------------------------------------------------------------------------------


def difference(row: dict[str, Any], other: dict[str, Any], metric: str) -> Difference:
  """``row - other`` by a metric: as measured by the table if row is its subject, pair by pair if both have figures of every
  image, else by their summaries."""
  if (measured := other.get("subject_minus_row", {}).get(metric)) is not None:
    return Difference(**measured)
  each = [entry.get("per_image", {}).get(metric) for entry in (row, other)]
  if all(each):
    pairs = [(a, b) for a, b in zip(*each, strict=True) if a is not None and b is not None]
    compare = library.paired_share_difference if metric in SHARES else library.paired_difference
    return compare(*map(np.asarray, zip(*pairs)))
  return of_summaries(metric_of(row, metric), metric_of(other, metric), num_images(row))


def of_summaries(a: Estimate, b: Estimate, count: int) -> Difference:
  """``a - b`` from two intervals, as for independent samples; conservative for rows that share prompts."""
  found = library.independent_difference(library.Interval(*a), library.Interval(*b))
  error = (found.high - found.low) / (2 * Z)
  p_value = 2 * float(special.stdtr(count - 1, -abs(found.value) / error)) if error else float(found.value == 0)
  return Difference(*found, p_value, error, count)


def smallest_between(found: Sequence[Estimate | None], count: int) -> float:
  """The smallest detectable difference between two of these figures of ``count`` images, without a correction; the
  median."""
  half = median((estimate.high - estimate.low) / 2 for estimate in found if estimate is not None)
  error = math.sqrt(2) * half / Z
  return library.detectable_difference(Difference(0.0, 0.0, 0.0, 1.0, error, count))


def smallest_ks(samples: int, components: int) -> float:
  """Critical two-sample KS distance of a component for samples of this size, under Bonferroni's correction."""
  return math.sqrt(-math.log((1 - LEVEL) / components / 2) / samples)
