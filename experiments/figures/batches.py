"""Draws the speed of exact methods over the batch.

    python -m experiments.figures.batches

Reads ``scenes_batches.json`` (``experiments.run scenes:batches``) and writes ``docs/images/batches.png``: speed over plain
decoding, median and its 95 % interval. Left: methods with networks that draft; right: methods without.

Reads ``bench_gains_batches.json`` and ``bench_gains_batches_l.json`` (``experiments.run bench:gains_batches
bench:gains_batches_l``) and writes ``docs/images/batches_published.png``: the same at published sizes with imposed
acceptance, median and all turns. A line at 1 is plain decoding.
"""

from __future__ import annotations

from collections.abc import Mapping
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
PUBLISHED = ("bench_gains_batches", "bench_gains_batches_l")
NETWORK_FREE = ("SJD", "row above")
COLOURS = (BLUE, ORANGE, GREEN, RED, INK)

Triple = tuple[float, float, float]  # median, low and high


def panel(axes: Axes, title: str, curves: Mapping[str, Mapping[int, Triple]]) -> None:
  """A curve over the batch for every label; dashed where the method chooses the length."""
  for (label, found), colour in zip(curves.items(), COLOURS):
    band(
      axes, list(found), list(found.values()), color=colour, label=label, linestyle="--" if label.endswith("auto") else "-"
    )
  axes.axhline(1, color=GREY, linewidth=1.0, linestyle=":")
  axes.set_xscale("log", base=2)
  axes.set_yscale("log")
  plain_ticks(axes.xaxis, sorted({batch for found in curves.values() for batch in found}))
  low, high = axes.get_ylim()
  plain_ticks(axes.yaxis, [value for value in (0.25, 0.5, 0.75, 1, 1.5, 2, 3) if low <= value <= high])
  axes.set_xlabel("batch")
  axes.set_title(title)
  axes.legend()


def measured(document: Document) -> dict[str, dict[int, Triple]]:
  """Curves of a race, by label."""
  curves: dict[str, dict[int, Triple]] = {}
  for row, ratio in zip(document["rows"], statistics.time_ratios(document)):
    if ratio is not None:
      curves.setdefault(row["label"], {})[row["batch"]] = (ratio[0].value, ratio[0].low, ratio[0].high)
  return curves


def imposed(document: Document) -> dict[str, dict[int, Triple]]:
  """Curves of published sizes, by label."""
  curves: dict[str, dict[int, Triple]] = {}
  for row in document["rows"]:
    ratio = row["over_plain"]
    curves.setdefault(row["label"], {})[row["batch"]] = (ratio["median"], ratio["low"], ratio["high"])
  return curves


def draw(panels: Mapping[str, Mapping[str, Mapping[int, Triple]]], path: Path) -> None:
  """One panel for each title."""
  figure, grid = plt.subplots(
    1, len(panels), figsize=(4.6 * len(panels), 3.6), layout="constrained", sharey=True, squeeze=False
  )
  for axes, (title, curves) in zip(grid[0], panels.items()):
    panel(axes, title, curves)
  grid[0][0].set_ylabel("speed over plain decoding")
  save(figure, path)


@figures(__doc__)
def main(results: Path, images: Path) -> None:
  found = tables(results, [TABLE, *PUBLISHED])
  published = {f"{found[name]['model']}, acceptance imposed": imposed(found[name]) for name in PUBLISHED if name in found}
  drawn = {"batches.png": {}, "batches_published.png": published}
  if TABLE in found:
    curves, source = measured(found[TABLE]), found[TABLE]["source"]
    drafted = {label: curve for label, curve in curves.items() if not label.startswith(NETWORK_FREE)}
    without = {label: curve for label, curve in curves.items() if label not in drafted}
    drawn["batches.png"] = {f"{source}, with draft networks": drafted, f"{source}, without": without}
  for image, panels in drawn.items():
    if not panels:
      print(f"left out {image}: no tables of it, see experiments.run scenes:batches bench:gains_batches")
      continue
    with plt.rc_context(STYLE):
      draw(panels, images / image)


if __name__ == "__main__":
  main()
