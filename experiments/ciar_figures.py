"""Draws what CIAR's tables say: prefix, threshold and cost of the score (arXiv 2603.25463, Figures 3, 6 and 5).

Command (needs matplotlib; seconds)::

    python -m experiments.ciar_figures

Reads ``experiments/results/ciar_{rho,tau,code,comparison,solvers}.json`` (`experiments.ciar_thresholds`,
`experiments.ciar_comparison`, `experiments.ciar_solvers`) and writes ``docs/images/ciar_*.png``; a figure whose tables are
not there is left out, with a line that says so. Bands and bars are the tables' 95 % intervals.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

BLUE, ORANGE, GREEN, GREY, RED = "#0072b2", "#d55e00", "#009e73", "#8a8f98", "#cc79a7"
STYLE = {
  "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": "#9aa0a8", "axes.linewidth": 0.8,
  "axes.grid": True, "grid.color": "#e7e9ed", "grid.linewidth": 0.8, "axes.axisbelow": True, "axes.titlesize": 10.5,
  "axes.titlelocation": "left", "axes.labelsize": 9.5, "xtick.labelsize": 8.5, "ytick.labelsize": 8.5,
  "legend.fontsize": 8.5, "legend.frameon": False, "lines.linewidth": 1.8, "lines.markersize": 4.5, "savefig.dpi": 110,
}  # fmt: skip
RETRIEVAL, KID = "prompt_retrieval", "kid_concept"
BASE = "Base"
Row = dict[str, Any]


def gated(rows: Sequence[Row]) -> list[Row]:
  """The rows of method ``ciar``."""
  return [row for row in rows if row["settings"]["method"] == "ciar"]


def curve(axes: Axes, x: Sequence[float], rows: Sequence[Row], metric: str, scale: float, **style: Any) -> None:
  """A metric with its interval."""
  order = np.argsort(x)
  values = scale * np.array([[rows[i]["metrics"][metric][name] for name in ("value", "low", "high")] for i in order])
  at = np.asarray(x)[order]
  (drawn,) = axes.plot(at, values[:, 0], marker="o", **style)
  axes.fill_between(at, values[:, 1], values[:, 2], color=drawn.get_color(), alpha=0.13, linewidth=0)


def base_line(axes: Axes, rows: Sequence[Row], metric: str, scale: float) -> None:
  """Plain decoding and its interval across a panel."""
  (base,) = [row for row in rows if row["name"] == BASE]
  found = base["metrics"][metric]
  axes.axhspan(scale * found["low"], scale * found["high"], color=GREY, alpha=0.15, linewidth=0)
  axes.axhline(scale * found["value"], color=GREY, linestyle="--", linewidth=1.2, label="cloud alone")


def speeds(axes: Axes, x: Sequence[float], rows: Sequence[Row]) -> None:
  """Wall clock over plain decoding, where it was taken."""
  timed = [(at, row["wall"]["ratio"]) for at, row in sorted(zip(x, rows), key=lambda pair: pair[0]) if row["wall"]]
  at = [place for place, _ in timed]
  axes.plot(at, [ratio["median"] for _, ratio in timed], marker="o", color=GREEN)
  low, high = ([ratio[name] for _, ratio in timed] for name in ("low", "high"))
  axes.fill_between(at, low, high, color=GREEN, alpha=0.13, linewidth=0)
  axes.set_title("speed over the cloud alone")


def walk(tables: dict[str, dict], name: str, option: str, label: str, path: Path) -> None:
  """Quality, calls and speed over one option: figures 3 and 6."""
  rows = tables[name]["rows"]
  walked = gated(rows)
  x = [row["options"][option] for row in walked]
  with plt.rc_context(STYLE):
    is_timed = any(row["wall"] for row in walked)
    number = 4 if is_timed else 3
    figure, panels = plt.subplots(1, number, figsize=(3.25 * number, 3.1), layout="constrained")
    for axes, metric, title in (
      (panels[0], RETRIEVAL, "prompt retrieval, %"), (panels[1], KID, "KID to real pictures, x 100"),
    ):  # fmt: skip
      base_line(axes, rows, metric, 100)
      curve(axes, x, walked, metric, 100, color=BLUE)
      axes.set_title(title)
    panels[0].legend()
    order = np.argsort(x)
    panels[2].plot(np.array(x)[order], [100 * walked[i]["cloud"]["call_rate"] for i in order], marker="o", color=ORANGE)
    panels[2].set_title("cloud calls per token, %")
    panels[2].set_ylim(0, 50)
    if is_timed:
      speeds(panels[3], x, walked)
    for axes in panels:
      axes.set_xlabel(label)
    figure.savefig(path)
    plt.close(figure)


def trade(tables: dict[str, dict], path: Path) -> None:
  """Quality over calls: CIAR's curve, CoDe's, and the points of the comparison."""
  rows = tables["ciar_tau"]["rows"]
  with plt.rc_context(STYLE):
    figure, panels = plt.subplots(1, 2, figsize=(11, 3.8), layout="constrained")
    for axes, metric, title in zip(panels, (RETRIEVAL, KID), ("prompt retrieval, %", "KID to real pictures, x 100")):
      base_line(axes, rows, metric, 100)
      for name, words, colour in (("ciar_tau", "CIAR", BLUE), ("ciar_code", "CoDe", RED)):
        if name in tables:
          walked = gated(tables[name]["rows"])
          curve(axes, [100 * row["cloud"]["call_rate"] for row in walked], walked, metric, 100, color=colour, label=words)
      others = tables.get("ciar_comparison", {"rows": []})["rows"]
      others = [row for row in others if not row["name"].startswith((BASE, "CIAR", "CoDe"))]
      # Most stand at one rate of calls: a legend tells them apart where labels would cover each other.
      for row, marker in zip(others, itertools.cycle("s^DvPX*<>")):
        at = (100 * row["cloud"]["call_rate"], 100 * row["metrics"][metric]["value"])
        axes.plot(*at, marker, color=ORANGE, markersize=6, markeredgecolor="white", markeredgewidth=0.6, label=row["name"])
      axes.set_title(title)
      axes.set_xlabel("cloud calls per token, %")
    panels[1].legend(loc="center left", bbox_to_anchor=(1.02, 0.5))
    figure.savefig(path)
    plt.close(figure)


def solvers(tables: dict[str, dict], path: Path) -> None:
  """Cost of the score over k: figure 5."""
  rows = tables["ciar_solvers"]["rows"]
  kinds = {"": ("water-filling", BLUE), "gap": ("largest minus smallest", GREEN), "generic": ("enumeration", ORANGE)}
  with plt.rc_context(STYLE):
    sizes = sorted({row["vocab"] for row in rows})
    figure, panels = plt.subplots(1, len(sizes), figsize=(5 * len(sizes), 3.6), layout="constrained", squeeze=False)
    for axes, size in zip(panels[0], sizes):
      for kind, (words, colour) in kinds.items():
        points = []
        for row in rows:
          name, *settings = row["score"].split(":")
          if name == "discrete" and row["vocab"] == size and "".join(settings[1:]) == kind:
            points.append((int(settings[0]), 1e6 * row["median"]))
        axes.plot(*zip(*sorted(points)), marker="o", color=colour, label=f"discrete, {words}")
      (own,) = [row for row in rows if row["score"] == "interval" and row["vocab"] == size]
      axes.axhline(1e6 * own["median"], color=GREY, linestyle="--", label="CIAR, all codes")
      axes.set(xscale="log", yscale="log", xlabel="k", title=f"microseconds per place, {size} codes")
    panels[0][0].legend()
    figure.savefig(path)
    plt.close(figure)


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--results", type=Path, default=Path("experiments/results"))
  parser.add_argument("--images", type=Path, default=Path("docs/images"))
  args = parser.parse_args()
  names = ("ciar_rho", "ciar_tau", "ciar_code", "ciar_comparison", "ciar_solvers")
  files = {name: args.results / f"{name}.json" for name in names}
  tables = {name: json.loads(path.read_text()) for name, path in files.items() if path.exists()}
  args.images.mkdir(parents=True, exist_ok=True)
  figures = {
    "ciar_prefix": ("ciar_rho", lambda tables, path: walk(tables, "ciar_rho", "rho", "share from the cloud", path)),
    "ciar_threshold": ("ciar_tau", lambda tables, path: walk(tables, "ciar_tau", "tau", "tau", path)),
    "ciar_trade": ("ciar_tau", trade),
    "ciar_solvers": ("ciar_solvers", solvers),
  }
  for name, (needed, draw) in figures.items():
    if needed not in tables:
      print(f"left out {name}.png: there is no {files[needed]}")
      continue
    path = args.images / f"{name}.png"
    draw(tables, path)
    print(f"wrote {path}")


if __name__ == "__main__":
  main()
