"""The packed sprites, and the tiles of every look, size and background.

The files in ``jaxspec/evaluation/scenes/sprites/`` are written by ``experiments/data/pack_sprites.py``. Tiles are composited
once and rounded once; the painter copies them and the reader compares with them, so that both use the same pixels.
"""

from __future__ import annotations

import functools
import hashlib
import json
from pathlib import Path

import numpy as np
from PIL import Image

from jaxspec.evaluation.scenes.world import BACKGROUNDS, CELL, COLOURS, GLYPHS, LOOKS, NOUNS, SIZES, STYLES, Look

DEFAULT_PATH = Path(__file__).parent / "sprites"
ATLAS = "sprites.png"
FORMAT_VERSION = 1


def tile_box(noun: str, style: str, size: str) -> tuple[int, int, int, int]:
  """(left, top, right, bottom) of a tile in the atlas, in pixels. Glyphs have one tile per size."""
  side, sizes = SIZES[size] * CELL, list(SIZES)
  left = len(STYLES) * CELL * sum(SIZES[other] for other in sizes[: sizes.index(size)])
  left += (0 if noun in GLYPHS else STYLES.index(style)) * side
  top = NOUNS.index(noun) * max(SIZES.values()) * CELL
  return left, top, left + side, top + side


@functools.lru_cache(maxsize=1)
def load_tiles() -> dict[str, np.ndarray]:
  """Tiles ``[L, G, S, S, 3]`` uint8 by size: looks as in ``LOOKS``, backgrounds as in ``BACKGROUNDS``; read-only.

  Raises:
    ValueError: if a file is missing or damaged.
  """
  atlas = _read_atlas(DEFAULT_PATH)
  backgrounds = np.array(list(BACKGROUNDS.values()), np.float64)
  tiles = {}
  for size, cells in SIZES.items():
    side = cells * CELL
    tiles[size] = np.empty((len(LOOKS), len(backgrounds), side, side, 3), np.uint8)
    for number, look in enumerate(LOOKS):
      rgba = _cut(atlas, look, size).astype(np.float64)
      alpha = rgba[..., 3:] / 255
      colour = rgba[..., :3] if look.colour is None else np.array(COLOURS[look.colour], np.float64)
      painted = colour * alpha + backgrounds[:, None, None, :] * (1 - alpha)
      tiles[size][number] = np.floor(painted + 0.5)
    tiles[size].setflags(write=False)
  return tiles


@functools.lru_cache(maxsize=1)
def load_coverage() -> dict[str, np.ndarray]:
  """Shares ``[L, S, S]`` float32 of each pixel that an object covers, by size: looks as in ``LOOKS``; read-only.

  Raises:
    ValueError: if a file is missing or damaged.
  """
  atlas = _read_atlas(DEFAULT_PATH)
  coverage = {}
  for size in SIZES:
    coverage[size] = np.stack([_cut(atlas, look, size)[..., 3].astype(np.float32) / 255 for look in LOOKS])
    coverage[size].setflags(write=False)
  return coverage


def _cut(atlas: np.ndarray, look: Look, size: str) -> np.ndarray:
  """``[S, S, 4]`` uint8: the tile of a look, straight alpha."""
  left, top, right, bottom = tile_box(look.noun, look.style, size)
  return atlas[top:bottom, left:right]


def _read_atlas(folder: Path) -> np.ndarray:
  """``[H, W, 4]`` uint8, straight alpha."""
  try:
    index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    with Image.open(folder / ATLAS) as image:
      atlas = np.asarray(image.convert("RGBA"))
  except (OSError, ValueError) as error:
    raise ValueError(
      f"{folder}: must hold the packed sprites ({error}); write them with experiments/data/pack_sprites.py"
    ) from error
  found = {name: index.get(name) for name in ("format", "nouns", "styles")} if isinstance(index, dict) else index
  expected = {"format": FORMAT_VERSION, "nouns": list(NOUNS), "styles": list(STYLES)}
  if found != expected:
    raise ValueError(f"{folder / 'index.json'}: must have {expected}, we instead got {found}")
  digest = hashlib.sha256(atlas.tobytes()).hexdigest()
  if digest != index.get("pixels_sha256"):
    raise ValueError(f"{folder / ATLAS}: must have the pixels that index.json says, we instead got sha256 {digest}")
  return atlas
