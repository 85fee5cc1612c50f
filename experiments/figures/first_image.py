"""The picture of the first page: four prompts, the origin of each token, and calls and time against plain decoding.

    python -m experiments.figures.first_image

The images are those of ``jaxspec generate PROMPTS --seed SEED``. Prompts and seed are chosen by hand, for correct images;
the model card has the share of correct images. Each prompt is decoded alone, by the bundle's default method and plainly in
turns. The figures of the picture are printed as JSON. Run it on an idle machine.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any, NamedTuple

import click
import jax
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from experiments.figures.style import BLUE, GREEN, IMAGES, ORANGE
from jaxspec.core import rng
from jaxspec.core.command_line import PATH, script
from jaxspec.core.state import Origin
from jaxspec.methods import Plain
from jaxspec.run import measure
from jaxspec.run.loading import load_pipeline
from jaxspec.run.pipeline import Pipeline

PROMPTS = ("a red heart", "a cat on a blue background", "a panda", "a house and a tree")
SEED = 23
# Pixels of the file, shown at half of its size. A panel has 12 x 12 tokens.
WIDTH, MARGIN, GAP, PANEL = 1800, 48, 56, 384
BAR, NAME, ROOM = 20, 116, 96  # height of a bar, and widths of its name and its number
INK, QUIET, FRAME, PAPER, OWN, PLAIN = "#1f2328", "#59636e", "#d1d9e0", "#ffffff", "#0b5cad", "#b6bec8"
# Colours and labels of the maps, as in ``jaxspec generate --heatmap``.
ORIGINS = {
  Origin.DRAFT: (GREEN, "drafted by the small network, accepted by the large one"),
  Origin.REPLACED: (ORANGE, "replaced by the large one"),
  Origin.BONUS: ("#f0e442", "added by the large one"),
  Origin.FIRST: (BLUE, "first token"),
}


class Column(NamedTuple):
  """One prompt: its image, the origins of its tokens, and ``(ours, plain)`` calls and seconds."""

  prompt: str
  pixels: np.ndarray  # [H, W, 3] uint8
  origin: np.ndarray  # [N] int
  calls: tuple[int, int]
  seconds: tuple[float, float]

  def figures(self) -> dict[str, Any]:
    return {"prompt": self.prompt, "calls": self.calls, "ms": [round(1e3 * each, 1) for each in self.seconds]}


def decode(pipeline: Pipeline, prompt: str, row: int, repeats: int) -> Column:
  """Decodes a prompt as row ``row`` of the command, by the default method and plainly."""
  key = rng.row_keys(jax.random.key(SEED), row + 1)[row:]
  methods = {"ours": None, "plain": Plain()}
  run = {name: functools.partial(pipeline, [prompt], key=key, method=method) for name, method in methods.items()}
  found = {name: call() for name, call in run.items()}
  taken = measure.alternate({name: lambda call=call: call().result for name, call in run.items()}, repeats)
  calls = tuple(int(each.counters.target_calls[0]) for each in found.values())
  seconds = tuple(measure.Timing.of(each).median for each in taken.values())
  ours = found["ours"]
  return Column(prompt, ours.images[0], np.asarray(ours.result.origin[0]), calls, seconds)


@functools.cache
def font(size: int) -> ImageFont.FreeTypeFont:
  """Pillow's built-in font."""
  return ImageFont.load_default(size).font_variant(layout_engine=ImageFont.Layout.BASIC)


def draw_map(pen: ImageDraw.ImageDraw, left: int, top: int, origin: np.ndarray) -> None:
  """A cell for each token, in the order of a raster, with white lines between them."""
  side = round(len(origin) ** 0.5)
  cell = PANEL // side
  for place, each in enumerate(origin.tolist()):
    x, y = left + place % side * cell, top + place // side * cell
    pen.rectangle((x, y, x + cell - 2, y + cell - 2), fill=ORIGINS[Origin(each)][0])


def draw_bars(
  pen: ImageDraw.ImageDraw, left: int, top: int, title: str, values: tuple[float, float], unit: str = ""
) -> None:
  """A title, and a bar each for plain decoding and for ours, with their numbers."""
  pen.text((left, top), title, font=font(26), fill=QUIET)
  longest = PANEL - NAME - ROOM
  for line, (name, value, colour) in enumerate((("plain", values[1], PLAIN), ("jaxspec", values[0], OWN))):
    y = top + 44 + line * 34
    end = left + NAME + round(longest * value / max(values))
    pen.text((left, y + BAR / 2), name, font=font(26), fill=INK, anchor="lm")
    pen.rounded_rectangle((left + NAME, y, end, y + BAR), 4, fill=colour)
    pen.text((end + 12, y + BAR / 2), f"{value:.0f}{unit}", font=font(26), fill=INK, anchor="lm")


def draw_legend(pen: ImageDraw.ImageDraw, top: int, present: list[Origin]) -> None:
  """The colours of the maps, in one line."""
  widths = [44 + font(26).getlength(ORIGINS[origin][1]) for origin in present]
  gap = (WIDTH - 2 * MARGIN - sum(widths)) / max(len(present) - 1, 1)
  left = MARGIN
  for origin, width in zip(present, widths):
    colour, words = ORIGINS[origin]
    pen.rectangle((left, top, left + 28, top + 28), fill=colour, outline=FRAME)
    pen.text((left + 42, top + 14), words, font=font(26), fill=INK, anchor="lm")
    left += width + gap


def draw_picture(columns: list[Column]) -> Image.Image:
  """A column for each prompt: caption, image, map, bars; the legend below, on a white card with round corners."""
  image_top, map_top = 96, 96 + PANEL + 28
  bars_top = map_top + PANEL + 24
  legend_top = bars_top + 2 * 132 + 12
  height = legend_top + 28 + MARGIN - 8
  sheet = Image.new("RGB", (WIDTH, height), PAPER)
  pen = ImageDraw.Draw(sheet)
  for number, column in enumerate(columns):
    left = MARGIN + number * (PANEL + GAP)
    pen.text((left, 36), column.prompt, font=font(31), fill=INK)
    image = Image.fromarray(column.pixels).resize((PANEL, PANEL), Image.Resampling.LANCZOS)
    sheet.paste(image, (left, image_top))
    draw_map(pen, left, map_top, column.origin)
    for top in (image_top, map_top):
      pen.rectangle((left - 1, top - 1, left + PANEL, top + PANEL), outline=FRAME)
    draw_bars(pen, left, bars_top, "calls of the large network", column.calls)
    draw_bars(pen, left, bars_top + 132, "time", tuple(1e3 * each for each in column.seconds), " ms")
  draw_legend(pen, legend_top, [origin for origin in ORIGINS if any((column.origin == origin).any() for column in columns)])
  return sheet


@script(__doc__)
@click.option("--repeats", default=15, help="Timed runs of each method and prompt.")
@click.option("--out", type=PATH, default=IMAGES / "first_image.png", help="Picture to write.")
def main(repeats: int, out: Path) -> None:
  pipeline = load_pipeline("scenes")
  columns = [decode(pipeline, prompt, row, repeats) for row, prompt in enumerate(PROMPTS)]
  out.parent.mkdir(parents=True, exist_ok=True)
  draw_picture(columns).save(out, optimize=True)
  print(json.dumps({"seed": SEED, "columns": [column.figures() for column in columns]}))


if __name__ == "__main__":
  main()
