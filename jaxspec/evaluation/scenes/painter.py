"""The painter: scenes to pixels, by copying tiles (`jaxspec.evaluation.scenes.sprites`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jaxspec.evaluation.scenes.sprites import load_tiles
from jaxspec.evaluation.scenes.world import BACKGROUNDS, CELL, IMAGE_SIZE, LOOK_NUMBERS, Scene

_BACKGROUND_NUMBERS = {name: number for number, name in enumerate(BACKGROUNDS)}
_COLOURS = np.array(list(BACKGROUNDS.values()), np.uint8)  # [G, 3]


def paint(scene: Scene) -> np.ndarray:
  """Image ``[96, 96, 3]`` uint8 of a scene."""
  return paint_batch([scene])[0]


def paint_batch(scenes: Sequence[Scene]) -> np.ndarray:
  """Images ``[B, 96, 96, 3]`` uint8 of scenes."""
  tiles = load_tiles()
  backgrounds = [_BACKGROUND_NUMBERS[scene.background] for scene in scenes]
  images = np.empty((len(scenes), IMAGE_SIZE, IMAGE_SIZE, 3), np.uint8)
  images[...] = _COLOURS[backgrounds][:, None, None, :]
  for image, scene, background in zip(images, scenes, backgrounds, strict=True):
    for one in scene.objects:
      top, left, side = one.row * CELL, one.column * CELL, one.cells * CELL
      image[top : top + side, left : left + side] = tiles[one.size][LOOK_NUMBERS[one.look], background]
  return images
