"""Reads the material and the light of backgrounds, by the brightness of their blocks.

1. A block of 2 x 2 pixels belongs to the background if its hue is the background's and its brightness not too far off.
2. A background is flat if the median deviation of its brightness is at most ``ROUGHNESS``.
3. The light of a textured one is a least-squares fit of products of cosines, up to order 2 along each axis.
4. Differences of the rest over 6 pixels tell its material. Wood differs far more along rows than along columns, water the
   other way. Cloth is a sum of a field that is nearly constant along columns and one along rows, so the difference of its
   differences along both axes is small; for marble, whose covariance is a product over the axes, it is not.
"""

from __future__ import annotations

import functools

import numpy as np

from jaxspec.evaluation.scenes.world import FLAT, IMAGE_SIZE

BLOCK = 2  # pixels
HUE = 14.0  # largest RGB distance of a block from its own gray version, both minus the background
BRIGHTNESS = 45.0  # largest distance in brightness from the background
ROUGHNESS = 2.0  # of 255; flat backgrounds of decoded images stay below 1, textured ones above 3
STREAKS = 0.85  # logarithm of the ratio of mean squared differences from which a material has a direction
WEAVE = 0.57  # mixed mean square, relative to that of a product covariance, below which one without a direction is cloth
_LAG = 3  # blocks
_ORDERS = 3  # of cosines


def read_materials(pixels: np.ndarray, colours: np.ndarray) -> tuple[list[str], np.ndarray]:
  """Materials and light of images.

  Args:
    pixels: ``[B, 96, 96, 3]`` float32 of 255.
    colours: ``[B, 3]`` of the backgrounds.
  Returns:
    B names in ``MATERIALS``, and the brightness ``[B, 96, 96]`` float32 that the light adds; 0 for flat backgrounds.
  """
  side = IMAGE_SIZE // BLOCK
  blocks = pixels.reshape(-1, side, BLOCK, side, BLOCK, 3).mean((2, 4)) - colours[:, None, None]
  brightness = blocks.mean(-1)  # [B, 48, 48]
  hue = ((blocks - brightness[..., None]) ** 2).sum(-1)
  behind = (hue < HUE**2) & (np.abs(brightness) < BRIGHTNESS)
  rough = np.array([_is_rough(values[chosen]) for values, chosen in zip(brightness, behind, strict=True)], bool)
  factors = _fit(brightness[rough], behind[rough])
  light = np.zeros(pixels.shape[:3], np.float32)
  light[rough] = np.tensordot(factors, _cosines(IMAGE_SIZE), (1, 2))
  rest = brightness[rough] - np.tensordot(factors, _cosines(side), (1, 2))
  found = iter([_material(values, _inner(chosen)) for values, chosen in zip(rest, behind[rough], strict=True)])
  return [next(found) if textured else FLAT for textured in rough], light


def _is_rough(brightness: np.ndarray) -> bool:
  """Whether the brightness ``[M]`` of blocks of the background varies as that of a texture."""
  return bool(len(brightness)) and float(np.median(np.abs(brightness - np.median(brightness)))) > ROUGHNESS


def _fit(brightness: np.ndarray, behind: np.ndarray) -> np.ndarray:
  """Factors ``[B, 9]`` of `_cosines` for the brightness ``[B, 48, 48]`` of the blocks that are ``behind``."""
  waves = _cosines(brightness.shape[1]).reshape(-1, _ORDERS**2)
  chosen = behind.reshape(len(behind), waves.shape[0]).astype(np.float32)
  products = chosen @ (waves[:, :, None] * waves[:, None, :]).reshape(len(waves), -1)
  small = 1e-3 * np.eye(_ORDERS**2, dtype=np.float32)  # where hardly a block is behind
  left = products.reshape(-1, _ORDERS**2, _ORDERS**2) + small
  right = (chosen * brightness.reshape(chosen.shape)) @ waves
  return np.linalg.solve(left, right[..., None])[..., 0]


@functools.cache
def _cosines(side: int) -> np.ndarray:
  """``[side, side, 9]`` float32 products of cosines, sampled at the centres of cells."""
  centres = (np.arange(side) + 0.5) / side
  waves = np.cos(np.pi * np.arange(_ORDERS) * centres[:, None])  # [side, 3]
  return (waves[:, None, :, None] * waves[None, :, None, :]).reshape(side, side, -1).astype(np.float32)


def _inner(behind: np.ndarray) -> np.ndarray:
  """``behind`` without blocks next to others, which the edges of objects reach; ``[48, 48]`` bool both."""
  padded = np.pad(behind, 1, constant_values=True)
  side = len(behind)
  near = [padded[down : down + side, right : right + side] for down in range(3) for right in range(3)]
  return np.logical_and.reduce(near)


def _material(rest: np.ndarray, behind: np.ndarray) -> str:
  """The material of a brightness ``[48, 48]`` without light, of the blocks that are ``behind``."""
  down, right = rest[:-_LAG] - rest[_LAG:], rest[:, :-_LAG] - rest[:, _LAG:]
  two_down, two_right = behind[:-_LAG] & behind[_LAG:], behind[:, :-_LAG] & behind[:, _LAG:]
  mixed, four = down[:, :-_LAG] - down[:, _LAG:], two_down[:, :-_LAG] & two_down[:, _LAG:]
  variance, by_rows, by_columns, by_both = (
    float((values**2)[chosen].mean()) + 1e-6 if chosen.any() else 1.0
    for values, chosen in ((rest, behind), (down, two_down), (right, two_right), (mixed, four))
  )
  direction = np.log(by_columns / by_rows)
  if abs(direction) >= STREAKS:
    return "wood" if direction > 0 else "water"
  return "cloth" if by_both * variance < WEAVE * by_rows * by_columns else "marble"
