"""What a scene holds, as a vector that a network can be asked for while it learns to draw the scene."""

from __future__ import annotations

import numpy as np

from jaxspec.scenes.world import GRID, LOOKS, NOUNS, Scene

_NOUNS = {noun: number for number, noun in enumerate(NOUNS)}
# Sprites look different in each style, which captions do not name: their styles are one label.
_KINDS = {kind: number for number, kind in enumerate(dict.fromkeys((look.noun, look.colour) for look in LOOKS))}
NUM_LABELS = len(_KINDS) + 3 * len(NOUNS)


def labels_of(scene: Scene) -> np.ndarray:
  """``[NUM_LABELS]`` float32: the number of objects of each noun and colour, of each noun, and where those of a noun lie.

  Where: the sum over the objects of how far their middle is below and right of the image's, in halves of its side.
  """
  kinds, counts = np.zeros(len(_KINDS), np.float32), np.zeros(len(NOUNS), np.float32)
  places = np.zeros((len(NOUNS), 2), np.float32)
  for one in scene.objects:
    kinds[_KINDS[one.noun, one.colour]] += 1
    counts[_NOUNS[one.noun]] += 1
    middle = np.array([one.row, one.column]) + one.cells / 2
    places[_NOUNS[one.noun]] += 2 * middle / GRID - 1
  return np.concatenate([kinds, counts, places.ravel()])
