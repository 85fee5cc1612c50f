"""Cost of lossy decoding, from the tables of scenes: the points of its figure, settings without a significant loss, and
limits of detection.

Everything is computed from documents.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from experiments.engine import claims, statistics
from experiments.engine.cells import interval, markdown
from experiments.engine.rows import OPEN, PAPER_PREFIX
from experiments.engine.statistics import Estimate
from jaxspec.evaluation.scenes import FLAT_WORLD
from jaxspec.methods import METHODS
from jaxspec.statistics import correct_table

KIND = "scenes"
Document = dict[str, Any]

EXACT = "exact methods"
WITHOUT_TOP_P = MappingProxyType({"top_p": 1.0})
_NOTHING: Mapping[str, float] = MappingProxyType({})
_SCORES = {
  "interval": "CIAR", "entropy": "Entropy", "entropy_lens": "Entropy-Lens", "max_prob": "max-prob", "random": "Random",
  "temperature": "U-HLM",
}  # fmt: skip
_METHODS = {"scaled": "scaled ratio", "lantern": "LANTERN++", "eagle-lantern": "EAGLE-2 with LANTERN++"}
_VARIANTS = {"max": "GSD", "published": "GSD as published", "released": "GSD as published", "static": "static groups"}


class Point(NamedTuple):
  """One setting of a method against its reference: the exact method with the same drafts and keys, if its table has that
  row, or plain decoding."""

  table: str  # its document
  reference: str  # label
  label: str
  family: str  # of the legend
  images: int
  saved: float  # share of plain decoding's calls of the target
  change: Estimate  # of the share of correct images
  p_value: float  # of no change; Holm over all points
  open_p: float | None  # of equal distributions of unconstrained attributes; Holm over all points

  @property
  def loses(self) -> bool:
    """Whether significantly fewer images are correct than with the reference."""
    return self.change.value < 0 and self.p_value < 1 - statistics.LEVEL


def of_scenes(documents: Mapping[str, Document]) -> dict[str, Document]:
  """The tables of images of scenes, in the order of their names.

  Raises:
    ValueError: if there are none.
  """
  found = {name: documents[name] for name in sorted(documents) if documents[name].get("kind") == KIND}
  if not found:
    raise ValueError("Must have tables of images of scenes (python -m experiments.run 'scenes:*'), we instead got none")
  return found


def family_of(row: Mapping[str, Any]) -> str:
  """Name of a row in the figure and among the settings."""
  method, options = row["method"], row["options"]
  if METHODS[method].exact:
    return EXACT
  if method == "gsd":
    return _VARIANTS[options["variant"]]
  if method != "ciar":
    return _METHODS.get(method, method)
  tau = options.get("tau")
  if tau is not None and tau < 0:
    return EXACT
  if tau is not None and tau >= OPEN:
    return "CoDe" if options["target_prefix"] else "the edge alone"
  if options["score"] == "interval" and options["target_prefix"] != PAPER_PREFIX:
    return "CIAR with other prefixes"
  return _SCORES.get(options["score"], "other scores of intervals")


def points(documents: Mapping[str, Document], sampling: Mapping[str, float] = _NOTHING) -> list[Point]:
  """All settings in the tables of one sampling, without single trainings, plain decoding and other worlds; of duplicates
  the one with the most images.

  Args:
    sampling: sampling of all rows of a table besides the bundle's defaults; each sampling has its own references.
  """
  chosen: dict[str, tuple[str, dict[str, Any], Document]] = {}
  for name, document in of_scenes(documents).items():
    if document.get("sampling", {}) != sampling or not is_flat(document):
      continue
    for row in document["rows"]:
      if row["method"] == "ar" or row.get("setting"):
        continue
      options = METHODS[row["method"]]().options() | row["options"]  # an older table lacks later options: their defaults
      key = json.dumps([row["method"], options, *(row[field] for field in ("sampling", "draft", "alone"))], sort_keys=True)
      if key not in chosen or row["images"] > chosen[key][1]["images"]:
        chosen[key] = name, row, document
  entries = list(chosen.values())
  references = {key: reference_of(row, document) for key, (_, row, document) in chosen.items()}
  pairs = {key: statistics.difference(chosen[key][1], other, "right") for key, other in references.items()}
  corrected = correct_table(pairs)
  opened = statistics.holm([float("nan") if row["open"] is None else row["open"]["p_value"] for _, row, _ in entries])
  found = []
  for (name, row, document), other, one, p in zip(entries, references.values(), corrected.values(), opened):
    change = Estimate(one.difference.value, one.difference.low, one.difference.high)
    saved = 1 - row["calls_per_image"] / document["num_tokens"]
    open_p = None if row["open"] is None else float(p)
    about = name, other["label"], row["label"], family_of(row), row["images"]
    found.append(Point(*about, saved, change, one.adjusted, open_p))
  return found


def is_flat(document: Document) -> bool:
  """Whether the images of a table are of the flat world, whose background tokens have no synonyms."""
  materials = document.get("captions", {}).get("materials", FLAT_WORLD)  # an older table lacks them: it is flat
  return "lift" not in document and tuple(materials) == FLAT_WORLD


def reference_of(row: dict[str, Any], document: Document) -> dict[str, Any]:
  """The exact row that a row is compared with in its table, or plain decoding."""
  rows = {entry["label"]: entry for entry in document["rows"]}
  named = rows[claims.reference_of(row, document)]
  return named if METHODS[named["method"]].exact else rows[claims.PLAIN]


def families(found: Sequence[Point]) -> dict[str, list[Point]]:
  """Points by family, the fewest calls saved first."""
  names = dict.fromkeys(point.family for point in found)
  return {name: sorted((p for p in found if p.family == name), key=lambda p: p.saved) for name in names}


# --- texts of the page ---------------------------------------------------------------------------------------------------


def settings(documents: Mapping[str, Document], sampling: Mapping[str, float] = _NOTHING) -> str:
  """A row for each family: its setting with the fewest calls and no significant loss, and the first one with a loss."""
  head = (
    "method", "setting with the fewest calls and no significant loss (images; compared with)", "calls saved, %",
    "correct, difference in points",
    "unconstrained attributes, p", "first setting with a significant loss (images; compared with)", "calls saved, % ",
    "correct, difference in points ",
  )  # fmt: skip
  rows = []
  for family, own in families(points(documents, sampling)).items():
    fine, losing = [p for p in own if not p.loses], [p for p in own if p.loses]
    best = _cells(fine[-1], with_open=True) if fine else ["none", "", "", ""]
    rows.append([family, *best, *(_cells(losing[0], with_open=False) if losing else ["none that was tried", "", ""])])
  return markdown(head, rows) + "\n"


def _cells(point: Point, *, with_open: bool) -> list[str]:
  about = f"{point.label} ({point.images:,} images; {point.reference})"
  cells = [about, f"{100 * point.saved:.0f}", interval(point.change, 100, 1, sign="+")]
  return [*cells, "" if point.open_p is None else f"{point.open_p:.2g}"] if with_open else cells


def settings_without_top_p(documents: Mapping[str, Document]) -> str:
  """`settings` of the tables without top-p."""
  return settings(documents, WITHOUT_TOP_P)


def limits(documents: Mapping[str, Document]) -> str:
  """For each table: its images, the number of significant comparisons, and the detectable differences of the others."""
  lines = []
  for name, document in of_scenes(documents).items():
    subject = claims.subject_of(document)
    found = {} if subject is None else claims.verdicts(document)
    if not (own := [verdict for (_, metric), verdict in found.items() if metric == "right"]):
      continue
    apart = sum(verdict.order != 0 for verdict in own)
    right = claims.METRICS[KIND]["right"]
    others = " or the row that is named" * claims.paired_with_others(document)
    lines.append(
      f"- [{document['title']}](../../experiments/results/{name}.md), {document['rows'][0]['images']:,} images: {apart} of "
      f"{len(own)} rows differ significantly from {subject}{others} in correct images. Detectable with 80 % power, by "
      f"comparison: {claims.detectable(own, right)}."
    )
  return "\n".join(lines) + "\n"
