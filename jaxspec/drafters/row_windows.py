"""Jacobi windows of several rows of an image (`jaxspec.sampling.row_schedule`), coupled as in
`jaxspec.drafters.jacobi_drafter`.

Each group of a pass has a window of ``K`` drafts for the next columns of its row. Its recycled distributions come from the
group's last pass; a row that starts has none. A new position takes the distribution of the newest token in its column, of
the row above or of an earlier one, and else the uniform distribution.

Let the past of a position be all tokens at earlier raster positions, of all passes. A window reads no other positions, and a
row starts and waits by tokens of rows above it. Given its past, a draft therefore follows the newest row of its position, as
in one window, and the rule sees drafts of their proposal.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxspec.core import rng
from jaxspec.core.token_space import LegalFn
from jaxspec.core.types import Array, Draft, Key, Verdict
from jaxspec.drafters.jacobi_drafter import JacobiDrafter, JacobiState, empty_windows, recycled_drafts
from jaxspec.drafters.window_init import WindowInit, initial_drafts
from jaxspec.sampling.row_schedule import RowPass, RowProgress


class RowWindowState(NamedTuple):
  """Windows of the groups of the next pass, and the newest token of each column."""

  windows: JacobiState  # leaves [B G, ...]
  newest: Array  # [B, C, V] logits of the distribution of the newest token of each column


@dataclasses.dataclass(frozen=True)
class RowWindows:
  """Drafts of all groups of a pass; their leading axis ``B G`` counts groups of one image after the other.

  Attributes:
    window: drafts ``K`` of a row.
    columns: ``C``.
    num_groups: ``G``.
    legal: legal ids at each index of an image.
  """

  window: int
  columns: int
  num_groups: int
  legal: LegalFn | None = None

  def start(self, logits: Array) -> RowWindowState:
    """The state before the first pass; token 0 was drawn from ``logits [B, V]``."""
    images, vocab_size = logits.shape
    windows = empty_windows(images * self.num_groups, self.window, vocab_size)
    return RowWindowState(windows, jnp.zeros((images, self.columns, vocab_size)).at[:, 0].set(logits))

  def draft(self, keys: Key, state: RowWindowState, progress: RowProgress, read: RowPass) -> Draft:
    """Chains of tokens ``[B G, K]``; those that a row has no room for, or that are beyond its end, are not tested.

    Args:
      keys: ``[B]`` of the round.
    """
    vocab_size = state.newest.shape[2]
    uniform = rng.position_uniforms(keys, read.row, 2 * self.window).reshape(-1, 2 * self.window)
    draw, keep = uniform[:, : self.window], uniform[:, self.window :]
    column = jnp.minimum(read.committed[..., None] + jnp.arange(self.window)[None, None], self.columns - 1)  # [B, G, K]
    image = jnp.arange(len(column))[:, None, None]
    position = read.row[..., None] * self.columns + column
    fresh, fresh_logits = initial_drafts(
      WindowInit("above"),
      has_source=((read.row[..., None] > 0) & (column < progress.committed[:, :1, None])).reshape(draw.shape),
      source_token=jnp.zeros(draw.shape, jnp.int32),
      source_logits=state.newest[image, column].reshape(*draw.shape, vocab_size),
      uniform=draw,
      vocab_size=vocab_size,
      legal=None if self.legal is None else self.legal(position.reshape(draw.shape)),
    )
    is_recycled = jnp.arange(self.window)[None] < state.windows.num_recycled[:, None]
    tokens = jnp.where(is_recycled, recycled_drafts(state.windows, draw, keep), fresh)
    proposal = jnp.where(is_recycled[..., None], state.windows.logits, fresh_logits)
    return Draft.chain(tokens, proposal, jnp.minimum(read.room, self.window).reshape(-1), 0)

  def commit(
    self, state: RowWindowState, draft: Draft, verdict: Verdict, read: RowPass, columns: Array, progress: RowProgress
  ) -> RowWindowState:
    """The state after a pass; ``verdict.feedback`` has its logits ``[B G, K + 1, V]``.

    Args:
      columns: ``[B, G, K + 1]`` of the tokens that are drawn from these logits, ``C`` for those that are not committed.
      progress: after the pass.
    """
    images, groups = read.row.shape
    vocab_size = state.newest.shape[2]
    logits = verdict.feedback.reshape(images, -1, vocab_size)
    newest = state.newest.at[jnp.arange(images)[:, None], columns.reshape(images, -1)].set(logits, mode="drop")
    windows = JacobiDrafter(self.window, vocab_size, recycle="coupled").recycle_pass(state.windows, draft, verdict)
    windows = windows._replace(num_recycled=jnp.where(read.is_active.reshape(-1), windows.num_recycled, 0))
    # The groups of the next pass may begin with a later row.
    source = (progress.first - read.row[:, 0])[:, None] + jnp.arange(groups)[None]  # [B, G]
    index = (jnp.arange(images)[:, None] * groups + jnp.minimum(source, groups - 1)).reshape(-1)
    windows = jax.tree.map(lambda leaf: leaf[index], windows)
    number = jnp.where((source < groups).reshape(-1), windows.num_recycled, 0)
    return RowWindowState(windows._replace(num_recycled=number), newest)
