"""A contact sheet of 64 generated pictures with their prompts, half of them combinations that training never saw.

Command::

    python -m experiments.contact_sheet --out docs/images/contact_sheet.jpg

Upper half: drawings of training concepts, named with style and attributes. Lower half: labels of the families that were
held out altogether (``val_concept``) and drawings whose style was held out (``val_style``). All are of the groups that
training saw most (the ``focus`` of ``experiments.train_generator``). No picture is chosen by hand: prompts are drawn with
a fixed seed, one sample each, by speculative decoding with the bundle's draft and defaults.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import jax
import numpy as np
from PIL import Image, ImageDraw, ImageFont

import jaxspec
from experiments.train_generator import GeneratorRun, in_focus
from jaxspec import rng
from jaxspec.bundle import load_bundle
from jaxspec.data.emoji import STYLES, load_emoji
from jaxspec.data.prompts import canonical_prompt
from jaxspec.decode.assemble import assemble
from jaxspec.decode.state import summarize
from jaxspec.models.tokenizer_fns import to_uint8

COLUMNS, SCALE, CAPTION = 8, 2, 30
BACKGROUNDS = ("white", "white", "white", "blue", "yellow", "pink", "green")


def choose_prompts(seed: int, count: int = 64) -> list[tuple[str, str]]:
  """``(split, prompt)`` pairs: half training pictures, a quarter each unseen concept and unseen style."""
  emoji, generator = load_emoji(), np.random.default_rng(seed)
  pairs = []
  for split, number in (("train", count // 2), ("val_concept", count // 4), ("val_style", count // 4)):
    focused = [i for i in emoji.indices(split) if in_focus(emoji.emoji[emoji.concept[i]], GeneratorRun.focus)]
    for picture in generator.permutation(focused)[:number]:
      background = BACKGROUNDS[generator.integers(len(BACKGROUNDS))]
      small = bool(generator.random() < 0.15)
      label = emoji.emoji[emoji.concept[picture]]
      pairs.append((split, canonical_prompt(label, STYLES[emoji.style[picture]], background, small)))
  return pairs


def wrap(text: str, width: int = 24) -> list[str]:
  """At most two lines of ``width`` characters."""
  lines = [""]
  for word in text.split():
    if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
      lines.append("")
    lines[-1] = f"{lines[-1]} {word}".strip()
  return lines[:2] if len(lines) <= 2 else [lines[0], lines[1][: width - 1] + "…"]


def draw_sheet(images: np.ndarray, pairs: list[tuple[str, str]]) -> Image.Image:
  """The sheet of ``[M, 64, 64, 3]`` uint8 pictures."""
  tile, font = 64 * SCALE, ImageFont.load_default(11)
  cell_w, cell_h = tile + 16, tile + CAPTION + 12
  rows = -(-len(pairs) // COLUMNS)
  header = 26
  sheet = Image.new("RGB", (COLUMNS * cell_w + 8, rows * cell_h + 2 * header + 8), "white")
  pen, title, top = ImageDraw.Draw(sheet), ImageFont.load_default(14), 4
  for index, ((split, prompt), pixels) in enumerate(zip(pairs, images, strict=True)):
    row, column = divmod(index, COLUMNS)
    if index in (0, len(pairs) // 2):
      text = "training concepts" if index == 0 else "held out: unseen concepts, then unseen concept-style combinations"
      pen.text((12, top + row * cell_h + 4), text, fill="#333333", font=title)
      top += header
    x, y = 8 + column * cell_w, top + row * cell_h
    sheet.paste(Image.fromarray(pixels).resize((tile, tile), Image.Resampling.LANCZOS), (x + 4, y))
    pen.rectangle((x + 3, y - 1, x + 4 + tile, y + tile), outline="#d8d8d8")
    for line, words in enumerate(wrap(prompt)):
      pen.text((x + 4, y + tile + 3 + 13 * line), words, fill="#222222", font=font)
  return sheet


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--checkpoint", default="checkpoints/emoji64")
  parser.add_argument("--seed", type=int, default=0)
  parser.add_argument("--batch", type=int, default=16)
  parser.add_argument("--out", type=Path, default=Path("docs/images/contact_sheet.jpg"))
  args = parser.parse_args()
  bundle, pairs = load_bundle(args.checkpoint), choose_prompts(args.seed)
  defaults = bundle.defaults
  draft = bundle.drafts[defaults["draft"]]
  settings = {k: defaults[k] for k in ("method", "gamma", "cfg_scale", "top_k", "top_p", "temperature")}
  params, drafter, verifier = assemble(
    bundle.target.fns, bundle.target.params, draft.fns, draft.params, draft_guidance=draft.meta["guided"], **settings
  )
  keys = rng.row_keys(jax.random.key(args.seed), len(pairs))
  decode = jax.jit(bundle.tokenizer.fns.decode)
  images, counts = [], []
  for start in range(0, len(pairs), args.batch):
    chosen = slice(start, start + args.batch)
    out = jaxspec.speculate(
      params, keys[chosen], bundle.caption([prompt for _, prompt in pairs[chosen]]), drafter=drafter,
      verifier=verifier, max_len=bundle.target.config.num_tokens,
    )  # fmt: skip
    images.append(np.asarray(to_uint8(decode(bundle.tokenizer.params, out.tokens))))
    counts.append(summarize(out.counters))
  args.out.parent.mkdir(parents=True, exist_ok=True)
  draw_sheet(np.concatenate(images), pairs).save(args.out, quality=88, optimize=True)
  accepted, drafted = (sum(c[k] for c in counts) for k in ("accepted", "drafted"))
  print(json.dumps({"pictures": len(pairs), "acceptance": accepted / drafted, "settings": settings}))


if __name__ == "__main__":
  main()
