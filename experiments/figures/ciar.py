"""Draws what CIAR's tables say: prefix, threshold and cost of the score (arXiv 2603.25463, Figures 3, 6 and 5).

    python -m experiments.figures.ciar

Reads ``ciar_{prefix,tau,code,comparison,solvers}.json`` (``experiments.run ciar:*``) and writes ``docs/images/ciar_*.png``;
a figure whose table is not there is left out, with a line that says so. Bands are the tables' 95 % intervals.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from experiments.engine import statistics
from experiments.figures.style import (
  BLUE,
  GREEN,
  GREY,
  ORANGE,
  RED,
  STYLE,
  Document,
  band,
  parser,
  plain_ticks,
  save,
  tables,
)

RETRIEVAL, KID = "prompt_retrieval", statistics.KID
BASE = "plain decoding"
Row = dict[str, Any]
QUALITY = ((RETRIEVAL, "prompt retrieval, %"), (KID, "KID to real images, x 100"))


def gated(document: Document) -> list[Row]:
  """The rows of method ``ciar``."""
  return [row for row in document["rows"] if row["method"] == "ciar"]


def in_percent(row: Row, metric: str) -> list[float]:
  return [100 * number for number in statistics.metric_of(row, metric)]


def base_line(axes: Axes, rows: Sequence[Row], metric: str) -> None:
  """Plain decoding and its interval across a panel."""
  (base,) = [row for row in rows if row["label"] == BASE]
  value, low, high = in_percent(base, metric)
  axes.axhspan(low, high, color=GREY, alpha=0.15, linewidth=0)
  axes.axhline(value, color=GREY, linestyle="--", linewidth=1.2, label="cloud alone")


def walk(document: Document, option: str, label: str, path: Path) -> None:
  """Quality, calls and speed over one option: figures 3 and 6."""
  rows = gated(document)
  x = [row["options"][option] for row in rows]
  timed = [(at, statistics.wall_ratio(row)) for at, row in zip(x, rows) if row["wall"]]
  number = 4 if timed else 3
  figure, panels = plt.subplots(1, number, figsize=(3.25 * number, 3.1), layout="constrained")
  for axes, (metric, title) in zip(panels, QUALITY):
    base_line(axes, document["rows"], metric)
    band(axes, x, [in_percent(row, metric) for row in rows], color=BLUE)
    axes.set_title(title)
  panels[0].legend()
  calls = [[100 * row["cloud"]["call_rate"], *(100 * end for end in row["cloud"]["interval"])] for row in rows]
  band(panels[2], x, calls, color=ORANGE)
  panels[2].set_title("cloud calls per token, %")
  panels[2].set_ylim(0, 50)
  if timed:
    band(panels[3], [at for at, _ in timed], [ratio for _, ratio in timed], color=GREEN)
    panels[3].set_title("speed over the cloud alone")
  for axes in panels:
    axes.set_xlabel(label)
  save(figure, path)


def trade(found: dict[str, Document], path: Path) -> None:
  """Quality over calls: CIAR's curve, CoDe's, and the points of the comparison."""
  figure, panels = plt.subplots(1, 2, figsize=(11, 3.8), layout="constrained")
  for axes, (metric, title) in zip(panels, QUALITY):
    base_line(axes, found["ciar_tau"]["rows"], metric)
    for name, words, colour in (("ciar_tau", "CIAR", BLUE), ("ciar_code", "CoDe", RED)):
      if name in found:
        rows = gated(found[name])
        at = [100 * row["cloud"]["call_rate"] for row in rows]
        band(axes, at, [in_percent(row, metric) for row in rows], color=colour, label=words)
    others = found.get("ciar_comparison", {"rows": []})["rows"]
    others = [row for row in others if not row["label"].startswith((BASE, "CIAR", "CoDe"))]
    # Most stand at one rate of calls: a legend tells them apart where labels would cover each other.
    for row, marker in zip(others, itertools.cycle("s^DvPX*<>")):
      at = 100 * row["cloud"]["call_rate"], in_percent(row, metric)[0]
      axes.plot(*at, marker, color=ORANGE, markersize=6, markeredgecolor="white", markeredgewidth=0.6, label=row["label"])
    axes.set_title(title)
    axes.set_xlabel("cloud calls per token, %")
  panels[1].legend(loc="center left", bbox_to_anchor=(1.02, 0.5))
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


def main() -> None:
  args = parser(__doc__).parse_args()
  found = tables(args.results, ("ciar_prefix", "ciar_tau", "ciar_code", "ciar_comparison", "ciar_solvers"))
  over_prefix = lambda path: walk(found["ciar_prefix"], "target_prefix", "target prefix, share of the tokens", path)
  figures = {
    "ciar_prefix": ("ciar_prefix", over_prefix),
    "ciar_threshold": ("ciar_tau", lambda path: walk(found["ciar_tau"], "tau", "tau", path)),
    "ciar_trade": ("ciar_tau", lambda path: trade(found, path)),
    "ciar_solvers": ("ciar_solvers", lambda path: solvers(found["ciar_solvers"], path)),
  }
  with plt.rc_context(STYLE):
    for name, (needed, draw) in figures.items():
      if needed in found:
        draw(args.images / f"{name}.png")
      else:
        print(f"left out {name}.png: there is no {needed}.json in {args.results}")


if __name__ == "__main__":
  main()
