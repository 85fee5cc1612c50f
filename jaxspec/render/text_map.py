"""A map of numbers in the grid of an image, as lines of text."""

from __future__ import annotations

import numpy as np

_SHADES = " ░▒▓█"
_BLANK = 0.001  # of the largest value
_MOST = 32  # rows and columns; larger grids are averaged


def text_map(values: np.ndarray) -> list[str]:
  """Lines of a map of ``values [rows, columns]`` of at least 0, the largest value darkest, blank below 0.001 of it.

  A place is two characters wide, so that it is nearly square. Grids of more than 32 rows or columns are averaged over
  blocks of equal size; the last ones may be smaller.
  """
  block = max(1, -(-max(values.shape) // _MOST))
  starts = [range(0, size, block) for size in values.shape]
  means = np.array([[values[r : r + block, c : c + block].mean() for c in starts[1]] for r in starts[0]])
  largest = max(means.max(), np.finfo(float).tiny)
  level = np.where(means < _BLANK * largest, 0, np.ceil(means / largest * (len(_SHADES) - 1))).astype(int)
  return ["".join(_SHADES[shade] * 2 for shade in row) for row in level]
