"""Draws the tables and the pictures of continuous speculative decoding (arXiv 2411.11925, Figures 8, 11, 13 to 16).

Command (needs matplotlib; pictures are drawn if ``runs/cspd`` has none)::

    python -m experiments.cspd_figures

Reads ``experiments/results/cspd_*.json`` (`experiments.cspd_acceptance`, `experiments.cspd_speed`) and writes
``docs/images/cspd_*.png``; a figure whose tables are not there is left out, with a line that says so. Bands: 95 % intervals.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from experiments import cspd_bench
from experiments.ciar_figures import BLUE, GREEN, GREY, ORANGE, RED, STYLE
from experiments.cspd_bench import Bench, Row
from jaxspec.cli.heatmap import draw_heatmap
from jaxspec.token_bundle import TokenBundle

Entry = dict[str, Any]
COLOURS = {"published": ORANGE, "without S": BLUE, "exact": GREEN, "released": RED}
FAMILIES = cspd_bench.TITLES
SHOWN = (
  "animal-mammal", "food-fruit", "face-smiling", "transport-ground", "animal-bird", "plant-flower", "heart",
  "sky & weather",
)  # fmt: skip


def pick(rows: Sequence[Entry], family: str, rule: str, **setting: Any) -> list[Entry]:
  """Rows of a pair and a rule with these settings."""
  same = lambda row: all(row["setting"].get(name) == value for name, value in setting.items())
  return [row for row in rows if row["family"] == family and row["rule"] == rule and same(row)]


def alpha_line(axes: Axes, rows: Sequence[Entry], option: str, **style: Any) -> None:
  """Acceptance over a setting, with its interval."""
  at = [row["setting"][option] for row in rows]
  mid, low, high = np.array([[row["figures"]["alpha"][n] for n in ("value", "low", "high")] for row in rows]).T
  (drawn,) = axes.plot(at, mid, marker="o", **style)
  axes.fill_between(at, low, high, color=drawn.get_color(), alpha=0.13, linewidth=0)


def families_of(rows: Sequence[Entry]) -> list[str]:
  """The pairs that a table has rows of."""
  return [family for family in FAMILIES if any(row["family"] == family for row in rows)]


def panel_per_family(families: Sequence[str], ylabel: str, xlabel: str) -> tuple[Figure, Sequence[Axes]]:
  """A figure with one panel side by side for every pair."""
  width = 4.6 * len(families)
  figure, (panels,) = plt.subplots(1, len(families), figsize=(width, 3.0), layout="constrained", squeeze=False)
  for axes, family in zip(panels, families):
    axes.set(title=FAMILIES[family], xlabel=xlabel)
  panels[0].set_ylabel(ylabel)
  return figure, panels


def draw_acceptance(tables: dict[str, Entry], path: Path) -> None:
  """Acceptance over draft length, guidance and temperature: figures 8, 13 and 14."""
  panels = [
    ("gamma", "gamma", {}, "draft length"), ("guidance", "scale", {"gamma": 4}, "guidance scale"),
    ("temperature", "temperature", {"scale": 1.0}, "temperature, no guidance"),
  ]  # fmt: skip
  families = families_of(tables["gamma"]["rows"])
  figure, grid = plt.subplots(
    len(families), 3, figsize=(9.6, 2.75 * len(families)), layout="constrained", sharey="row", squeeze=False
  )
  for line, family in zip(grid, families):
    for axes, (name, option, fixed, label) in zip(line, panels):
      mine = {rule: pick(tables[name]["rows"], family, rule, **fixed) for rule in COLOURS}
      if not any(mine.values()):
        axes.set_axis_off()  # not walked for this pair
        continue
      for rule, rows in mine.items():
        if rows:
          alpha_line(axes, rows, option, label=rule, color=COLOURS[rule])
      if option == "gamma":
        axes.set_xscale("log", base=2)
        axes.set_xticks([4, 8, 16, 32], ["4", "8", "16", "32"])
      axes.set_xlabel(label)
      axes.set_ylim(bottom=0)
    line[0].set_ylabel("acceptance of tested drafts")
    line[0].set_title(FAMILIES[family])
    line[0].legend()
  save(figure, path)


def draw_along(tables: dict[str, Entry], path: Path) -> None:
  """Acceptance along the generation order, for three shares of prefill: figure 11."""
  rows = tables["prefill"]["rows"]
  families = families_of(rows)
  figure, panels = panel_per_family(families, "acceptance of tested drafts", "place in the generation order")
  for axes, family in zip(panels, families):
    for share, colour in zip((0.0, 0.05, 0.15), (GREY, BLUE, ORANGE)):
      rule = "exact" if family == "causal" else "released"
      (row,) = pick(rows, family, rule, gamma=8, prefill=share)
      kept, tested = (np.asarray(row["along"][name], float) for name in ("kept", "tested"))
      # Windows of eight places: single ones have few tested drafts.
      window = lambda values: np.convolve(values, np.ones(8), mode="valid")
      at = np.arange(len(kept) - 7) + 4
      with np.errstate(invalid="ignore"):
        axes.plot(at, window(kept) / window(tested), color=colour, label=f"{share:.0%} by the target")
    axes.set_title(f"{FAMILIES[family]}, {rule} rule")
    axes.set_ylim(0, 1)
  panels[0].legend(loc="lower right")
  save(figure, path)


def draw_tries(tables: dict[str, Entry], path: Path) -> None:
  """Proposals until a refused token was replaced, over draft length: figure 15."""
  rows = tables["gamma"]["rows"]
  families = families_of(rows)
  figure, panels = panel_per_family(families, "share that needed more", "proposals for a refused token")
  for axes, family in zip(panels, families):
    for rule in COLOURS:
      mine = pick(rows, family, rule)
      if not mine:
        continue
      counts = np.sum([row["figures"]["tries"] for row in mine], axis=0)[1:].astype(float)
      if counts.sum():
        more = 1 - np.cumsum(counts)[:-1] / counts.sum()  # the last entry has no upper end
        axes.plot(np.arange(1, len(more) + 1), more, color=COLOURS[rule], label=rule)
    axes.set_xscale("log")
    axes.set_yscale("symlog", linthresh=1e-3)
    axes.set_ylim(0, 1)
    axes.legend()
  save(figure, path)


def draw_speed(tables: dict[str, Entry], path: Path) -> None:
  """Measured speed over draft length, beside the prediction."""
  rows = [row for row in tables["speed"]["rows"] if "gamma" in row]
  # One draft length makes no curve.
  families = [f for f in families_of(rows) if len({row["gamma"] for row in rows if row["family"] == f}) > 1]
  if not families:
    print(f"left out {path.stem}: no pair was timed at two draft lengths")
    return
  figure, panels = panel_per_family(families, "speed ratio", "draft length")
  for axes, family in zip(panels, families):
    batches = sorted({row["batch"] for row in rows if row["family"] == family})
    for batch, style in zip(batches, ("-", "--", ":")):
      rule = "released" if family == "mar" else "exact"
      mine = [row for row in rows if (row["family"], row["batch"], row["rule"]) == (family, batch, rule)]
      at = [row["gamma"] for row in mine]
      axes.plot(at, [row["over_target"]["median"] for row in mine], style, marker="o", color=GREEN,
                label=f"over the target, batch {batch}")  # fmt: skip
      if family == "mar":
        axes.plot(at, [row["over_rival"]["median"] for row in mine], style, marker="o", color=ORANGE,
                  label=f"over the target at equal calls, batch {batch}")  # fmt: skip
      if batch == batches[0]:
        axes.plot(at, [row["predicted"] for row in mine], marker="x", color=GREY, linewidth=1, label="predicted")
    axes.axhline(1, color=GREY, linewidth=0.8)
    axes.set_xscale("log", base=2)
    gammas = sorted({row["gamma"] for row in rows if row["family"] == family})
    axes.set_xticks(gammas, map(str, gammas))
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.set_title(f"{FAMILIES[family]}, {rule} rule")
    axes.legend(fontsize=7.5, loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=2)
  save(figure, path)


def contact_rows(bench: Bench, family: str, gamma: int = 4) -> list[Row]:
  """What the picture compares; MAR without guidance, whose rounds are dear."""
  scale = 1.0 if bench.bundle(family).is_masked else 2.0
  method = lambda *args, **options: bench.method(family, *args, scale=scale, **options)
  rows = [Row(family, "target alone", method("ar")), Row(family, "draft alone", method("ar", alone=True))]
  if bench.bundle(family).is_masked:
    length = bench.bundle(family).target.config.num_tokens
    rows.append(Row(family, f"target, {length // 4} iterations", method("parallel", num_iter=length // 4)))
  rules = ("released" if bench.bundle(family).is_masked else "published", "exact")
  return rows + [Row(family, f"{rule} rule", method("cspd", rule=rule, gamma=gamma)) for rule in rules]


def shown_classes(bundle: TokenBundle) -> tuple[list[str], np.ndarray]:
  """Classes of the pictures, and their labels."""
  names = [name for name in SHOWN if name in bundle.classes] or list(bundle.classes)
  return names, np.asarray(bundle.labels(names), np.int32)


def draw_pictures(bench: Bench, family: str, path: Path) -> None:
  """A row of pictures per method; the same classes and keys."""
  names, labels = shown_classes(bench.bundle(family))
  rows = contact_rows(bench, family)
  figure, grid = plt.subplots(
    len(rows), len(names), figsize=(1.16 * len(names) + 1.4, 1.2 * len(rows) + 0.3), layout="constrained"
  )
  for line, row in zip(grid, rows):
    drawn = bench.draw(row, labels, len(labels))
    for axes, pixels in zip(line, bench.pixels(row, drawn.out.tokens)):
      axes.imshow(pixels, interpolation="lanczos")
      axes.set(xticks=[], yticks=[])
      axes.spines[:].set(visible=True, color="#d8d8d8", linewidth=0.6)
    calls = drawn.out.counters.target_calls.mean()
    words = row.label if "draft" in row.label else f"{row.label}\n{calls:.0f} calls"
    line[0].set_ylabel(words, rotation=0, ha="right", va="center", fontsize=9)
  for axes, name in zip(grid[0], names):
    axes.set_title(name, fontsize=7.5, loc="center")
  save(figure, path)
  Image.open(path).convert("RGB").quantize(256).save(path, optimize=True)  # a third of the size


def draw_map(bench: Bench, family: str, path: Path) -> None:
  """Where drafts were kept: figure 16."""
  names, labels = shown_classes(bench.bundle(family))
  # Of MAR's drafts the exact rule keeps too few to show where.
  label = "released rule" if bench.bundle(family).is_masked else "exact rule"
  (row,) = (row for row in contact_rows(bench, family) if row.label == label)
  drawn = bench.draw(row, labels, len(labels))
  sheet = draw_heatmap(drawn.out, bench.pixels(row, drawn.out.tokens)[:4], names[:4], columns=2)
  path.parent.mkdir(parents=True, exist_ok=True)
  sheet.quantize(128).save(path, optimize=True)
  print(f"wrote {path}")


def load(results: Path, table: str) -> Entry:
  """The rows of a table, of all pairs that have one."""
  files = {family: results / f"cspd_{table}_{family}.json" for family in FAMILIES}
  found = {family: json.loads(file.read_text())["rows"] for family, file in files.items() if file.is_file()}
  return {"rows": [row | {"family": family} for family, rows in found.items() for row in rows]}


def save(figure, path: Path) -> None:
  """Writes a figure."""
  path.parent.mkdir(parents=True, exist_ok=True)
  figure.savefig(path, facecolor="white")
  plt.close(figure)
  print(f"wrote {path}")


PLOTS: dict[str, tuple[Callable[[dict[str, Entry], Path], None], tuple[str, ...]]] = {
  "cspd_acceptance": (draw_acceptance, ("gamma", "guidance", "temperature")),
  "cspd_along": (draw_along, ("prefill",)),
  "cspd_tries": (draw_tries, ("gamma",)),
  "cspd_speed": (draw_speed, ("speed",)),
}


def main() -> None:
  parser = cspd_bench.parser(__doc__)
  parser.add_argument("--images", type=Path, default=Path("docs/images"))
  args = parser.parse_args()
  bench, families, _ = cspd_bench.start(args)
  with plt.rc_context(STYLE):
    for name, (plot, needed) in PLOTS.items():
      tables = {table: load(args.results, table) for table in needed}
      if missing := [table for table, found in tables.items() if not found["rows"]]:
        print(f"left out {name}: no cspd_{missing[0]}_*.json in {args.results}")
        continue
      plot(tables, args.images / f"{name}.png")
    for family in families:
      draw_pictures(bench, family, args.images / f"cspd_pictures_{family}.png")
      draw_map(bench, family, args.images / f"cspd_map_{family}.png")


if __name__ == "__main__":
  main()
