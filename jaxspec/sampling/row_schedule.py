"""The schedule of row-parallel decoding: which rows of an image a pass of the target reads, and how far each may go.

Row r may commit its token in column c in a pass that begins when row r - 1 has ``c + width`` tokens, or all of its columns.
With one token of a row per pass this is the schedule of ZipAR (He et al. 2024, arXiv 2412.04062): row r starts when row
r - 1 has ``width`` tokens, token (r, c) is drawn in pass ``c + width r``, and an image of R rows and C columns takes ``C +
width (R - 1)`` passes, the prefill included. With Jacobi windows a row commits several tokens in a pass, and no token sees
less of the row above than by ZipAR's schedule. With ``width = C`` a row starts when the row above is whole.

A pass reads *groups* of inputs, one for each row, from the first unfinished row on. The first input of a group is the token
before the next one of its row; drafts of the row follow. The first token of a row comes after the last token of the row
above. If that one is not known yet, a stand-in takes its place. Groups beyond the last started row are padding.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from jaxspec.core.types import Array


class RowProgress(NamedTuple):
  """Rows of images between passes. ``L`` is 1 where all images of a batch have the same progress, else ``B``."""

  committed: Array  # [L, R] int32 tokens of each row
  first: Array  # [L] int32, the row of the first group of the next pass


class RowPass(NamedTuple):
  """The groups of one pass, ``[L, G]``."""

  row: Array  # int32; R or more: padding
  committed: Array  # int32 tokens of the row, 0 of padding
  above: Array  # int32 tokens of the row above
  is_active: Array  # bool, False for padding and where a row has not started
  is_known: Array  # bool, the first input is a committed token; else it is a stand-in
  room: Array  # int32, tokens that the row may commit in this pass; 0 for a row whose last token is read


def num_passes(grid: tuple[int, int], width: int, each: float = 1) -> float:
  """Passes of the target for an image, the prefill included.

  Args:
    each: tokens of a row per pass; a row starts at least one pass after the row above.
  """
  return grid[1] / each + max(width / each, 1) * (grid[0] - 1)


def num_groups(grid: tuple[int, int], width: int) -> int:
  """Groups ``G`` of a pass.

  Raises:
    ValueError: for a width that is not from 1 to the number of columns.
  """
  rows, columns = grid
  if not 1 <= width <= columns:
    raise ValueError(f"Must have width from 1 to the {columns} columns of the image, we instead got {width}")
  # Row j below the first one has at most columns - j width tokens, because the first one commits in every pass.
  return 1 if width == columns else min(columns // width + 1, rows)


def start(grid: tuple[int, int], images: int) -> RowProgress:
  """The progress after the prefill, which draws token 0."""
  committed = jnp.zeros((images, grid[0]), jnp.int32).at[:, 0].set(1)
  return RowProgress(committed, _skip_whole(committed, jnp.zeros((images,), jnp.int32), grid))


def next_pass(progress: RowProgress, grid: tuple[int, int], width: int) -> RowPass:
  """The groups of the next pass."""
  rows, columns = grid
  row = progress.first[:, None] + jnp.arange(num_groups(grid, width))[None]
  number = lambda index: jnp.take_along_axis(progress.committed, jnp.clip(index, 0, rows - 1), axis=1)
  committed, above = jnp.where(row < rows, number(row), 0), jnp.where(row > 0, number(row - 1), columns)
  limit = jnp.where(above == columns, columns, jnp.maximum(above - width + 1, 0))
  is_active = (row < rows) & (limit > 0) & ~_is_whole(progress, grid)[:, None]
  return RowPass(
    row=row,
    committed=committed,
    above=above,
    is_active=is_active,
    is_known=is_active & ((committed > 0) | (above == columns)),
    room=jnp.where(is_active, limit - committed, 0),
  )


def advance(progress: RowProgress, read: RowPass, gain: Array, grid: tuple[int, int]) -> RowProgress:
  """The progress after a pass whose groups commit ``gain [L, G]`` tokens, at most their room and at least 1 if they have
  any."""
  image = jnp.arange(read.row.shape[0])[:, None]
  committed = progress.committed.at[image, read.row].add(gain, mode="drop")
  is_read = read.is_active[:, 0] & (read.committed[:, 0] == grid[1])  # the last token of the first row
  return RowProgress(committed, _skip_whole(committed, progress.first + is_read, grid))


def is_live(progress: RowProgress, grid: tuple[int, int]) -> Array:
  """``[L]`` bool: whether an image lacks tokens."""
  return ~_is_whole(progress, grid)


def _is_whole(progress: RowProgress, grid: tuple[int, int]) -> Array:
  return progress.committed[:, -1] == grid[1]


def _skip_whole(committed: Array, first: Array, grid: tuple[int, int]) -> Array:
  """The first row, or the next one where the first is whole and the next has no token: its group reads the last token."""
  here = lambda index: jnp.take_along_axis(committed, jnp.minimum(index, grid[0] - 1)[:, None], axis=1)[:, 0]
  return jnp.where((here(first) == grid[1]) & (first + 1 < grid[0]) & (here(first + 1) == 0), first + 1, first)
