"""A tiny emoji set in the format of the full one: meaningless drawings with real names."""

from pathlib import Path

import numpy as np
from PIL import Image

from experiments.data import pack_emoji

ROWS = [
  ("1f34e", "red apple", ["fruit"], "Food & Drink", "food-fruit", "red apple", [0, 0, -1]),
  ("1f600", "grinning face", [], "Smileys & Emotion", "face-smiling", "grinning face", [-1, -1, 2]),
  ("1f601", "beaming face", [], "Smileys & Emotion", "face-smiling", "beaming face", [0, -1, 1]),
]
IMAGES = (
  "noto/1f34e.webp", "twemoji/1f34e.webp", "fluent/1f600.webp", "noto/1f601.webp", "fluent/1f601.webp",
)  # fmt: skip


def image(seed: int) -> Image.Image:
  """64 x 64 pixels, half of them invisible."""
  return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (64, 64, 4), np.uint8) // 128 * 255, "RGBA")


def pack(path: Path) -> Path:
  """Writes the set; returns its folder."""
  pack_emoji.write({name: pack_emoji.encode(image(seed)) for seed, name in enumerate(IMAGES)}, ROWS, path)
  return path
