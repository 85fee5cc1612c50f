"""Draws the cost of lossy decoding: calls saved against the change of correct images, all methods in one figure.

    python -m experiments.figures.lossy

Reads the tables of scenes (``experiments.run 'scenes:*' 'scenes_ciar:*'``) and writes ``docs/images/lossy.png``, and
``docs/images/lossy_without_top_p.png`` of those without top-p. Bars are 95 % intervals of the change on the same captions
and keys: against the exact method with the same drafts, where a table has it, else against plain decoding. A filled marker
is a significant change after Holm's correction over all points; a ring is not significant.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt

from experiments.engine import lossy
from experiments.engine.statistics import LEVEL
from experiments.figures.style import BLUE, GREEN, GREY, INK, ORANGE, RED, STYLE, figures, save
from experiments.run import documents

NEAR, STEP, SPREAD = 1.0, 0.8, 4.0  # percent of the calls: distance of points that are spread, their shift, and its range
_COLOURS, _MARKERS = (BLUE, ORANGE, GREEN, RED, INK), "osD^vP*X<"  # of lengths without a common factor


def draw(points: Sequence[lossy.Point], path: Path) -> None:
  """Every setting of every method."""
  figure, axes = plt.subplots(figsize=(10.5, 5.2), layout="constrained")
  axes.axhline(0, color=GREY, linestyle="--", linewidth=1.2)
  looks = zip(itertools.cycle(_MARKERS), itertools.cycle(_COLOURS))
  at = beside_each_other(points)
  for (name, own), (marker, colour) in zip(lossy.families(points).items(), looks):
    colour = GREY if name == lossy.EXACT else colour
    axes.plot([at[point] for point in own], [100 * point.change.value for point in own], color=colour, linewidth=0.7)
    for point in own:
      value, low, high = (100 * number for number in point.change)
      shows = point.p_value < 1 - LEVEL
      axes.errorbar(
        at[point], value, yerr=[[max(value - low, 0)], [max(high - value, 0)]], color=colour, marker=marker,
        markerfacecolor=colour if shows else "white", markersize=6, linewidth=0.8, linestyle="none",
      )  # fmt: skip
    axes.plot([], [], color=colour, marker=marker, label=name)
  axes.set_xlabel("calls of the target saved, %")
  axes.set_ylabel("correct images, difference in points")
  axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
  save(figure, path)


def beside_each_other(points: Sequence[lossy.Point]) -> dict[lossy.Point, float]:
  """Calls saved in percent; close points are spread so that all are visible."""
  ordered = sorted(points, key=lambda point: point.saved)
  groups: list[list[lossy.Point]] = []
  for point in ordered:
    if groups and 100 * (point.saved - groups[-1][0].saved) <= NEAR:
      groups[-1].append(point)
    else:
      groups.append([point])
  shift = lambda number, size: min(STEP, SPREAD / size) * (number - (size - 1) / 2)
  return {point: 100 * point.saved + shift(number, len(group)) for group in groups for number, point in enumerate(group)}


@figures(__doc__)
def main(results: Path, images: Path) -> None:
  with plt.rc_context(STYLE):
    found = documents(results)
    draw(lossy.points(found), images / "lossy.png")
    if without := lossy.points(found, lossy.WITHOUT_TOP_P):
      draw(without, images / "lossy_without_top_p.png")


if __name__ == "__main__":
  main()
