"""A contact sheet of 64 generated images with their prompts, half of them held-out combinations.

    python -m experiments.figures.contact_sheet

Upper half: captions with combinations of training. Lower half: captions with held-out combinations. Captions of incorrect
images begin with "wrong:".

Images are not selected: prompts are drawn with a fixed seed, one sample each, by the bundle's default method.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import click
import jax
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from experiments.figures.style import IMAGES, wrapped
from jaxspec.core.command_line import PATH, script
from jaxspec.core.options import values_of
from jaxspec.evaluation import scenes
from jaxspec.evaluation.scenes import IMAGE_SIZE
from jaxspec.run.loading import load_pipeline

COLUMNS, TILE, CAPTION = 8, 128, 56


class Half(NamedTuple):
  """Half of a sheet."""

  title: str
  prompts: list[str]


def scene_prompts(seed: int, count: int = 64) -> tuple[Half, Half]:
  """Half captions with combinations of training, half with held-out ones."""
  captions = lambda split: [scenes.draw_scene(seed, number, split)[0] for number in range(count // 2)]
  return Half("combinations of training", captions("validation")), Half("held-out combinations", captions("held_out"))


def draw_sheet(images: np.ndarray, halves: tuple[Half, Half], is_right: np.ndarray) -> Image.Image:
  """The sheet of ``[M, H, W, 3]`` uint8 images; prompts of incorrect ones are marked."""
  prompts = halves[0].prompts + halves[1].prompts
  titles = {0: halves[0].title, len(halves[0].prompts): halves[1].title}
  tile, font = TILE, ImageFont.load_default(11)
  cell_w, cell_h = tile + 16, tile + CAPTION + 12
  rows = -(-len(prompts) // COLUMNS)
  header = 26
  sheet = Image.new("RGB", (COLUMNS * cell_w + 8, rows * cell_h + 2 * header + 8), "white")
  pen, title, top = ImageDraw.Draw(sheet), ImageFont.load_default(14), 4
  for index, (prompt, pixels) in enumerate(zip(prompts, images, strict=True)):
    row, column = divmod(index, COLUMNS)
    if index in titles:
      pen.text((12, top + row * cell_h + 4), titles[index], fill="#333333", font=title)
      top += header
    x, y = 8 + column * cell_w, top + row * cell_h
    sheet.paste(Image.fromarray(pixels).resize((tile, tile), Image.Resampling.LANCZOS), (x + 4, y))
    pen.rectangle((x + 3, y - 1, x + 4 + tile, y + tile), outline="#d8d8d8")
    is_wrong = not is_right[index]
    text = wrapped(f"wrong: {prompt}" if is_wrong else prompt, 24, 4)
    pen.multiline_text((x + 4, y + tile + 3), text, fill="#a02020" if is_wrong else "#222222", font=font, spacing=2)
  return sheet


@script(__doc__)
@click.option("--bundle", default="scenes", help="Bundle that draws the images.")
@click.option("--seed", default=0, help="Seed of prompts and images.")
@click.option("--batch", default=16, help="Images decoded together.")
@click.option("--out", type=PATH, default=IMAGES / "contact_sheet_scenes.jpg", help="Picture to write.")
def main(bundle: str, seed: int, batch: int, out: Path) -> None:
  pipeline, halves = load_pipeline(bundle), scene_prompts(seed)
  if (size := getattr(getattr(pipeline.family, "tokenizer", None), "config", None)) is None or size.image_size != IMAGE_SIZE:
    raise ValueError(f"Must have a bundle that draws captions of scenes, we instead got {bundle}")
  prompts = halves[0].prompts + halves[1].prompts
  keys = jax.random.split(jax.random.key(seed), len(prompts))
  parts = []
  for start in range(0, len(prompts), batch):
    chosen = slice(start, start + batch)
    parts.append(pipeline(prompts[chosen], key=keys[chosen]))
  images = np.concatenate([part.images for part in parts])
  settings = {"method": parts[0].method.name} | values_of(parts[0].method) | values_of(parts[0].sampling)
  figures = {"images": len(prompts), "settings": settings}
  drafted, accepted = (sum(int(getattr(part.counters, name).sum()) for part in parts) for name in ("drafted", "accepted"))
  if drafted:
    figures["acceptance"] = accepted / drafted
  is_right = np.array([held["right"] for held in scenes.score_images(prompts, images).held])
  figures["right"] = int(is_right.sum())
  out.parent.mkdir(parents=True, exist_ok=True)
  draw_sheet(images, halves, is_right).save(out, quality=88, optimize=True)
  print(json.dumps(figures))


if __name__ == "__main__":
  main()
