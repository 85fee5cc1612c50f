"""Maps of a target's confidence: the probability of the likeliest token at every position (GSD, arXiv 2508.07747, Figure 1).

    python -m experiments.figures.likeliest

``docs/images/gsd_top1.png``: below each image of plain decoding, the probability of the likeliest token at every position,
including guidance and temperature, without top-p. Expected, as in the paper: low on textures, where many tokens are similar
and the draft's token often differs; high on plain backgrounds. ``gsd_top1_lifted.png`` and, where its bundle was trained,
``gsd_top1_textures.png`` are the same of other worlds. The decodes are those of ``experiments.run scenes:audit lifted:groups
textures:groups``; missing ones are decoded.
"""

from __future__ import annotations

import logging
from pathlib import Path

import click
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

from experiments.configs import lifted, textures
from experiments.configs.scenes import TABLES
from experiments.engine import forced
from experiments.engine.bench import Bench
from experiments.engine.experiment import Lab, keep_compiled
from experiments.engine.rows import PLAIN
from experiments.figures.style import INK, STYLE, bare, figures, save, wrapped
from jaxspec.core.command_line import PATH
from jaxspec.sampling.logit_processing import probabilities

NUM_MAPS = 6
# Table whose plain decoding a figure shows.
MAPS = {
  "gsd_top1": TABLES["audit"],
  "gsd_top1_lifted": lifted.TABLES["groups"],
  "gsd_top1_textures": textures.TABLES["groups"],
}


def top1_probability(bench: Bench, tokens: np.ndarray) -> np.ndarray:
  """Largest probability ``[M, N]`` of the distribution of each of the ``tokens [M, N]`` of the first M prompts."""
  num, sampling = len(tokens), bench.decoder(PLAIN).sampling
  fns, side = sampling.side(bench.pipeline.target)
  warp, condition = sampling.warp(), jax.tree.map(lambda leaf: jnp.asarray(leaf[:num]), bench.condition)

  @jax.jit
  def largest(side, condition, tokens):
    logits = forced.read(fns, side.model, condition, tokens).need_logits()
    return jnp.max(probabilities(warp(logits, side.sampling)), axis=-1)

  return np.asarray(largest(side, condition, jnp.asarray(tokens, jnp.int32)))


def draw_top1(bench: Bench, path: Path) -> None:
  """Images, their maps, and the histogram of the target's confidence."""
  tokens = bench.decode(PLAIN).tokens
  top1, pixels = top1_probability(bench, tokens), bench.pipeline.family.decode(tokens[:NUM_MAPS])
  figure = plt.figure(figsize=(10.4, 3.5), layout="constrained")
  grid = figure.add_gridspec(2, NUM_MAPS + 2, width_ratios=[1] * NUM_MAPS + [0.12, 1.9])
  for column in range(NUM_MAPS):
    above, below = (figure.add_subplot(grid[line, column]) for line in range(2))
    above.imshow(pixels[column], interpolation="lanczos")
    above.set_title(wrapped(bench.prompts[column]), fontsize=7.5, color=INK, loc="center")
    image = below.imshow(top1[column].reshape(bench.pipeline.family.space.grid), cmap="viridis", vmin=0, vmax=1)
    bare(above)
    bare(below)
  bar = figure.colorbar(image, cax=figure.add_subplot(grid[1, NUM_MAPS]), ticks=[0, 0.5, 1])
  bar.ax.tick_params(labelsize=7.5, colors=INK)
  bar.outline.set_visible(False)
  axes, middle = figure.add_subplot(grid[:, NUM_MAPS + 1]), float(np.median(top1))
  axes.hist(top1.ravel(), bins=20, range=(0, 1), weights=np.full(top1.size, 100 / top1.size), color="#3b6fb6")
  axes.axvline(middle, color=INK, linewidth=1, linestyle=":")
  offset = dict(xytext=(-16, -2), textcoords="offset points", ha="right", va="top", fontsize=8, color=INK)
  axes.annotate(f"median {middle:.2f}", (middle, 1), xycoords=("data", "axes fraction"), **offset)
  axes.set_xlabel("probability of the likeliest token", fontsize=8.5)
  axes.set_ylabel(f"share of the positions of {len(top1)} images, %", fontsize=8.5)
  save(figure, path)
  below = ", ".join(f"below {at:g} at {100 * (top1 < at).mean():.1f} %" for at in (0.1, 0.2, 0.5))
  above = f"above 0.95 at {100 * (top1 > 0.95).mean():.1f} %"
  print(f"median {middle:.3f}, mean {top1.mean():.3f}, {below}, {above} of the positions")


@figures(__doc__)
@click.option("--runs", type=PATH, default="runs/tables", help="Folder of decodes.")
def main(results: Path, images: Path, runs: Path) -> None:
  del results
  logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
  keep_compiled()
  lab = Lab(runs)
  with plt.rc_context(STYLE):
    for name, table in MAPS.items():
      if table.bundle == textures.BUNDLE and not Path(table.bundle).exists():
        print(f"no {name}.png: {table.bundle} is not trained (experiments.configs.textures)")
      else:
        draw_top1(table.bench(lab), images / f"{name}.png")


if __name__ == "__main__":
  main()
