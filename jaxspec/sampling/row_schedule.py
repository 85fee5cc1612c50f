"""The fixed schedule of row-parallel decoding (ZipAR, He et al. 2024, arXiv 2412.04062): several rows of an image at once.

Row r of the grid starts when row r - 1 has ``width`` tokens. Token (r, c) is drawn in pass ``c + width r``, so an image of R
rows and C columns takes ``C + width (R - 1)`` passes, the prefill included. With ``width = C`` every pass draws one token:
plain decoding.

A pass feeds the tokens that the pass before it drew, and draws the next token of each of their rows. The first token of a
row is drawn from the output after the last token of the row above. If that one is not drawn yet, a stand-in is fed at its
position: its own id if only one is legal there, as of row ends, else the newest token of the row above.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from jaxspec.core.types import HostArray


class RowSchedule(NamedTuple):
  """Passes 1, 2, ... of an image of ``N`` tokens in raster order; pass 0 is the prefill, which draws token 0.

  A pass has ``T`` inputs, static. Its own inputs come first, then its stand-in, then padding. Tables are int32 numpy arrays.

  Attributes:
    position: ``[passes - 1, T]`` raster index at which each input is fed; of padding any.
    source: ``[passes - 1, T]`` raster index of the token that is fed there; a stand-in's differs from its position.
    draw: ``[passes - 1, T]`` raster index of the token that is drawn from each output; N: none.
    start: ``[passes - 1]`` number of tokens that were fed in earlier passes, stand-ins left out.
    count: ``[passes - 1]`` number of tokens that each pass feeds, stand-ins left out.
    fed: ``[N]`` raster indices of the tokens in the order in which they are fed.
    drawn_in: ``[N]`` pass that draws each token.
  """

  position: HostArray
  source: HostArray
  draw: HostArray
  start: HostArray
  count: HostArray
  fed: HostArray
  drawn_in: HostArray

  @property
  def num_passes(self) -> int:
    """Passes of the target, the prefill included."""
    return len(self.start) + 1

  @property
  def num_inputs(self) -> int:
    """T."""
    return self.position.shape[1]


def num_passes(grid: tuple[int, int], width: int) -> int:
  """Passes of the target for an image, the prefill included."""
  return grid[1] + width * (grid[0] - 1)


@functools.cache
def row_schedule(grid: tuple[int, int], width: int) -> RowSchedule:
  """The schedule of a grid of rows and columns.

  Raises:
    ValueError: for a width that is not from 1 to the number of columns.
  """
  rows, columns = grid
  if not 1 <= width <= columns:
    raise ValueError(f"Must have width from 1 to the {columns} columns of the image, we instead got {width}")
  size = rows * columns
  row, column = np.divmod(np.arange(size), columns)
  drawn_in = column + width * row
  by_pass: list[list[int]] = [[] for _ in range(num_passes(grid, width))]  # tokens that each pass draws, in raster order
  for index, number in enumerate(drawn_in):
    by_pass[number].append(index)

  passes, start, count, fed = [], [], [], []
  for number in range(1, len(by_pass)):
    own = by_pass[number - 1]
    inputs = [(index, index, index + 1 if index + 1 in by_pass[number] else size) for index in own]
    begun = {draw for _, _, draw in inputs}
    # At most one row starts in a pass.
    inputs += [(index - 1, index - 1 - columns + width, index) for index in by_pass[number] if index not in begun]
    passes.append(inputs)
    start.append(len(fed))
    count.append(len(own))
    fed += own
  fed += by_pass[-1]  # never fed; it completes the order
  widest = max((len(inputs) for inputs in passes), default=1)
  padded = [inputs + [(0, 0, size)] * (widest - len(inputs)) for inputs in passes]
  table = np.asarray(padded, np.int32).reshape(-1, widest, 3)
  return RowSchedule(*np.moveaxis(table, 2, 0), *(np.asarray(part, np.int32) for part in (start, count, fed, drawn_in)))
