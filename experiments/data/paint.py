"""Emoji on coloured backgrounds: alpha makes any background and any size possible."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from PIL import Image

# Flat, not fully saturated, at least 65 apart in RGB so that a lossy decoder does not confuse them.
BACKGROUNDS: dict[str, tuple[int, int, int]] = {
  "white": (255, 255, 255),
  "blue": (90, 150, 225),
  "red": (210, 80, 85),
  "green": (120, 190, 115),
  "yellow": (250, 222, 100),
  "pink": (245, 175, 200),
  "purple": (146, 104, 205),
  "orange": (240, 150, 70),
  "gray": (160, 164, 160),
  "black": (40, 40, 44),
}
SMALL = 0.6  # side of a small drawing, as a share of the image
MAX_OFFSET = 6  # pixels that a small drawing moves from the centre
WHITE_FRACTION, SMALL_FRACTION = 0.5, 0.25  # of random paintings

BACKGROUND_NAMES = tuple(BACKGROUNDS)
WHITE = BACKGROUND_NAMES.index("white")
_COLOURS = np.array([BACKGROUNDS[name] for name in BACKGROUND_NAMES], np.uint8)


class Painting(NamedTuple):
  """Attributes of some images."""

  background: np.ndarray  # [M] int, index into BACKGROUND_NAMES
  small: np.ndarray  # [M] bool
  offset: np.ndarray  # [M, 2] int pixels (down, right); 0 where not small

  @classmethod
  def plain(cls, num: int) -> Painting:
    """On white, at normal size."""
    return cls(np.full(num, WHITE), np.zeros(num, bool), np.zeros((num, 2), int))


def random_paintings(generator: np.random.Generator, num: int) -> Painting:
  """Independent random attributes of ``num`` images: half are white, the others uniform over the other colours; a quarter
  is small and moved. ``generator`` is advanced.
  """
  white = generator.random(num) < WHITE_FRACTION
  others = np.delete(np.arange(len(BACKGROUND_NAMES)), WHITE)
  background = np.where(white, WHITE, generator.choice(others, num))
  small = generator.random(num) < SMALL_FRACTION
  offset = generator.integers(-MAX_OFFSET, MAX_OFFSET + 1, (num, 2)) * small[:, None]
  return Painting(background, small, offset)


def draw(rgba: np.ndarray, painting: Painting) -> np.ndarray:
  """Paints ``[M, H, W, 4]`` uint8 images; returns ``[M, H, W, 3]`` uint8."""
  placed = rgba.copy()
  for i in np.flatnonzero(painting.small):
    placed[i] = shrink(rgba[i], tuple(int(x) for x in painting.offset[i]))
  return composite(placed, _COLOURS[painting.background])


def shrink(rgba: np.ndarray, offset: tuple[int, int] = (0, 0)) -> np.ndarray:
  """The image, shrunk, on an empty canvas of its old size.

  Args:
    rgba: ``[H, W, 4]`` uint8, straight alpha.
    offset: (down, right) in pixels from the centre.

  Returns:
    ``[H, W, 4]`` uint8.

  Raises:
    ValueError: if the offset moves the image off the canvas.
  """
  height, width = rgba.shape[:2]
  new_height, new_width = round(height * SMALL), round(width * SMALL)
  top, left = (height - new_height) // 2 + offset[0], (width - new_width) // 2 + offset[1]
  if not (0 <= top <= height - new_height and 0 <= left <= width - new_width):
    raise ValueError(
      f"offset must keep the {new_height}x{new_width} image on the {height}x{width} canvas, we instead got {offset}"
    )
  # Pillow premultiplies RGBA before filtering, so invisible pixels do not bleed into the edges.
  small = Image.fromarray(rgba).resize((new_width, new_height), Image.Resampling.LANCZOS)
  canvas = np.zeros_like(rgba)
  canvas[top : top + new_height, left : left + new_width] = np.asarray(small)
  return canvas


def composite(rgba: np.ndarray, colours: np.ndarray) -> np.ndarray:
  """Paints images over flat backgrounds, rounding to the nearest integer.

  Args:
    rgba: ``[M, H, W, 4]`` uint8, straight alpha.
    colours: ``[M, 3]`` uint8, RGB, one for each image.

  Returns:
    ``[M, H, W, 3]`` uint8.
  """
  colours = colours.astype(np.uint16)[:, None, None]
  alpha = rgba[..., 3:].astype(np.uint16)
  return ((rgba[..., :3] * alpha + colours * (255 - alpha) + 127) // 255).astype(np.uint8)
