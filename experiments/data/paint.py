"""Emoji on coloured backgrounds: the images have alpha, so a drawing can be shown on any background and at any size."""

from __future__ import annotations

from collections.abc import Sequence
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
SCALES: dict[str, float] = {"normal": 1.0, "small": 0.6}

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


def random_paintings(
  generator: np.random.Generator,
  num: int,
  *,
  white_fraction: float = 0.5,
  small_fraction: float = 0.25,
  max_offset: int = 6,
) -> Painting:
  """Independent random attributes: white or one of the other colours, and a size.

  Args:
    generator: source of randomness; advanced.
    num: how many images.
    white_fraction: probability of a white background; the rest is uniform over the other colours.
    small_fraction: probability of a small image.
    max_offset: small images move by up to so many pixels from the centre.
  """
  white = generator.random(num) < white_fraction
  others = np.delete(np.arange(len(BACKGROUND_NAMES)), WHITE)
  background = np.where(white, WHITE, generator.choice(others, num))
  small = generator.random(num) < small_fraction
  offset = generator.integers(-max_offset, max_offset + 1, (num, 2)) * small[:, None]
  return Painting(background, small, offset)


def draw(rgba: np.ndarray, painting: Painting) -> np.ndarray:
  """Paints ``[M, H, W, 4]`` uint8 images; returns ``[M, H, W, 3]`` uint8."""
  placed = rgba.copy()
  for i in np.flatnonzero(painting.small):
    placed[i] = place(rgba[i], SCALES["small"], tuple(int(x) for x in painting.offset[i]))
  return composite(placed, _COLOURS[painting.background])


def place(rgba: np.ndarray, scale: str | float = "normal", offset: tuple[int, int] = (0, 0)) -> np.ndarray:
  """Shrinks an image and puts it on an empty canvas of the same size.

  Args:
    rgba: ``[H, W, 4]`` uint8, straight alpha.
    scale: a name in ``SCALES`` or a factor in (0, 1].
    offset: (down, right) in pixels from the centre.

  Returns:
    ``[H, W, 4]`` uint8; the input itself if there is nothing to do.

  Raises:
    ValueError: unknown scale, or the offset moves the shrunken image off the canvas.
  """
  _check_rgba(rgba)
  factor = _scale_factor(scale)
  height, width = rgba.shape[:2]
  new_height, new_width = round(height * factor), round(width * factor)
  top, left = (height - new_height) // 2 + offset[0], (width - new_width) // 2 + offset[1]
  if not (0 <= top <= height - new_height and 0 <= left <= width - new_width):
    raise ValueError(
      f"offset must keep the {new_height}x{new_width} image on the {height}x{width} canvas, we instead got {offset}"
    )
  if factor == 1.0:
    return rgba
  # Pillow premultiplies RGBA before filtering, so invisible pixels do not bleed into the edges.
  small = Image.fromarray(rgba).resize((new_width, new_height), Image.Resampling.LANCZOS)
  canvas = np.zeros_like(rgba)
  canvas[top : top + new_height, left : left + new_width] = np.asarray(small)
  return canvas


def composite(rgba: np.ndarray, background: str | Sequence[int] | np.ndarray) -> np.ndarray:
  """Paints images over a flat background, rounding to the nearest integer.

  Args:
    rgba: ``[..., H, W, 4]`` uint8, straight alpha.
    background: a name in ``BACKGROUNDS``, or RGB values of shape ``[3]`` or ``[..., 3]`` (one colour per image).

  Returns:
    ``[..., H, W, 3]`` uint8.
  """
  if isinstance(background, str):
    if background not in BACKGROUNDS:
      raise ValueError(f"background must be one of {BACKGROUND_NAMES}, we instead got {background!r}")
    background = BACKGROUNDS[background]
  colour = np.asarray(background)
  if colour.shape[-1:] != (3,) or (colour < 0).any() or (colour > 255).any():
    raise ValueError(f"background must be a name or RGB values in 0..255, we instead got {background!r}")
  colour = colour.astype(np.uint16)[..., None, None, :]
  alpha = rgba[..., 3:].astype(np.uint16)
  return ((rgba[..., :3] * alpha + colour * (255 - alpha) + 127) // 255).astype(np.uint8)


def _scale_factor(scale: str | float) -> float:
  if isinstance(scale, str):
    if scale not in SCALES:
      raise ValueError(f"scale must be one of {tuple(SCALES)} or a factor, we instead got {scale!r}")
    return SCALES[scale]
  if not 0 < scale <= 1:
    raise ValueError(f"scale must be in (0, 1], we instead got {scale}")
  return float(scale)


def _check_rgba(rgba: np.ndarray) -> None:
  if rgba.ndim != 3 or rgba.shape[2] != 4 or rgba.dtype != np.uint8:
    raise ValueError(f"rgba must be [H, W, 4] uint8, we instead got {rgba.shape} {rgba.dtype}")
