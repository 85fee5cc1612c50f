"""Draws the speed-up of methods over acceptance and batch.

    python -m experiments.figures.gains

Reads ``bench_gains.json`` and ``bench_gains_l.json`` (``experiments.run bench:gains bench:gains_l``) and writes
``docs/images/gains.png`` and ``gains_l.png``. Upper panels: speed over plain decoding for each batch, with the lowest and
the highest turn. Lower panels: over the same batch in lock-step. A line at 1 is plain decoding, or lock-step.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from experiments.figures.style import (
  BLUE,
  GREEN,
  GREY,
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

COLOURS = (BLUE, ORANGE, GREEN, RED)


def curves(axes: Axes, rows: Sequence[Document], batches: Sequence[int], name: str) -> None:
  """A curve over acceptance for every batch that has this ratio."""
  for batch, colour in zip(batches, COLOURS):
    mine = [row for row in rows if row["batch"] == batch and row[name] is not None]
    if mine:
      ratios = [(row[name]["median"], row[name]["low"], row[name]["high"]) for row in mine]
      band(axes, [row["acceptance"] for row in mine], ratios, color=colour, label=f"batch {batch}")
  axes.axhline(1, color=GREY, linewidth=1.0, linestyle="--")
  axes.set_yscale("log")
  low, high = axes.get_ylim()
  plain_ticks(axes.yaxis, [value for value in (0.125, 0.25, 0.5, 1, 2, 4, 8) if low <= value <= high])


def draw(document: Document, path: Path) -> None:
  """One column of panels for each method."""
  labels = list(dict.fromkeys(row["label"] for row in document["rows"]))
  batches = sorted({row["batch"] for row in document["rows"]})
  lines = {"over_plain": "speed over plain decoding", "over_lock_step": "speed over lock-step"}
  lines = {name: words for name, words in lines.items() if any(row[name] is not None for row in document["rows"])}
  size = (3.4 * len(labels) + 0.4, 2.7 * len(lines) + 0.3)
  figure, grid = plt.subplots(
    len(lines), len(labels), figsize=size, layout="constrained", sharex=True, sharey="row", squeeze=False
  )
  for panels, (name, words) in zip(grid, lines.items()):
    for axes, label in zip(panels, labels):
      curves(axes, [row for row in document["rows"] if row["label"] == label], batches, name)
      axes.set_xticks(sorted({row["acceptance"] for row in document["rows"]}))
    panels[0].set_ylabel(words)
  for axes, label in zip(grid[0], labels):
    axes.set_title(f"{document['model']}, {label}")
  for axes in grid[-1]:
    axes.set_xlabel("imposed acceptance of a draft")
  grid[0][0].legend()
  save(figure, path, colours=64)


@figures(__doc__)
def main(results: Path, images: Path) -> None:
  names = {"bench_gains": "gains.png", "bench_gains_l": "gains_l.png"}
  found = tables(results, list(names))
  for name, image in names.items():
    if name not in found:
      print(f"left out {image}: no {name}.json, see experiments.run {name.replace('_', ':', 1)}")
      continue
    with plt.rc_context(STYLE):
      draw(found[name], images / image)


if __name__ == "__main__":
  main()
