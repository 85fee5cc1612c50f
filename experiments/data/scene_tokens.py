"""Scenes as tokens, without a tokenizer pass for each.

An encoder of single patches gives a tile (`jaxspec.evaluation.scenes.sprites`) the same tokens at every position. All tiles
are encoded once; the tokens of a scene are then composed like its pixels.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from jaxspec.core.network import Network
from jaxspec.evaluation.scenes.sprites import load_tiles
from jaxspec.evaluation.scenes.world import BACKGROUNDS, CELL, GRID, LOOK_NUMBERS, SIZES, Scene
from jaxspec.models.tokenizers.tokenizer_fns import from_uint8

_CHUNK = 64  # tiles encoded at once
_NUMBERS = {name: number for number, name in enumerate(BACKGROUNDS)}


class SceneTokens(NamedTuple):
  """The tokens of backgrounds and tiles.

  Attributes:
    flat: ``[G]`` int32, of the backgrounds.
    tiles: by size, ``[L, G, C, C]`` int32: looks, backgrounds, cells.
  """

  flat: np.ndarray
  tiles: dict[str, np.ndarray]

  def of(self, scene: Scene) -> np.ndarray:
    """Tokens ``[144]`` int32 of a scene, row by row."""
    number = _NUMBERS[scene.background]
    grid = np.full((GRID, GRID), self.flat[number], np.int32)
    for one in scene.objects:
      block = np.s_[one.row : one.row + one.cells, one.column : one.column + one.cells]
      grid[block] = self.tiles[one.size][LOOK_NUMBERS[one.look], number]
    return grid.reshape(-1)


def encode_tiles(tokenizer: Network) -> SceneTokens:
  """The table of a tokenizer.

  Raises:
    ValueError: if its encoder reads more than a patch, or a patch is not a cell.
  """
  config = tokenizer.config
  if getattr(config, "encoder_kernel", None) != 1 or config.factor != CELL:
    raise ValueError(f"Must have a tokenizer of single patches of {CELL} pixels, we instead got {config}")
  encode = jax.jit(lambda pixels: tokenizer.fns.encode(tokenizer.params, from_uint8(pixels))[0])

  def encoded(pixels: np.ndarray) -> np.ndarray:
    """``[M, S, S, 3]`` uint8 to ``[M, S / 8, S / 8]``."""
    padded = np.concatenate([pixels, np.repeat(pixels[:1], -len(pixels) % _CHUNK, axis=0)])
    parts = [np.asarray(encode(padded[start : start + _CHUNK])) for start in range(0, len(padded), _CHUNK)]
    cells = pixels.shape[1] // CELL
    return np.concatenate(parts)[: len(pixels)].reshape(-1, cells, cells)

  colours = np.array(list(BACKGROUNDS.values()), np.uint8)
  flat = encoded(np.broadcast_to(colours[:, None, None], (len(colours), CELL, CELL, 3)))[:, 0, 0]
  tiles = {}
  for size, pixels in load_tiles().items():
    cells = SIZES[size]
    tiles[size] = encoded(pixels.reshape(-1, *pixels.shape[2:])).reshape(*pixels.shape[:2], cells, cells)
  return SceneTokens(flat, tiles)
