"""Pictures of GSD (arXiv 2508.07747): how sure the target is of its tokens (Figure 1), and what methods draw (Figure 3).

Command (needs matplotlib; pictures come from the tables' decodes, see ``experiments.method_quality``)::

    python -m experiments.gsd_figures

``docs/images/gsd_top1.png``: below each picture of plain decoding, the probability of the likeliest token at every place,
under the law that tokens are drawn from (guidance and temperature included). Expected, as in the paper: low wherever there
is texture, so that the draft's token is often another one of many alike; high on plain backgrounds.

``docs/images/gsd_grid.png``: the first training prompts of the tables, drawn by each method with the same keys; no picture
is chosen by hand.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from experiments import gsd_groups
from experiments.method_quality import PLAIN, PLAIN_AGAIN, SJD, Setting, Workbench
from jaxspec.cli import compilation_cache
from jaxspec.cli.sources import Source
from jaxspec.decode.assemble import assemble
from jaxspec.models.guidance import guided
from jaxspec.models.sampling import Warp, probabilities
from jaxspec.models.tokenizer_fns import to_uint8

INK, QUIET = "#20303f", "#8a9099"
NUM_MAPS, NUM_COLUMNS = 6, 8
GRID = {
  "plain": PLAIN,
  "plain,\nanother seed": PLAIN_AGAIN,
  "SJD (exact)": SJD,
  "GSD, G 10": Setting.of("gsd", group_size=10, max_distance=4.0),
  "GSD, G 50": Setting.of("gsd", group_size=50, max_distance=4.0),
  "LANTERN++,\nlambda 2": Setting.of("lantern", factor=2.0),
}


def top1_probability(source: Source, tokens: np.ndarray) -> np.ndarray:
  """Largest probability ``[M, N]`` of the law that each of the ``tokens [M, N]`` of the first M prompts was drawn from."""
  settings, num = source.settings, len(tokens)
  params, *_ = assemble(source.target.fns, source.target.params, **({"method": "ar"} | settings.assembly()))
  fns = guided(source.target.fns, interval=settings.cfg_interval) if settings.cfg_scale > 1 else source.target.fns
  warp = Warp(top_k=settings.top_k, nucleus=settings.top_p < 1)
  condition = jax.tree.map(lambda leaf: jnp.asarray(leaf[:num]), source.condition)

  @jax.jit
  def largest(side, condition, tokens):
    prefix, length = fns.prefix_len(condition), tokens.shape[1]
    cache = fns.init_cache(num, prefix + length)
    first, cache = fns.apply(
      side.model, condition, cache, positions=jnp.arange(prefix)[None], logits_at=jnp.full((1,), prefix - 1)
    )
    rest, _ = fns.apply(side.model, tokens[:, :-1], cache, positions=prefix + jnp.arange(length - 1)[None])
    logits = jnp.concatenate([first.logits, rest.logits], axis=1)
    return jnp.max(probabilities(warp(logits, side.sampling)), axis=-1)

  return np.asarray(largest(params.target, condition, jnp.asarray(tokens, jnp.int32)))


def to_pixels(source: Source, tokens: np.ndarray) -> np.ndarray:
  """Pictures ``[M, H, W, 3]`` uint8 of ``tokens [M, N]``."""
  fns, params = source.tokenizer.fns, source.tokenizer.params
  return np.asarray(jax.jit(lambda p, t: to_uint8(fns.decode(p, t)))(params, jnp.asarray(tokens, jnp.int32)))


def show(axes, pixels: np.ndarray, **kwargs) -> matplotlib.image.AxesImage:
  """A picture without axes."""
  axes.set(xticks=[], yticks=[])
  axes.spines[:].set(color="#d8d8d8", linewidth=0.6)
  return axes.imshow(pixels, **kwargs)


def draw_top1(bench: Workbench, path: Path) -> None:
  """Pictures, their maps, and how often the target is how sure."""
  source, decoded = bench.source("ar"), bench.decode(PLAIN)
  top1 = top1_probability(source, decoded.tokens)
  pixels = to_pixels(source, decoded.tokens[:NUM_MAPS])
  side = source.target.config.grid
  figure = plt.figure(figsize=(10.4, 3.5), layout="constrained")
  grid = figure.add_gridspec(2, NUM_MAPS + 2, width_ratios=[1] * NUM_MAPS + [0.12, 1.9])
  for column in range(NUM_MAPS):
    axes = figure.add_subplot(grid[0, column])
    show(axes, pixels[column], interpolation="lanczos")
    axes.set_title("\n".join(_wrapped(bench.prompts.texts[column])), fontsize=7.5, color=INK)
    image = show(
      figure.add_subplot(grid[1, column]), top1[column].reshape(side, side), cmap="viridis", vmin=0, vmax=1
    )
  bar = figure.colorbar(image, cax=figure.add_subplot(grid[1, NUM_MAPS]), ticks=[0, 0.5, 1])
  bar.ax.tick_params(labelsize=7.5, colors=INK)
  bar.outline.set_visible(False)
  axes = figure.add_subplot(grid[:, NUM_MAPS + 1])
  axes.hist(top1.ravel(), bins=20, range=(0, 1), weights=np.full(top1.size, 100 / top1.size), color="#3b6fb6")
  middle = float(np.median(top1))
  axes.axvline(middle, color=INK, linewidth=1, linestyle=":")
  axes.annotate(f"median {middle:.2f}", (middle, 1), xycoords=("data", "axes fraction"), xytext=(-4, -10),
                textcoords="offset points", ha="right", fontsize=8, color=INK)  # fmt: skip
  axes.set_xlabel("probability of the likeliest token", fontsize=8.5)
  axes.set_title(f"share of places, percent ({len(top1)} pictures)", fontsize=8.5, loc="left")
  axes.tick_params(labelsize=8)
  axes.spines[["top", "right"]].set_visible(False)
  path.parent.mkdir(parents=True, exist_ok=True)
  figure.savefig(path, dpi=110)
  logging.info("%s: median %.3f, mean %.3f, below one half at %.1f %% of the places",
               path, middle, top1.mean(), 100 * (top1 < 0.5).mean())  # fmt: skip


def draw_grid(bench: Workbench, rows: dict[str, Setting], path: Path) -> None:
  """A row of pictures per method, with its calls of the target per picture over all prompts."""
  figure, axes = plt.subplots(
    len(rows), NUM_COLUMNS, figsize=(NUM_COLUMNS * 1.16 + 1.3, len(rows) * 1.2 + 0.35), layout="constrained"
  )
  for line, (name, setting) in zip(axes, rows.items()):
    decoded = bench.decode(setting)
    for cell, pixels in zip(line, to_pixels(bench.source(setting.method), decoded.tokens[:NUM_COLUMNS])):
      show(cell, pixels, interpolation="lanczos")
    calls = decoded.counters["target_calls"].mean()
    line[0].set_ylabel(f"{name}\n{calls:.0f} calls", rotation=0, ha="right", va="center", fontsize=9, color=INK)
  for cell, text in zip(axes[0], bench.prompts.texts):
    cell.set_title("\n".join(_wrapped(text)), fontsize=7.5, color=INK)
  path.parent.mkdir(parents=True, exist_ok=True)
  figure.savefig(path, dpi=100)


def _wrapped(text: str, width: int = 18) -> list[str]:
  """At most three lines."""
  lines = [""]
  for word in text.split():
    if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
      lines.append("")
    lines[-1] = f"{lines[-1]} {word}".strip()
  return lines[:3]


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--runs", type=Path, default=Path("runs/method_quality"))
  parser.add_argument("--images", type=Path, default=Path("docs/images"))
  parser.add_argument("--decoded", action="store_true", help="only methods that are decoded")
  args = parser.parse_args()
  logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
  compilation_cache.enable()
  bench = Workbench(gsd_groups.get_config(), args.runs)
  draw_top1(bench, args.images / "gsd_top1.png")
  rows = {name: setting for name, setting in GRID.items() if not args.decoded or bench.is_decoded(setting)}
  draw_grid(bench, rows, args.images / "gsd_grid.png")


if __name__ == "__main__":
  main()
