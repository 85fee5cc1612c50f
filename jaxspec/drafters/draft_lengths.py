"""A draft length for every row, by the row's own past: `jaxspec.drafters.length_choice` of one row, over all rows.

Rows do not share the number of their drafts, so a row decodes to the same tokens alone and in any batch. A length is an
array of the program: no length is compiled.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxspec.core.types import Array
from jaxspec.drafters import length_choice
from jaxspec.drafters.length_choice import LengthState, Outcome


def start(times: Array, rows: int, window: int, max_len: int) -> LengthState:
  """The state before the first round, leaves ``[B, ...]``.

  Args:
    times: ``[B, M]`` int32, the time of a round of each length; only ratios matter.
    rows: ``B``.
    window: the longest length.
    max_len: tokens of a row.
  """
  return jax.vmap(lambda times: length_choice.start(times, 1, window, max_len))(of_rows(times, rows))


def choose(state: LengthState, times: Array, live: Array, *, bonus: bool) -> tuple[Array, LengthState]:
  """Lengths ``[B]`` int32 from 0 to the window, and the state after drafts of these lengths.

  Args:
    times: ``[M]`` or ``[B, M]`` int32.
    live: ``[B]`` bool, unfinished rows.
    bonus: whether the target adds a token after full acceptance.
  """
  lengths = tuple(range(state.tested.shape[-1] + 1))

  def one(state: LengthState, times: Array, live: Array) -> tuple[Array, LengthState]:
    alone = live[None].astype(jnp.int32)  # what one row lacks does not change its choice
    length = length_choice.choose(state, times, lengths, alone, bonus=bonus)
    return length, length_choice.began(state, length, times, lengths, live[None], reads=False)

  return jax.vmap(one)(state, of_rows(times, live.shape[0]), live)


def ended(state: LengthState, times: Array, found: Outcome) -> LengthState:
  """The state after the verdicts about these drafts."""
  alone = jax.tree.map(lambda leaf: leaf[:, None], found)
  return jax.vmap(length_choice.ended)(state, of_rows(times, found.live.shape[0]), alone)


def of_rows(times: Array, rows: int) -> Array:
  """``[B, M]``: the table of every row."""
  return jnp.broadcast_to(times, (rows, times.shape[-1]))
