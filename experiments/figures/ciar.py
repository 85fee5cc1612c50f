"""Draws CIAR's tables: prefix, threshold, scores and cost of the score (arXiv 2603.25463, Figures 3, 6 and 5).

    python -m experiments.figures.ciar

Reads ``scenes_ciar_{prefix,tau,code,comparison_*}.json`` and ``ciar_solvers.json`` (``experiments.run
'scenes_ciar:*' ciar:solvers``) and writes ``docs/images/ciar_*.png``; a figure without its table is left out, with a
message. Bands are the tables' 95 % intervals.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from experiments.engine import statistics
from experiments.engine.claims import PLAIN
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

Row = dict[str, Any]
COMPARISONS = tuple(f"scenes_ciar_comparison_{percent}" for percent in (20, 30, 40))
LOOKS = tuple(zip((BLUE, ORANGE, GREEN, RED, INK, GREY, "#56b4e9"), "os^DvPX"))


def gated(document: Document) -> list[Row]:
  """The rows of method ``ciar``."""
  return [row for row in document["rows"] if row["method"] == "ciar"]


def right_of(row: Row) -> list[float]:
  """Correct images in percent, with the ends of their interval."""
  return [100 * number for number in statistics.metric_of(row, "right")]


def calls_of(row: Row) -> list[float]:
  """Calls of the cloud in percent of the tokens, with the ends of their interval."""
  return [100 * number for number in (row["cloud"]["call_rate"], *row["cloud"]["interval"])]


def base_line(axes: Axes, rows: Sequence[Row]) -> None:
  """Plain decoding and its interval across a panel."""
  (base,) = [row for row in rows if row["label"] == PLAIN]
  value, low, high = right_of(base)
  axes.axhspan(low, high, color=GREY, alpha=0.15, linewidth=0)
  axes.axhline(value, color=GREY, linestyle="--", linewidth=1.2, label="cloud alone")


def walk(document: Document, option: str, label: str, path: Path, scale: str = "linear") -> None:
  """Correct images and calls over one option: figures 3 and 6."""
  rows = gated(document)
  x = [row["options"][option] for row in rows]
  figure, (quality, calls) = plt.subplots(1, 2, figsize=(7.5, 3.1), layout="constrained")
  base_line(quality, document["rows"])
  band(quality, x, [right_of(row) for row in rows], color=BLUE)
  quality.set_title("correct images, %")
  quality.legend()
  band(calls, x, [calls_of(row) for row in rows], color=ORANGE)
  calls.set_title("cloud calls per token, %")
  calls.set_ylim(0, None)
  for axes in (quality, calls):
    axes.set(xlabel=label, xscale=scale)
  save(figure, path)


def trade(found: dict[str, Document], path: Path) -> None:
  """Correct images over calls, a curve for each score and for CoDe."""
  figure, axes = plt.subplots(figsize=(8.5, 4.2), layout="constrained")
  documents = [found[name] for name in COMPARISONS if name in found]
  base_line(axes, documents[0]["rows"])
  curves: dict[str, list[Row]] = {}
  for row in itertools.chain.from_iterable(map(gated, documents)):
    curves.setdefault("CoDe" if row["label"].startswith("CoDe") else row["label"], []).append(row)
  for (name, rows), (colour, marker) in zip(curves.items(), itertools.cycle(LOOKS)):
    at = [calls_of(row)[0] for row in rows]
    band(axes, at, [right_of(row) for row in rows], color=colour, marker=marker, label=name, shaded=name == "CIAR")
  axes.set_xlabel("cloud calls per token, %")
  axes.set_ylabel("correct images, %")
  axes.legend(loc="center left", bbox_to_anchor=(1.02, 0.5))
  save(figure, path)


def solvers(document: Document, path: Path) -> None:
  """Cost of the score over k: figure 5."""
  rows = document["rows"]
  kinds = {"": ("water-filling", BLUE), "gap": ("largest minus smallest", GREEN), "generic": ("enumeration", ORANGE)}
  sizes = sorted({row["vocab"] for row in rows})
  size = (5 * len(sizes), 3.6)
  figure, (panels,) = plt.subplots(1, len(sizes), figsize=size, layout="constrained", sharey=True, squeeze=False)
  for axes, size in zip(panels, sizes):
    for kind, (words, colour) in kinds.items():
      points = []
      for row in rows:
        name, *settings = row["score"].split(":")
        if name == "discrete" and row["vocab"] == size and "".join(settings[1:]) == kind:
          points.append((int(settings[0]), 1e6 * row["median"]))
      axes.plot(*zip(*sorted(points)), marker="o", color=colour, label=f"discrete, {words}")
    (own,) = [row for row in rows if row["score"] == "interval" and row["vocab"] == size]
    axes.axhline(1e6 * own["median"], color=GREY, linestyle="--", label="CIAR, all codes")
    axes.set(xscale="log", yscale="log", xlabel="k, tokens of the set", title=f"{size:,} codes")
    plain_ticks(axes.xaxis, (2, 4, 8, 16, 32, 64, 128, 256))
  panels[0].set_ylabel("microseconds per position")
  panels[0].set_ylim(10, 3000)
  plain_ticks(panels[0].yaxis, (10, 30, 100, 300, 1000, 3000))
  panels[0].legend(loc="upper right")
  save(figure, path)


@figures(__doc__)
def main(results: Path, images: Path) -> None:
  found = tables(results, ("scenes_ciar_prefix", "scenes_ciar_tau", *COMPARISONS, "ciar_solvers"))
  over_prefix = lambda path: walk(found["scenes_ciar_prefix"], "target_prefix", "target prefix, share of the tokens", path)
  figures = {
    "ciar_prefix": ("scenes_ciar_prefix", over_prefix),
    "ciar_threshold": ("scenes_ciar_tau", lambda path: walk(found["scenes_ciar_tau"], "tau", "tau", path, "log")),
    "ciar_trade": (COMPARISONS[0], lambda path: trade(found, path)),
    "ciar_solvers": ("ciar_solvers", lambda path: solvers(found["ciar_solvers"], path)),
  }
  with plt.rc_context(STYLE):
    for name, (needed, draw) in figures.items():
      if needed in found:
        draw(images / f"{name}.png")
      else:
        print(f"left out {name}.png: there is no {needed}.json in {results}")


if __name__ == "__main__":
  main()
