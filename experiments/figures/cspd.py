"""Draws the tables and the images of continuous speculative decoding (arXiv 2411.11925, Figures 8, 10 to 16).

    python -m experiments.figures.cspd             # from the tables alone
    python -m experiments.figures.cspd --decode    # images and maps too, by the shipped pairs (minutes)

Reads ``cspd_*.json`` (``experiments.run cspd:*``) and writes ``docs/images/cspd_*.png``; a figure without its tables is left
out, with a message. Bands are the tables' 95 % intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from experiments.configs.cspd import BUNDLES, DRAFT, PREFIXES, TARGET, TITLES, rule
from experiments.engine import statistics
from experiments.engine.bench import Bench
from experiments.engine.experiment import Lab, keep_compiled
from experiments.engine.race import is_masked, parallel
from experiments.engine.rows import Row
from experiments.figures.style import (
  BLUE,
  GREEN,
  GREY,
  INK,
  ORANGE,
  RED,
  STYLE,
  band,
  bare,
  figures,
  plain_ticks,
  save,
  tables,
)
from jaxspec.core.command_line import PATH
from jaxspec.core.state import Origin

Entry = dict[str, Any]
COLOURS = {"published": ORANGE, "without S": BLUE, "exact": GREEN, "released": RED, "program": INK}
SHOWN = ("0", "1", "2", "3", "4", "5", "7", "8")
ORIGINS = {
  Origin.FIRST: ("first token", BLUE), Origin.DRAFT: ("drafted and accepted", GREEN),
  Origin.REPLACED: ("replaced after a rejection", ORANGE), Origin.BONUS: ("added by the target", "#f0e442"),
}  # fmt: skip


def pick(rows: Sequence[Entry], family: str, label: str, **walked: Any) -> list[Entry]:
  """Rows of a pair and an acceptance rule with these settings."""
  same = lambda row: all(row["walked"].get(name) == value for name, value in walked.items())
  return [row for row in rows if row["family"] == family and row["label"] == label and same(row)]


def families_of(rows: Sequence[Entry]) -> list[str]:
  """The pairs in the rows of a table."""
  return [family for family in TITLES if any(row["family"] == family for row in rows)]


def panel_per_family(families: Sequence[str], ylabel: str, xlabel: str) -> tuple[Figure, Sequence[Axes]]:
  """A figure with one panel side by side for every pair."""
  width = 4.6 * len(families)
  figure, (panels,) = plt.subplots(1, len(families), figsize=(width, 3.0), layout="constrained", squeeze=False)
  for axes, family in zip(panels, families):
    axes.set(title=TITLES[family], xlabel=xlabel)
  panels[0].set_ylabel(ylabel)
  return figure, panels


def draw_acceptance(found: dict[str, list[Entry]], path: Path) -> None:
  """Acceptance over draft length, guidance and temperature: figures 8, 13 and 14."""
  panels = [
    ("gamma", "gamma", {}, "draft length"), ("guidance", "cfg_scale", {"gamma": 4}, "guidance scale"),
    ("temperature", "temperature", {"cfg_scale": 1.0}, "temperature, no guidance"),
  ]  # fmt: skip
  families = families_of(found["gamma"])
  size = (9.6, 2.75 * len(families))
  figure, grid = plt.subplots(len(families), 3, figsize=size, layout="constrained", sharey="row", squeeze=False)
  for line, family in zip(grid, families):
    for axes, (name, option, fixed, label) in zip(line, panels):
      mine = {rule: rows for rule in COLOURS if (rows := pick(found[name], family, rule, **fixed))}
      if not mine:
        axes.set_axis_off()  # not varied for this pair
        continue
      for label_of, rows in mine.items():
        at = [row["walked"][option] for row in rows]
        band(axes, at, [statistics.alpha_of(row) for row in rows], label=label_of, color=COLOURS[label_of])
      if option == "gamma":
        axes.set_xscale("log", base=2)
      plain_ticks(axes.xaxis, sorted({row["walked"][option] for rows in mine.values() for row in rows}))
      axes.set_xlabel(label)
      axes.set_ylim(0, 1)
    line[0].set_ylabel("acceptance of tested drafts")
    line[0].set_title(TITLES[family])
    line[0].legend()
  save(figure, path)


def draw_along(found: dict[str, list[Entry]], path: Path) -> None:
  """Acceptance along the generation order, for three target prefixes: figure 11."""
  rows = found["prefix"]
  families = families_of(rows)
  figure, panels = panel_per_family(families, "acceptance of tested drafts", "position in the generation order")
  for axes, family in zip(panels, families):
    label = "exact" if family == "causal" else "released"
    for share, colour in zip((0.0, 0.05, 0.15), (GREY, BLUE, ORANGE)):
      (row,) = pick(rows, family, label, gamma=8, target_prefix=share)
      accepted, tested = (np.asarray(row["along"][name], float) for name in ("accepted", "tested"))
      # Windows of eight positions: single ones have few tested drafts.
      window = lambda values: np.convolve(values, np.ones(8), mode="valid")
      with np.errstate(invalid="ignore"):
        values = window(accepted) / window(tested)
      axes.plot(np.arange(len(values)) + 4, values, color=colour, label=f"{100 * share:g} %")
    axes.set_title(f"{TITLES[family]}, {label} rule")
    axes.set_ylim(0, 1)
  panels[0].legend(loc="lower right", title="target prefix", title_fontsize=8.5)
  save(figure, path)


def draw_tries(found: dict[str, list[Entry]], path: Path) -> None:
  """Proposals to replace a rejected token, over draft length: figure 15."""
  rows = found["gamma"]
  families = families_of(rows)
  figure, panels = panel_per_family(families, "rejected tokens that needed more, %", "proposals")
  for axes, family in zip(panels, families):
    for label, colour in COLOURS.items():
      mine = pick(rows, family, label)
      counts = np.sum([row["figures"]["tries"] for row in mine], axis=0)[1:].astype(float) if mine else np.zeros(1)
      if counts.sum():
        more = 1 - np.cumsum(counts)[:-1] / counts.sum()  # the last entry has no upper end
        more = 100 * more[more > 1e-9]  # a curve ends at the largest number of proposals
        axes.plot(np.arange(1, len(more) + 1), more, color=colour, label=label)
    axes.set(xscale="log", yscale="log", ylim=(0.02, 100))
    plain_ticks(axes.xaxis, (1, 2, 5, 10, 20, 50, 100))
    plain_ticks(axes.yaxis, (0.1, 1, 10, 100))
    axes.legend(loc="lower left")
  save(figure, path)


def ratios(document: Entry, rows: Sequence[Entry], other: str | None = None) -> list[statistics.Ratio]:
  """Speed over another row of the same batch size; by default over the row at equal calls."""
  return [statistics.over(row, document, other or row["rival"]) for row in rows]


def draw_speed(found: dict[str, list[Entry]], path: Path) -> None:
  """Measured speed over draft length and batch size, beside the prediction; ratios are of the two runs of a turn."""
  families = families_of(found["speed"])
  figure, panels = panel_per_family(families, "speed over the target", "draft length")
  figure.set_figheight(3.6)
  for axes, family in zip(panels, families):
    document = {"rows": [row for row in found["speed"] if row["family"] == family], "base": "target"}
    label = "released" if family == "mar" else "exact"
    rows = [row for row in document["rows"] if row["method"] == "cspd" and row["label"].startswith(label)]
    rows = sorted(rows, key=lambda row: (row["batch"], row["options"]["gamma"]))
    batches = sorted({row["batch"] for row in rows})
    # A column for each row of the table, those of a batch size side by side.
    at = np.array([column + batches.index(row["batch"]) for column, row in enumerate(rows)], float)
    series = [("measured, token by token", ratios(document, rows, "target"), GREEN)]
    if family == "mar":
      series.append(("measured, at equal calls", ratios(document, rows), ORANGE))
    for number, (words, values, colour) in enumerate(series):
      middle = np.array([value.median for value in values])
      reach = np.abs([[value.low, value.high] for value in values] - middle[:, None]).T
      shift = 0.3 * (number - (len(series) - 1) / 2)
      axes.errorbar(at + shift, middle, reach, fmt="o", color=colour, elinewidth=1.4, capsize=3, label=words)
    axes.plot(at, [row["predicted"] for row in rows], "x", color=INK, label="predicted")
    axes.axhline(1, color=GREY, linewidth=1.0, linestyle="--")
    axes.set_xticks(at, [str(row["options"]["gamma"]) for row in rows])
    for batch in batches:
      columns = [x for x, row in zip(at, rows) if row["batch"] == batch]
      words = dict(ha="center", va="top", fontsize=9, bbox=dict(facecolor="white", edgecolor="none", pad=1))
      axes.annotate(f"batch {batch}", (np.mean(columns), 0.98), xycoords=("data", "axes fraction"), **words)
    axes.grid(axis="x", visible=False)
    axes.margins(x=0.12)
    axes.set_ylim(0, 1.2 * max(axes.get_ylim()[1], 1))
    axes.set_title(f"{TITLES[family]}, {label} rule")
  figure.legend(*panels[-1].get_legend_handles_labels(), loc="outside lower center", ncols=3)
  save(figure, path)


def contact_rows(bench: Bench, gamma: int = 4) -> list[Row]:
  """Compared rows of images; MAR without guidance, whose rounds are expensive."""
  masked = is_masked(bench)
  sampling = {"cfg_scale": 1.0 if masked else 2.0}
  rows = [TARGET.but(label="target alone"), DRAFT]
  if masked:
    length = bench.pipeline.family.space.num_tokens
    rows.append(parallel(length // 4).but(label=f"target, {length // 4} iterations"))
  rows += [rule(name, f"{name} rule", gamma=gamma) for name in ("released" if masked else "published", "exact")]
  return [row.but(sampling=sampling) for row in rows]


def setting_rows(bench: Bench, gamma: int = 8) -> list[Row]:
  """The rule without and with alignment, and over the target prefix: figures 10 and 12."""
  name = "released" if is_masked(bench) else "published"
  rows = [rule(f"{name}, not aligned", "not aligned", gamma=gamma), rule(name, "aligned", gamma=gamma)]
  filled = [rule(name, f"aligned, prefix {100 * share:g} %", gamma=gamma, target_prefix=share) for share in PREFIXES[1:]]
  return [TARGET.but(label="target alone"), *rows, *filled]


def pixels_of(bench: Bench, row: Row, tokens: np.ndarray) -> np.ndarray:
  """Images ``[P, H, W, 3]`` uint8."""
  return bench.of(row).family.decode(tokens, sampling=bench.decoder(row).sampling)


def draw_images(bench: Bench, rows: Sequence[Row], path: Path) -> None:
  """A line of images per row; the same classes and keys."""
  size = (1.16 * len(SHOWN) + 1.4, 1.2 * len(rows) + 0.3)
  figure, grid = plt.subplots(len(rows), len(SHOWN), figsize=size, layout="constrained")
  for line, row in zip(grid, rows):
    result = bench.decode(row)
    for axes, pixels in zip(line, pixels_of(bench, row, result.tokens)):
      axes.imshow(pixels, interpolation="lanczos")
      bare(axes)
    words = row.name if row.alone else f"{row.name}\n{result.counters.target_calls.mean():.0f} calls"
    line[0].set_ylabel(words, rotation=0, ha="right", va="center", fontsize=9)
  for axes, name in zip(grid[0], SHOWN):
    axes.set_title(name, fontsize=7.5, loc="center")
  save(figure, path, colours=256)


def draw_map(bench: Bench, path: Path, number: int = 4) -> None:
  """Map of accepted drafts: figure 16."""
  # The exact rule accepts too few of MAR's drafts for a map.
  label = "released rule" if is_masked(bench) else "exact rule"
  (row,) = (row for row in contact_rows(bench) if row.label == label)
  result, side = bench.decode(row), bench.pipeline.family.space.grid[0]
  size = (1.9 * number, 4.2)
  figure, grid = plt.subplots(2, number, figsize=size, layout="constrained")
  palette = ListedColormap([ORIGINS[origin][1] if origin in ORIGINS else "white" for origin in Origin])
  for column, (pixels, origin, name) in enumerate(zip(pixels_of(bench, row, result.tokens), result.origin, SHOWN[:number])):
    grid[0, column].imshow(pixels, interpolation="lanczos")
    grid[1, column].imshow(origin.reshape(side, side), cmap=palette, vmin=0, vmax=len(Origin) - 1)
    grid[0, column].set_title(name, fontsize=8.5, loc="center")
  for axes in grid.flat:
    bare(axes)
  patches = [Patch(color=colour, label=words) for words, colour in ORIGINS.values()]
  figure.legend(handles=patches, loc="outside lower center", ncols=2)
  save(figure, path, colours=128)


PLOTS: dict[str, tuple[Callable[[dict[str, list[Entry]], Path], None], tuple[str, ...]]] = {
  "cspd_acceptance": (draw_acceptance, ("gamma", "guidance", "temperature")),
  "cspd_along": (draw_along, ("prefix",)),
  "cspd_tries": (draw_tries, ("gamma",)),
  "cspd_speed": (draw_speed, ("speed",)),
}


def load(results: Path, name: str) -> list[Entry]:
  """The rows of a table, for all pairs with one."""
  found = tables(results, [f"cspd_{name}_{family}" for family in TITLES])
  return [row | {"family": key.rpartition("_")[2]} for key, document in found.items() for row in document["rows"]]


@figures(__doc__)
@click.option("--decode", is_flag=True, help="Draw images and maps too.")
@click.option("--runs", type=PATH, default="runs/tables", help="Folder of decodes.")
def main(results: Path, images: Path, decode: bool, runs: Path) -> None:
  with plt.rc_context(STYLE):
    for name, (plot, needed) in PLOTS.items():
      found = {table: load(results, table) for table in needed}
      if missing := [table for table, rows in found.items() if not rows]:
        print(f"left out {name}.png: no cspd_{missing[0]}_*.json in {results}")
        continue
      plot(found, images / f"{name}.png")
    if decode:
      keep_compiled()
      lab = Lab(runs)
      for family, bundle in BUNDLES.items():
        bench = Bench(lab.pipeline(bundle), SHOWN, lab.decodes, batch=len(SHOWN))
        draw_images(bench, contact_rows(bench), images / f"cspd_images_{family}.png")
        draw_images(bench, setting_rows(bench), images / f"cspd_settings_{family}.png")
        draw_map(bench, images / f"cspd_map_{family}.png")


if __name__ == "__main__":
  main()
