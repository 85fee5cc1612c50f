"""Draws what lossy rules gain over the entropy of synonyms, in the lifted world.

    python -m experiments.figures.synonyms

Reads ``experiments.run 'lifted:strength_*'`` and writes ``docs/images/synonyms.png``: calls of the exact method with the
same drafts over calls of a lossy rule, and the difference of their correct images, each over the entropy of a background
token given its colour and the token before. Groups of GSD have 100 tokens, or grow with the number of synonyms. Bars are
95 % intervals over captions, pair by pair. A filled marker of the second panel is a significant difference after Holm's
correction over the points of the figure.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np

from experiments.configs.lifted import group_size
from experiments.engine import claims, statistics
from experiments.engine.lifted import Lift
from experiments.engine.statistics import LEVEL
from experiments.figures.style import BLUE, GREEN, GREY, INK, ORANGE, STYLE, Document, figures, save
from experiments.run import documents
from jaxspec.methods import METHODS
from jaxspec.statistics import Difference, Interval, correct_table, ratio

LOOKS = {
  "GSD, groups that grow with the synonyms": (BLUE, "o"),
  "GSD, groups of 100": (GREEN, "^"),
  "LANTERN++, lambda 5": (ORANGE, "s"),
}


class Point(NamedTuple):
  """A lossy rule at one strength of synonyms.

  Attributes:
    curve: of `LOOKS`.
    label: of the rule and of its exact sibling.
    twins: synonyms of a background code.
    nats: entropy of a synonym.
    fewer: calls of the exact sibling over those of the rule.
    change: of the share of correct images.
    p_value: of no change; Holm over all points.
  """

  curve: str
  label: str
  twins: int
  nats: float
  fewer: Interval
  change: Interval
  p_value: float


def points(found: Mapping[str, Document]) -> list[Point]:
  """Every lossy row of the tables of strengths, by curve and entropy."""
  pairs: dict[tuple[str, str], Difference] = {}
  about: dict[tuple[str, str], tuple[Lift, dict[str, Any], dict[str, Any]]] = {}
  for name, document in found.items():
    if not name.startswith("lifted_strength_"):
      continue
    rows = {row["label"]: row for row in document["rows"]}
    for row in rows.values():
      if not METHODS[row["method"]].exact:
        other = rows[claims.reference_of(row, document)]
        pairs[name, row["label"]] = statistics.difference(row, other, "right")
        about[name, row["label"]] = Lift(**document["lift"]), row, other
  corrected, made = correct_table(pairs), []
  for key, (lift, row, other) in about.items():
    calls = (np.asarray(entry["per_image"]["target_calls"], float) for entry in (other, row))
    difference = corrected[key].difference
    change = Interval(difference.value, difference.low, difference.high)
    label = f"{row['label']} over {other['label']}"
    about_point = label, lift.twins, lift.nats(), ratio(*calls), change, corrected[key].adjusted
    made += [Point(curve, *about_point) for curve in curves_of(row, lift)]
  return sorted(made, key=lambda point: (point.curve, point.nats))


def curves_of(row: dict[str, Any], lift: Lift) -> list[str]:
  """The curves that a row lies on."""
  grow, fixed, lent = LOOKS
  if row["method"] == "lantern":
    return [lent]
  size = row["options"]["group_size"]
  return [grow] * (size == group_size(lift.twins)) + [fixed] * (size == 100)


def draw(found: list[Point], path: Path) -> None:
  """Calls and correct images, one curve for each method."""
  figure, (calls, images) = plt.subplots(1, 2, figsize=(9.4, 3.7), layout="constrained")
  for axes, at, scale in ((calls, 1.0, 1.0), (images, 0.0, 100.0)):
    axes.axhline(at, color=GREY, linestyle="--", linewidth=1.2)
    for curve, (colour, marker) in LOOKS.items():
      own = [point for point in found if point.curve == curve]
      values = [scale * np.array(point.fewer if axes is calls else point.change) for point in own]
      axes.plot([point.nats for point in own], [value for value, *_ in values], color=colour, linewidth=0.9)
      for point, (value, low, high) in zip(own, values):
        face = colour if axes is calls or point.p_value < 1 - LEVEL else "white"
        axes.errorbar(
          point.nats, value, yerr=[[value - low], [high - value]], color=colour, marker=marker, markerfacecolor=face,
          markersize=6, linewidth=0.9, linestyle="none",
        )  # fmt: skip
      if own:
        axes.plot([], [], color=colour, marker=marker, label=curve)
    axes.set_xlabel("entropy of a synonym, nats (number of synonyms above)")
    above = axes.secondary_xaxis("top")
    strengths = {point.twins: point.nats for point in found}
    above.set_xticks(list(strengths.values()), [f"{twins}" for twins in strengths], color=INK)
    above.tick_params(length=0)
  calls.set_ylabel("times fewer calls than the exact sibling")
  images.set_ylabel("correct images, difference in points")
  figure.legend(*calls.get_legend_handles_labels(), loc="outside lower center", ncols=len(LOOKS))
  save(figure, path)


@figures(__doc__)
def main(results: Path, images: Path) -> None:
  found = points(documents(results))
  if not found:
    raise ValueError("Must have tables of strengths (python -m experiments.run 'lifted:strength_*'), we instead got none")
  for point in found:
    print(f"{point.label}, {point.twins} synonyms ({point.nats:.2f} nats): {point.fewer.value:.2f} times fewer calls")
  with plt.rc_context(STYLE):
    draw(found, images / "synonyms.png")


if __name__ == "__main__":
  main()
