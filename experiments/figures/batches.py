"""Draws the speed of exact methods over the batch.

    python -m experiments.figures.batches

Reads ``scenes_batches.json`` (``experiments.run scenes:batches``) and writes ``docs/images/batches.png``: speed over plain
decoding, median and its 95 % interval. Left: methods with networks that draft; right: methods without. A line at 1 is plain
decoding.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from experiments.engine import statistics
from experiments.figures.style import (
  BLUE,
  GREEN,
  GREY,
  INK,
  ORANGE,
  RED,
  STYLE,
  Document,
  band,
  figures,
  plain_ticks,
  save,
  tables,
)

TABLE = "scenes_batches"
NETWORK_FREE = ("SJD", "row above")
COLOURS = (BLUE, ORANGE, GREEN, RED, INK)


def curves(axes: Axes, document: Document, labels: list[str]) -> None:
  """A curve for every label; dashed where the method chooses the length."""
  ratios = dict(zip(((row["label"], row["batch"]) for row in document["rows"]), statistics.time_ratios(document)))
  batches = sorted({row["batch"] for row in document["rows"]})
  for label, colour in zip(labels, COLOURS):
    found = {batch: ratio[0] for batch in batches if (ratio := ratios.get((label, batch))) is not None}
    triples = [(ratio.value, ratio.low, ratio.high) for ratio in found.values()]
    band(axes, list(found), triples, color=colour, label=label, linestyle="--" if label.endswith("auto") else "-")
  axes.axhline(1, color=GREY, linewidth=1.0, linestyle=":")
  axes.set_xscale("log", base=2)
  axes.set_yscale("log")
  plain_ticks(axes.xaxis, batches)
  low, high = axes.get_ylim()
  plain_ticks(axes.yaxis, [value for value in (0.25, 0.5, 0.75, 1, 1.5, 2, 3) if low <= value <= high])
  axes.set_xlabel("batch")
  axes.legend()


def draw(document: Document, path: Path) -> None:
  labels = list(dict.fromkeys(row["label"] for row in document["rows"] if row["label"] != document["base"]))
  drafted = [label for label in labels if not label.startswith(NETWORK_FREE)]
  panels = {"with draft networks": drafted, "without": [label for label in labels if label not in drafted]}
  figure, grid = plt.subplots(1, 2, figsize=(9.2, 3.6), layout="constrained", sharey=True)
  for axes, (title, mine) in zip(grid, panels.items()):
    curves(axes, document, mine)
    axes.set_title(f"{document['source']}, {title}")
  grid[0].set_ylabel("speed over plain decoding")
  save(figure, path)


@figures(__doc__)
def main(results: Path, images: Path) -> None:
  found = tables(results, [TABLE])
  if TABLE not in found:
    print(f"left out batches.png: no {TABLE}.json, see experiments.run scenes:batches")
    return
  with plt.rc_context(STYLE):
    draw(found[TABLE], images / "batches.png")


if __name__ == "__main__":
  main()
