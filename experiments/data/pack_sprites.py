"""Writes the packed sprites of ``jaxspec.evaluation.scenes`` from the emoji set.

Command: ``python -m experiments.data.pack_sprites [--out jaxspec/evaluation/scenes/sprites]`` (a few seconds), after
``python -m experiments.data.pack_emoji``.

1. Every sprite is cropped to its visible part and resized with premultiplied alpha (Lanczos) so that its longer side leaves
   one pixel on either side of a tile: 30 pixels in a tile of 32, 22 in a tile of 24.
2. Heart and star are the outlines of their Twemoji; circle and square are drawn at eight times the size and reduced. Only
   their alpha is used, the colour is white.
3. Tiles lie in one PNG: a row per noun, the large tiles of all styles first, then the small ones. The same input gives the
   same pixels.

Expected: 28 rows of 168 x 32 pixels, 213 kB.
"""

import hashlib
import json
from pathlib import Path

import click
import numpy as np
from PIL import Image, ImageDraw

from experiments.data.emoji import DEFAULT_PATH as EMOJI_PATH
from experiments.data.emoji import STYLES as EMOJI_STYLES
from experiments.data.emoji import EmojiSet, load_emoji
from jaxspec.core.command_line import PATH, script
from jaxspec.evaluation.scenes.sprites import ATLAS, DEFAULT_PATH, FORMAT_VERSION, tile_box
from jaxspec.evaluation.scenes.world import CELL, GLYPHS, NOUNS, SIZES, SPRITES, STYLES

# Labels of the emoji set that differ from the noun.
LABELS = {
  "cat": "cat face",
  "dog": "dog face",
  "pig": "pig face",
  "fish": "tropical fish",
  "apple": "red apple",
  "tree": "deciduous tree",
  "moon": "crescent moon",
  "car": "automobile",
  "boat": "sailboat",
  "ball": "soccer ball",
  "heart": "red heart",
}
MARGIN = 1  # pixels around a sprite
VISIBLE = 24  # smallest alpha of visible pixels when a sprite is cropped
DRAWN = {"circle": 0.88, "square": 0.88}  # side, as a share of the tile
FINE = 8  # pixels per pixel when a glyph is drawn

ATTRIBUTION = """# Attribution

The sprites in `sprites.png` are made by `experiments/data/pack_sprites.py` out of emoji that
`experiments/data/pack_emoji.py` fetches. Ship this file with the sprites and with weights trained on images that show them.

| columns | style | credit | licence |
|---|---|---|---|
| 1 and 4 | noto | Noto Emoji, Google | Apache-2.0 |
| 2 and 5 | twemoji | Twemoji, Twitter, Inc and other contributors | CC-BY-4.0 |
| 3 and 6 | fluent | Fluent Emoji, Microsoft, distributed by LobeHub | MIT |

- Noto Emoji: Copyright Google. Licensed under the Apache License, Version 2.0, <https://www.apache.org/licenses/LICENSE-2.0>.
  Source: <https://github.com/googlefonts/noto-emoji>.
- Twemoji: Copyright 2020 Twitter, Inc and other contributors. Graphics licensed under CC-BY 4.0,
  <https://creativecommons.org/licenses/by/4.0/>. Source: <https://github.com/jdecked/twemoji>. The outlines of heart and
  star are those of Twemoji.
- Fluent Emoji: Copyright Microsoft Corporation, MIT licence. Source: <https://github.com/microsoft/fluentui-emoji>;
  distributed by LobeHub, <https://github.com/lobehub/fluent-emoji>.
- Changes to all: cropped, resized to 30 and to 22 pixels, stored in one PNG; heart and star recoloured.
"""


def find(emoji: EmojiSet, noun: str, style: str) -> np.ndarray:
  """``[64, 64, 4]`` uint8 drawing of a noun.

  Raises:
    ValueError: if the emoji set has none.
  """
  label = LABELS.get(noun, noun)
  concepts = [number for number, concept in enumerate(emoji.emoji) if concept.label == label]
  found = np.flatnonzero(np.isin(emoji.concept, concepts) & (emoji.style == EMOJI_STYLES.index(style)))
  if len(found) != 1:
    raise ValueError(f"Must have one {style} drawing of {label!r}, we instead got {len(found)}")
  return emoji.rgba[found[0]]


def fit(rgba: np.ndarray, side: int) -> Image.Image:
  """Step 1 of the module docstring: a tile of ``side`` pixels."""
  visible = rgba[..., 3] > VISIBLE
  rows, columns = np.flatnonzero(visible.any(1)), np.flatnonzero(visible.any(0))
  cropped = Image.fromarray(rgba).crop((columns[0], rows[0], columns[-1] + 1, rows[-1] + 1))
  scale = (side - 2 * MARGIN) / max(cropped.size)
  width, height = (max(round(length * scale), 1) for length in cropped.size)
  tile = Image.new("RGBA", (side, side))
  # Pillow premultiplies RGBA before filtering.
  tile.paste(cropped.resize((width, height), Image.Resampling.LANCZOS), ((side - width) // 2, (side - height) // 2))
  return tile


def draw_glyph(noun: str, side: int) -> np.ndarray:
  """``[side, side]`` uint8 alpha of a circle or square."""
  mask = Image.new("L", (side * FINE, side * FINE))
  half = FINE * round(side * DRAWN[noun] / 2)  # whole pixels: the square has sharp edges
  corners = [side * FINE / 2 - half] * 2 + [side * FINE / 2 + half - 1] * 2
  pen = ImageDraw.Draw(mask)
  pen.ellipse(corners, fill=255) if noun == "circle" else pen.rectangle(corners, fill=255)
  return np.asarray(mask.resize((side, side), Image.Resampling.BOX))


def make_tile(emoji: EmojiSet, noun: str, style: str, side: int) -> Image.Image:
  if noun in SPRITES:
    return fit(find(emoji, noun, style), side)
  tile = np.full((side, side, 4), 255, np.uint8)
  tile[..., 3] = draw_glyph(noun, side) if noun in DRAWN else np.asarray(fit(find(emoji, noun, "twemoji"), side))[..., 3]
  return Image.fromarray(tile)


def write(emoji: EmojiSet, out: Path) -> int:
  """Writes the three files and returns the bytes of the atlas."""
  side = max(SIZES.values()) * CELL
  atlas = Image.new("RGBA", (len(STYLES) * sum(SIZES.values()) * CELL, len(NOUNS) * side))
  for noun in NOUNS:
    for size in SIZES:
      for style in SPRITES.get(noun, STYLES[:1]):
        box = tile_box(noun, style, size)
        atlas.paste(make_tile(emoji, noun, style, SIZES[size] * CELL), box[:2])
  pixels = np.array(atlas)
  pixels[pixels[..., 3] == 0] = 0
  out.mkdir(parents=True, exist_ok=True)
  Image.fromarray(pixels).save(out / ATLAS, optimize=True)
  index = {
    "format": FORMAT_VERSION,
    "atlas": ATLAS,
    "pixels_sha256": hashlib.sha256(pixels.tobytes()).hexdigest(),
    "nouns": list(NOUNS),
    "glyphs": list(GLYPHS),
    "styles": list(STYLES),
    "sizes": {size: cells * CELL for size, cells in SIZES.items()},
  }
  (out / "index.json").write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")
  (out / "ATTRIBUTION.md").write_text(ATTRIBUTION, encoding="utf-8")
  return (out / ATLAS).stat().st_size


@script(__doc__)
@click.option("--emoji", type=PATH, default=EMOJI_PATH, help="Folder of the emoji set.")
@click.option("--out", type=PATH, default=DEFAULT_PATH, help="Folder to write.")
def main(emoji: Path, out: Path) -> None:
  print(f"{out}: {len(NOUNS)} nouns, {write(load_emoji(emoji), out) / 1e3:.0f} kB")


if __name__ == "__main__":
  main()
