"""Inputs of several rows side by side in one pass, without padding between them.

Rows that need different numbers of inputs share a pass of ``P`` inputs. Matrix products are computed for these inputs only.
Attention needs the inputs of a row together: it has them as ``[M, W]``, where at most ``M`` of the ``B`` rows have inputs,
and a row at most ``W`` of them.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from jaxspec.core.types import Array


class Packing(NamedTuple):
  """Rows of the inputs of a pass ``[1, P]``; inputs from ``sum(share)`` on are padding."""

  share: Array  # [B] int32, inputs of each row, at most W
  rows: Array  # [M] int32, rows with inputs, in their order; B - 1 for missing ones. All rows if M is B
  row: Array  # [P] int32, row of each input; any of padding
  seat: Array  # [P] int32, number of this row in ``rows``
  number: Array  # [P] int32, of each input among those of its row, below W
  source: Array  # [M, W] int32, the inputs of ``rows``; those from a row's share on are any

  def unpack(self, x: Array) -> Array:
    """``[G, P, ...]`` to ``[G * M, W, ...]``; with guidance G is 2, of both halves."""
    return x[:, self.source].reshape(-1, self.source.shape[1], *x.shape[2:])

  def pack(self, x: Array) -> Array:
    """``[G * M, W, ...]`` to ``[G, P, ...]``."""
    rows, width = self.source.shape
    return x.reshape(-1, rows * width, *x.shape[2:])[:, self.seat * width + self.number]


class PackedPositions(NamedTuple):
  """``positions`` of a pass with packed inputs, see `jaxspec.core.types.ApplyFn`."""

  positions: Array  # [1, P] int32
  start: Array  # [B] int32, position and cache slot of the first input of each row
  packing: Packing


def packed(left: Array, size: int, width: int, most_rows: int) -> Packing:
  """The packing of a pass that takes inputs from the rows in their order while there is room.

  Args:
    left: ``[B]`` int32, inputs that each row needs.
    size: inputs ``P`` of the pass, static.
    width: most inputs of one row ``W``, static.
    most_rows: most rows ``M`` that take part, static.
  """
  last = left.shape[0] - 1
  is_asking = left > 0 if most_rows < left.shape[0] else jnp.ones(left.shape, bool)  # all of them: seats are rows
  seat = jnp.cumsum(is_asking, dtype=jnp.int32) - 1
  wanted = jnp.where(seat < most_rows, jnp.minimum(left, width), 0)
  end = jnp.cumsum(wanted)
  share = jnp.clip(size - (end - wanted), 0, wanted)
  end = jnp.cumsum(share)
  begin = end - share
  number = jnp.arange(size)
  row = jnp.minimum(jnp.sum(number[:, None] >= end[None], axis=1, dtype=jnp.int32), last)
  rows = jnp.nonzero(is_asking, size=most_rows, fill_value=last)[0].astype(jnp.int32)
  source = jnp.minimum(begin[rows][:, None] + jnp.arange(width)[None], size - 1)
  number = jnp.minimum(number - begin[row], width - 1)
  return Packing(share, rows, row, jnp.clip(seat[row], 0, most_rows - 1), number, source)
