"""The reader: from pixels back to background and objects, by comparison with the tiles of the painter.

1. Background: the palette colour nearest to most blocks of 4 x 4 pixels. Its material and its light are read from the
   brightness of these blocks, and the light of a textured background is subtracted (`jaxspec.evaluation.scenes.materials`).
2. Every look of both sizes is compared at every position on the grid. The energy of a tile is its squared distance from the
   plain background. The error of a position is the squared distance of the image from the tile; its gain is the error of the
   plain background minus this error.
3. Positions with an error below ``MOST_ERROR`` of the energy are taken in the order of their gain. Those that overlap an
   earlier one are skipped.
4. Blocks of 4 x 4 pixels of a position are wrong if their error is above ``BLOCK_ERROR`` of their energy and above
   ``NOISE``, or their mean is another colour. The object is found if wrong blocks have at most ``LARGEST_LOSS`` of its
   energy: half a cat is no cat.
5. Debris is the wrong blocks of found objects, and blocks elsewhere that differ too much from the background.

On painted images the true tiles have no error, so the reader is exact. The thresholds leave room for the noise of an image
tokenizer. Looks that clash with a background are left out, because the painter never paints them.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from jaxspec.evaluation.scenes.materials import read_materials
from jaxspec.evaluation.scenes.sprites import load_tiles
from jaxspec.evaluation.scenes.world import (
  BACKGROUNDS,
  CELL,
  FLAT,
  GRID,
  IMAGE_SIZE,
  LOOKS,
  SIZES,
  Object,
  clashes,
)

FINE = 2  # pixels: tiles are compared by means of 2 x 2 pixels, which depend less on detail that a tokenizer loses
BLOCK = 4  # pixels
MOST_ERROR = 0.35  # of the energy of a tile
BLOCK_ERROR = 0.6  # of the energy of a block
NOISE = 30.0  # largest root mean square error of a block, in each channel, that is never wrong
BLOCK_COLOUR = 75.0  # RGB distance between the means of block and tile above which the block is wrong
LARGEST_LOSS = 0.1  # of the energy of a tile, in wrong blocks
STRANGE_COLOUR = 55.0  # RGB distance from the background of the mean of a block
STRANGE_PIXELS = 75.0  # the same for the root mean square over the pixels of a block
DEBRIS_LIMIT = 0.01  # share of the pixels

_NAMES = tuple(BACKGROUNDS)
_PALETTE = np.array(list(BACKGROUNDS.values()), np.float32)  # [G, 3]
_CHUNK = 16  # images compared at once


class Reading(NamedTuple):
  """Background and objects of an image.

  Attributes:
    background: a name in ``BACKGROUNDS``.
    objects: those found, by row and column; may be empty.
    debris: share of the pixels explained neither by the background nor by an object.
    material: a name in ``MATERIALS``.
  """

  background: str
  objects: tuple[Object, ...]
  debris: float
  material: str = FLAT

  @property
  def has_debris(self) -> bool:
    """Whether more than ``DEBRIS_LIMIT`` of the pixels are unexplained."""
    return self.debris > DEBRIS_LIMIT


def read(images: np.ndarray) -> list[Reading]:
  """Reads images.

  Args:
    images: ``[B, 96, 96, 3]`` uint8, or float in [-1, 1] as image tokenizers give it.
  Returns:
    One reading per image.
  Raises:
    ValueError: for another shape, or pixels that are not numbers.
  """
  pixels = _to_pixels(images)
  backgrounds = _find_backgrounds(pixels)
  materials, light = read_materials(pixels, _PALETTE[backgrounds])
  pixels = pixels - light[..., None]
  readings: dict[int, Reading] = {}
  for background in np.unique(backgrounds):
    rows = np.flatnonzero(backgrounds == background)
    for start in range(0, len(rows), _CHUNK):
      chunk = rows[start : start + _CHUNK]
      for row, reading in zip(chunk, _read_on(pixels[chunk], int(background)), strict=True):
        readings[int(row)] = reading._replace(material=materials[row])
  return [readings[row] for row in range(len(pixels))]


def _to_pixels(images: np.ndarray) -> np.ndarray:
  """``[B, 96, 96, 3]`` float32 in 0..255."""
  images = np.asarray(images)
  if images.ndim != 4 or images.shape[1:] != (IMAGE_SIZE, IMAGE_SIZE, 3):
    raise ValueError(f"Must have images [B, {IMAGE_SIZE}, {IMAGE_SIZE}, 3], we instead got {images.shape}")
  if images.dtype == np.uint8:
    return images.astype(np.float32)
  if not np.issubdtype(images.dtype, np.floating) or not np.isfinite(images).all():
    raise ValueError(f"Must have uint8 or finite float images, we instead got {images.dtype}")
  return np.clip(127.5 * images.astype(np.float32) + 127.5, 0, 255)


def _find_backgrounds(pixels: np.ndarray) -> np.ndarray:
  """Numbers ``[B]`` of the backgrounds of ``[B, 96, 96, 3]``."""
  means = _means(pixels, BLOCK).reshape(len(pixels), (IMAGE_SIZE // BLOCK) ** 2, 3)
  nearest = ((means[:, :, None] - _PALETTE) ** 2).sum(-1).argmin(-1)  # [B, blocks]
  return (nearest[:, :, None] == np.arange(len(_PALETTE))).sum(1).argmax(-1)


def _means(pixels: np.ndarray, block: int) -> np.ndarray:
  """Means ``[B, H / block, W / block, ...]`` over square blocks of ``[B, H, W, ...]``."""
  batch, height, width = pixels.shape[:3]
  return pixels.reshape(batch, height // block, block, width // block, block, *pixels.shape[3:]).mean((2, 4))


def _cells(pixels: np.ndarray) -> np.ndarray:
  """Cells ``[B, H / 8, W / 8, 48]`` of ``[B, H, W, 3]``: the means of their blocks of 2 x 2 pixels."""
  means, side = _means(pixels, FINE), CELL // FINE
  batch, height, width = means.shape[:3]
  cells = means.reshape(batch, height // side, side, width // side, side, 3).transpose(0, 1, 3, 2, 4, 5)
  return np.ascontiguousarray(cells).reshape(batch, height // side, width // side, -1)


class _Templates(NamedTuple):
  """Tiles of all looks at one size on one background, minus the background, split into cells.

  Attributes:
    cells: ``[48, C * C * L]`` float32; columns by cell row, cell column, look.
    energy: ``[L]`` squared length of each tile.
    seen: ``[L]`` bool, whether the painter paints the look on the background.
  """

  cells: np.ndarray
  energy: np.ndarray
  seen: np.ndarray


@functools.cache
def _templates(size: str, background: int) -> _Templates:
  cells = _cells(load_tiles()[size][:, background].astype(np.float32) - _PALETTE[background])  # [L, C, C, 48]
  columns = np.ascontiguousarray(cells.transpose(3, 1, 2, 0)).reshape(cells.shape[-1], -1)
  seen = [not clashes(look.noun, look.colour, _NAMES[background]) for look in LOOKS]
  return _Templates(columns, (cells**2).sum((1, 2, 3)), np.array(seen))


class _Candidate(NamedTuple):
  """A position at which the error of a tile is small enough."""

  gain: float
  object: Object
  look: int


def _read_on(pixels: np.ndarray, background: int) -> list[Reading]:
  """Readings of images ``[n, 96, 96, 3]`` float32 of one background."""
  shifted = pixels - _PALETTE[background]
  cells = _cells(shifted)
  candidates: list[list[_Candidate]] = [[] for _ in pixels]
  for size in SIZES:
    for image, row, column, look, gain in zip(*_compare(cells, size, background), strict=True):
      one = Object(*LOOKS[int(look)], size, int(row), int(column))
      candidates[image].append(_Candidate(float(gain), one, int(look)))
  fine = _means(shifted, FINE)
  strange = (_means(shifted, BLOCK) ** 2).sum(-1) > STRANGE_COLOUR**2
  strange |= _means((shifted**2).sum(-1), BLOCK) > STRANGE_PIXELS**2  # [n, 24, 24]
  readings = []
  for number, found in enumerate(candidates):
    objects = []
    for candidate in _choose(found):
      wrong, loss = _check_blocks(fine[number], candidate, background)
      if loss <= LARGEST_LOSS:
        objects.append(candidate.object)
        top, left, bottom, right = (edge // BLOCK for edge in candidate.object.box)
        strange[number, top:bottom, left:right] = wrong
    objects.sort(key=lambda one: (one.row, one.column))
    readings.append(Reading(_NAMES[background], tuple(objects), float(strange[number].mean())))
  return readings


def _compare(cells: np.ndarray, size: str, background: int) -> tuple[np.ndarray, ...]:
  """Step 2 for one size: image, row, column, look and gain ``[M]`` of the positions with a small enough error.

  Args:
    cells: ``[n, 12, 12, 48]`` float32, minus the background.
  """
  templates, count = _templates(size, background), SIZES[size]
  side = GRID - count + 1
  # error = |x|^2 - 2 x t + |t|^2, so the gain over the plain background is 2 x t - |t|^2.
  products = (cells.reshape(-1, cells.shape[-1]) @ templates.cells).reshape(*cells.shape[:3], count, count, len(LOOKS))
  plain = np.einsum("nrcd,nrcd->nrc", cells, cells)
  gain = np.zeros((len(cells), side, side, len(LOOKS)), np.float32)
  length = np.zeros((len(cells), side, side, 1), np.float32)
  for down in range(count):
    for right in range(count):
      gain += products[:, down : down + side, right : right + side, down, right]
      length += plain[:, down : down + side, right : right + side, None]
  gain *= 2
  gain -= templates.energy
  positions = np.nonzero(gain > length - MOST_ERROR * templates.energy)
  seen = templates.seen[positions[-1]]
  return *(position[seen] for position in positions), gain[positions][seen]


def _choose(candidates: list[_Candidate]) -> list[_Candidate]:
  """Step 3."""
  taken: list[_Candidate] = []
  for candidate in sorted(candidates, key=lambda candidate: -candidate.gain):
    if not any(_overlap(candidate.object, other.object) for other in taken):
      taken.append(candidate)
  return taken


def _check_blocks(fine: np.ndarray, candidate: _Candidate, background: int) -> tuple[np.ndarray, float]:
  """Step 4: the wrong blocks, ``[2 C, 2 C]`` bool, and their share of the energy.

  Args:
    fine: ``[48, 48, 3]`` means of 2 x 2 pixels, minus the background.
  """
  one = candidate.object
  tile = load_tiles()[one.size][candidate.look, background].astype(np.float32) - _PALETTE[background]
  tile = _means(tile[None], FINE)[0]
  top, left, bottom, right = (edge // FINE for edge in one.box)
  rest = (fine[top:bottom, left:right] - tile)[None]
  block = BLOCK // FINE
  error, energy = _means((rest**2).sum(-1), block)[0], _means((tile[None] ** 2).sum(-1), block)[0]
  wrong = error > np.maximum(BLOCK_ERROR * energy, 3 * NOISE**2)
  wrong |= (_means(rest, block)[0] ** 2).sum(-1) > BLOCK_COLOUR**2
  return wrong, float((wrong * energy).sum() / energy.sum())


def _overlap(one: Object, other: Object) -> bool:
  return (
    one.row < other.row + other.cells
    and other.row < one.row + one.cells
    and one.column < other.column + other.cells
    and other.column < one.column + one.cells
  )
