"""Scales of an image that is drawn from coarse to fine (VAR, arXiv 2404.02905): positions, and changes of resolution.

Scale k is a square of ``sides[k]^2`` tokens. All scales of an image are one row of tokens, scale after scale, raster order
inside each. Changes of resolution are linear and act on rows and columns alike, so each is one small matrix:

1. area: the mean of the pixels that an output pixel covers, in whole or in part;
2. bicubic: Keys' kernel with a = -0.75, half-pixel centres, the border repeated, no smoothing before a reduction.

`jax.image.resize` has another kernel (a = -0.5) and renormalises it at the border.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.core.types import Array

_KEYS_A = -0.75

# Published lists, by the side of the images in pixels; 16 pixels make a token of the last scale.
PUBLISHED_SIDES = {
  256: (1, 2, 3, 4, 5, 6, 8, 10, 13, 16),
  512: (1, 2, 3, 4, 6, 9, 13, 18, 24, 32),
}


def check_sides(sides: tuple[int, ...]) -> None:
  """Raises a ValueError unless ``sides`` are at least two integers that grow from 1 on."""
  fits = len(sides) > 1 and all(type(side) is int for side in sides) and sides[0] == 1
  if not fits or any(a >= b for a, b in zip(sides, sides[1:])):
    raise ValueError(f"Must have sides of at least two scales that grow from 1 on, we instead got {sides}")


@functools.cache
def starts(sides: tuple[int, ...]) -> tuple[int, ...]:
  """Position of the first token of every scale, and the number of all tokens at the end: ``K + 1`` numbers."""
  return (0, *np.cumsum(np.square(sides)).tolist())


def scale_of_position(sides: tuple[int, ...]) -> np.ndarray:
  """``[L]`` int32, the scale of every token."""
  return np.repeat(np.arange(len(sides), dtype=np.int32), np.square(sides))


@functools.cache
def area_matrix(size: int, side: int) -> np.ndarray:
  """``[side, size]`` float32: means over ``size`` pixels that make ``side`` of them; windows overlap where they must."""
  matrix = np.zeros((side, size), np.float32)
  for i in range(side):
    first, end = i * size // side, -(-(i + 1) * size // side)
    matrix[i, first:end] = 1 / (end - first)
  return matrix


@functools.cache
def bicubic_matrix(side: int, size: int) -> np.ndarray:
  """``[size, side]`` float32: ``side`` pixels enlarged to ``size``."""
  matrix = np.zeros((size, side))
  for i in range(size):
    centre = (i + 0.5) * side / size - 0.5
    first = int(np.floor(centre)) - 1
    for tap in range(first, first + 4):
      matrix[i, min(max(tap, 0), side - 1)] += _keys(abs(centre - tap))
  return matrix.astype(np.float32)


def _keys(distance: float) -> float:
  if distance <= 1:
    return ((_KEYS_A + 2) * distance - (_KEYS_A + 3)) * distance**2 + 1
  return ((distance - 5) * distance + 8) * distance * _KEYS_A - 4 * _KEYS_A if distance < 2 else 0.0


def resize(x: Array, matrix: np.ndarray) -> Array:
  """``x [B, n, n, C]`` float32 with ``matrix [m, n]`` along rows and columns: ``[B, m, m, C]``, in full precision."""
  precise = functools.partial(jnp.einsum, precision=jax.lax.Precision.HIGHEST)
  return precise("pw,bhwc->bhpc", matrix, precise("oh,bhwc->bowc", matrix, x))


@functools.cache
def phi_of_scale(num_scales: int, num_phis: int) -> tuple[int, ...]:
  """Which of the convolutions that scales share belongs to each scale: the one whose tick is nearest.

  Ticks are evenly spaced in [0, 1], and scale k is at ``k / (K - 1)``. With 10 scales and 4 convolutions two scales are
  halfway between ticks. Rounding decides then, so this is the official formula in the official float64 operations.
  """
  margin = 1 / 3 / num_phis if num_phis == 4 else 1 / 2 / num_phis
  ticks = np.linspace(margin, 1 - margin, num_phis)
  return tuple(int(np.argmin(np.abs(ticks - k / (num_scales - 1)))) for k in range(num_scales))
