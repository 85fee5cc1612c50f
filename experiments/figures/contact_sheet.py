"""A contact sheet of 64 generated images with their prompts, half of them combinations that training never saw.

    python -m experiments.figures.contact_sheet

Upper half: drawings of training concepts, named with style and attributes. Lower half: labels of the families that were
held out altogether (``val_concept``) and drawings whose style was held out (``val_style``). All are of the groups that
training saw most (the ``focus`` of `experiments.train.generator`). No image is chosen by hand: prompts are drawn with a
fixed seed, one sample each, by the bundle's default method.
"""

from __future__ import annotations

import json
from pathlib import Path

import jax
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from experiments.figures.style import IMAGES, parser, wrapped
from experiments.train.generator import GeneratorRun, in_focus
from jaxspec.data.emoji import STYLES, load_emoji
from jaxspec.data.prompts import canonical_prompt
from jaxspec.options import values_of
from jaxspec.pipeline import load_pipeline

COLUMNS, SCALE, CAPTION = 8, 2, 30
BACKGROUNDS = ("white", "white", "white", "blue", "yellow", "pink", "green")


def choose_prompts(seed: int, count: int = 64) -> list[str]:
  """Half training images, a quarter each unseen concepts and unseen styles."""
  emoji, generator = load_emoji(), np.random.default_rng(seed)
  prompts = []
  for split, number in (("train", count // 2), ("val_concept", count // 4), ("val_style", count // 4)):
    focused = [i for i in emoji.indices(split) if in_focus(emoji.emoji[emoji.concept[i]], GeneratorRun.focus)]
    for image in generator.permutation(focused)[:number]:
      background = BACKGROUNDS[generator.integers(len(BACKGROUNDS))]
      small = bool(generator.random() < 0.15)
      label = emoji.emoji[emoji.concept[image]]
      prompts.append(canonical_prompt(label, STYLES[emoji.style[image]], background, small))
  return prompts


def draw_sheet(images: np.ndarray, prompts: list[str]) -> Image.Image:
  """The sheet of ``[M, 64, 64, 3]`` uint8 images."""
  tile, font = 64 * SCALE, ImageFont.load_default(11)
  cell_w, cell_h = tile + 16, tile + CAPTION + 12
  rows = -(-len(prompts) // COLUMNS)
  header = 26
  sheet = Image.new("RGB", (COLUMNS * cell_w + 8, rows * cell_h + 2 * header + 8), "white")
  pen, title, top = ImageDraw.Draw(sheet), ImageFont.load_default(14), 4
  for index, (prompt, pixels) in enumerate(zip(prompts, images, strict=True)):
    row, column = divmod(index, COLUMNS)
    if index in (0, len(prompts) // 2):
      text = "training concepts" if index == 0 else "held out: unseen concepts, then unseen concept-style combinations"
      pen.text((12, top + row * cell_h + 4), text, fill="#333333", font=title)
      top += header
    x, y = 8 + column * cell_w, top + row * cell_h
    sheet.paste(Image.fromarray(pixels).resize((tile, tile), Image.Resampling.LANCZOS), (x + 4, y))
    pen.rectangle((x + 3, y - 1, x + 4 + tile, y + tile), outline="#d8d8d8")
    pen.multiline_text((x + 4, y + tile + 3), wrapped(prompt, 24, 2), fill="#222222", font=font, spacing=2)
  return sheet


def main() -> None:
  arguments = parser(__doc__)
  arguments.add_argument("--bundle", default="emoji64")
  arguments.add_argument("--seed", type=int, default=0)
  arguments.add_argument("--batch", type=int, default=16)
  arguments.add_argument("--out", type=Path, default=IMAGES / "contact_sheet.jpg")
  args = arguments.parse_args()
  pipeline, prompts = load_pipeline(args.bundle), choose_prompts(args.seed)
  keys = jax.random.split(jax.random.key(args.seed), len(prompts))
  parts = []
  for start in range(0, len(prompts), args.batch):
    chosen = slice(start, start + args.batch)
    parts.append(pipeline(prompts[chosen], key=keys[chosen]))
  args.out.parent.mkdir(parents=True, exist_ok=True)
  draw_sheet(np.concatenate([part.images for part in parts]), prompts).save(args.out, quality=88, optimize=True)
  accepted, drafted = (sum(int(getattr(part.counters, name).sum()) for part in parts) for name in ("accepted", "drafted"))
  settings = {"method": parts[0].method.name} | values_of(parts[0].method) | values_of(parts[0].sampling)
  print(json.dumps({"images": len(prompts), "acceptance": accepted / drafted, "settings": settings}))


if __name__ == "__main__":
  main()
