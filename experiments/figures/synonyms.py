"""Draws what lossy rules gain over the entropy of synonyms, in the lifted world.

    python -m experiments.figures.synonyms

Reads ``experiments.run 'lifted:strength_*'`` and writes ``docs/images/synonyms.png``: calls of the exact method with the
same drafts over calls of a lossy rule, and the difference of their correct images, each over the entropy of a background
token given its colour and the token before. Groups of GSD have 100 tokens, or grow with the number of synonyms. Bars are
95 % intervals over captions, pair by pair. A filled marker of the second panel is a significant difference after Holm's
correction over the points of the figure.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from experiments.engine.statistics import LEVEL
from experiments.engine.synonyms import FIXED, GROWING, LENT, Point, points
from experiments.figures.style import BLUE, GREEN, GREY, INK, ORANGE, STYLE, figures, save
from experiments.run import documents

LOOKS = {GROWING: (BLUE, "o"), FIXED: (GREEN, "^"), LENT: (ORANGE, "s")}


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
