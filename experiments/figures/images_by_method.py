"""Draws the same captions by each method, with the same keys and without selection.

    python -m experiments.figures.images_by_method
    python -m experiments.figures.images_by_method ciar_grid

Settings and thresholds are those of the rows of a table; images that no table has decoded are decoded:

- ``docs/images/gsd_grid.png``: lossy rules, without top-p (Figure 3 of the supplement of arXiv 2508.07747).
- ``docs/images/ciar_grid.png``: scores of CIAR at 30 % cloud calls (arXiv 2603.25463, Figure 4).
- ``docs/images/ciar_discrete_grid.png``: discrete sets of several sizes at 30 % cloud calls (Figure 7 there).
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import click
import matplotlib.pyplot as plt

from experiments.configs.scenes import TABLES as SCENES
from experiments.configs.scenes_ciar import TABLES as CIAR
from experiments.engine.bench import Bench
from experiments.engine.claims import PLAIN
from experiments.engine.experiment import Lab, keep_compiled
from experiments.engine.quality import Quality
from experiments.engine.rows import Row
from experiments.figures.style import INK, STYLE, bare, figures, read, save, wrapped
from jaxspec.core.command_line import PATH

NUM_COLUMNS = 8
# A figure: its table, the table's document, and the label of each row beside its words in the figure.
GRIDS: dict[str, tuple[Quality, str, dict[str, str]]] = {
  "gsd_grid": (
    SCENES["audit"], "scenes_audit",
    {
      "plain": PLAIN, "plain,\nanother seed": f"{PLAIN}, another seed", "SJD (exact)": "SJD, coupled",
      "GSD, G 50": "GSD, G 50", "GSD, G 50,\nno gap": "GSD, G 50, no gap", "static groups\nof 10": "static groups of 10",
      "LANTERN++,\nlambda 10": "LANTERN++, lambda 10",
    },
  ),
  "ciar_grid": (
    CIAR["comparison_30"], "scenes_ciar_comparison_30",
    {"cloud alone": PLAIN, "CIAR": "CIAR", "Entropy": "Entropy", "max-prob": "max-prob", "U-HLM": "U-HLM",
     "Random": "Random", "CoDe": "CoDe(0.3)"},
  ),
  "ciar_discrete_grid": (
    CIAR["discrete"], "scenes_ciar_discrete",
    {"cloud alone": PLAIN, "CIAR": "CIAR", "k 10": "k 10, upper", "k 50": "k 50, upper", "k 100": "k 100, upper"},
  ),
}  # fmt: skip


def row_of(entry: dict[str, Any]) -> Row:
  """The settings of a row of a document."""
  options, sampling = (tuple((entry.get(name) or {}).items()) for name in ("options", "sampling"))
  return Row(entry["method"], entry["label"], options, sampling, entry["draft"], entry["alone"], entry["seed"])


def draw(bench: Bench, rows: dict[str, dict[str, Any]], path: Path) -> None:
  """A line of images for each row of a document, with its calls of the target an image."""
  size = (NUM_COLUMNS * 1.16 + 1.3, len(rows) * 1.2 + 0.35)
  figure, grid = plt.subplots(len(rows), NUM_COLUMNS, figsize=size, layout="constrained")
  for line, (words, entry) in zip(grid, rows.items()):
    tokens = bench.decode(row_of(entry), NUM_COLUMNS).tokens[:NUM_COLUMNS]
    for axes, pixels in zip(line, bench.pipeline.family.decode(tokens)):
      axes.imshow(pixels, interpolation="lanczos")
      bare(axes)
    words = f"{words}\n{entry['calls_per_image']:.0f} calls"
    line[0].set_ylabel(words, rotation=0, ha="right", va="center", fontsize=9, color=INK)
  for axes, text in zip(grid[0], bench.prompts):
    axes.set_title(wrapped(text), fontsize=7.5, color=INK, loc="center")
  save(figure, path, colours=128)


@figures(__doc__)
@click.argument("names", nargs=-1, type=click.Choice(list(GRIDS)), metavar="[FIGURE]...")
@click.option("--runs", type=PATH, default="runs/tables", help="Folder of decodes.")
def main(results: Path, images: Path, names: tuple[str, ...], runs: Path) -> None:
  logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
  keep_compiled()
  lab = Lab(runs)
  with plt.rc_context(STYLE):
    for name in names or GRIDS:
      table, document, labels = GRIDS[name]
      found = {entry["label"]: entry for entry in read(results / f"{document}.json")["rows"]}
      draw(table.bench(lab), {words: found[label] for words, label in labels.items()}, images / f"{name}.png")


if __name__ == "__main__":
  main()
