"""The target as a verifier of drafters that accept tokens locally (CIAR, arXiv 2603.25463, Algorithm 1).

When a row needs verification, any number of locally accepted tokens may be missing in the target's cache. One round:

1. Each row has inputs ``[unread tokens ..., window ...]``. Passes read them in order until every row's are read; mostly one
   pass does. If the draft has interval features, they are added to the embeddings.
2. The logits after the last locally accepted token and after every token of the window are gathered, row by row.
3. The acceptance rule judges the window. Locally accepted tokens count as accepted.

Passes have two sizes. Several rows share the inputs of a pass without padding (`jaxspec.core.packing`): rows that call need
different numbers of inputs, and the others none. One row may have many of them, since another pass for the rest of one row
would cost nearly as much as the first one. A narrow pass is for at most half of the rows and reads only their caches.

After the round the cache holds every committed token except the last, as with any other verifier.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxspec.core.control_flow import run_if
from jaxspec.core.packing import PackedPositions, Packing, packed
from jaxspec.core.payloads import PendingTokens
from jaxspec.core.types import AcceptFn, Array, Cache, Cursor, Draft, Key, ModelFns, PyTree, Verdict, Verifier
from jaxspec.sampling.logit_processing import ModelParams, Warp
from jaxspec.verifiers.target import TargetState, TargetVerifier

# Fewest inputs that one row may take of a pass that rows share.
_SHARED_REACH = 16


class _Reading(NamedTuple):
  """Carry of the passes of a round."""

  logits: Array  # [B, K + 1, V] after the last locally accepted token and after the tokens of the window
  cache: Cache
  read: Array  # [B] int32, leading tokens in the cache


class _Inputs(NamedTuple):
  """Inputs of a pass: ``[B, T]``, or ``[1, P]`` with a packing."""

  row: Array  # row of each input; or [B, 1]
  index: Array  # of each input in its row
  begin: Array  # [B], number of each row's first input among all inputs of the pass
  share: Array  # [B], inputs of each row; the others are padding
  packing: Packing | None


@dataclasses.dataclass(frozen=True)
class CiarVerifier(Verifier):
  """Verifier of `jaxspec.drafters.ciar_drafter.CiarDrafter` drafters.

  Attributes:
    model: the target.
    accept_fn: acceptance rule for chains, applied to the window of a draft only.
    warp: static part of the logit processing.
    window: most tokens that need verification in one round, the same as the drafter's.
    widths: the two sizes of passes for one row, ascending. Packed passes have half as many inputs for each row of the batch.
  Raises:
    ValueError: for widths that are not two, or do not ascend.
  """

  model: ModelFns
  accept_fn: AcceptFn
  warp: Warp
  window: int
  widths: tuple[int, int] = (4, 8)

  def __post_init__(self):
    if len(self.widths) != 2 or not 0 < self.widths[0] < self.widths[1]:
      raise ValueError(f"Must have two ascending widths, we instead got {self.widths}")

  def packs(self, rows: int) -> bool:
    """Whether this many rows share the inputs of a pass."""
    return rows > 1 and self.model.packs

  def reach(self, rows: int) -> int:
    """Most inputs of one row in a pass."""
    return max(self.widths[-1], _SHARED_REACH) if self.packs(rows) else self.widths[-1]

  def sizes(self, rows: int) -> tuple[int, int]:
    """Inputs of a pass: of each row, or of all rows together if they are packed."""
    narrow, wide = self.widths
    return (-(-rows * narrow // 2), -(-rows * wide // 2)) if self.packs(rows) else (narrow, wide)

  def most_rows(self, size: int, rows: int) -> int:
    """Most rows with inputs in a packed pass of a size: half of the rows in a narrow pass, all in a wide one."""
    return -(-rows // 2) if size == self.sizes(rows)[0] else rows

  def _inputs(self, size: int, left: Array, read: Array) -> _Inputs:
    """The next inputs of a pass of a size, from position ``read [B]`` on; a row needs ``left [B]``."""
    rows = left.shape[0]
    if self.packs(rows):
      packing = packed(left, size, self.reach(rows), self.most_rows(size, rows))
      index = read[packing.row] + packing.number
      begin = jnp.cumsum(packing.share) - packing.share
      return _Inputs(packing.row[None], index[None], begin, packing.share, packing)
    index = read[:, None] + jnp.arange(size)[None]
    row = jnp.arange(rows)
    return _Inputs(row[:, None], index, row * size, jnp.minimum(left, size), None)

  @property
  def plain(self):
    return TargetVerifier(self.model, self.accept_fn, warp=self.warp)

  def init(self, params: ModelParams, keys: Key, condition: PyTree, max_len: int, block: int) -> tuple[Verdict, TargetState]:
    # An ordinary prefill. The cache must also hold a pass from the last position of a row.
    return self.plain.init(params, keys, condition, max_len, max(block, self.reach(condition.batch_size)))

  def verify(
    self, params: ModelParams, keys: Key, state: TargetState, cursor: Cursor, draft: Draft
  ) -> tuple[Verdict, TargetState]:
    if draft.tokens.shape[1] == 0:  # the target draws alone, so it has read everything
      return self.plain.verify(params, keys, state, cursor, draft)
    if not isinstance(draft.payload, PendingTokens):
      raise ValueError("Must have a drafter that says what the target has not read (`PendingTokens`), we instead got none")
    unread = draft.payload
    local, judged = draft.num_local, cursor.live & draft.needs_verify
    num_window = draft.num_drafted - local  # [B]
    first = cursor.length + local  # position of the first window token
    rows = cursor.length.shape[0]
    reach = self.reach(rows)
    tokens = _by_position(draft, cursor, reach)
    # Interval features of the edge, by position; zeros beyond the last position of a row.
    beyond = tokens.shape[1] - unread.tokens.shape[1]
    features = jax.tree.map(lambda leaf: jnp.pad(leaf, ((0, 0), (0, beyond), (0, 0))), unread.features)

    def left_of(read: Array) -> Array:
      # Shorter windows are padded, so that the number of passes follows from the tokens (`num_catch_ups`).
      return jnp.where(judged, first + self.window - read, 0)

    def forward(size: int, cache: Cache, read: Array) -> tuple[Array, Cache, _Inputs]:
      part = self._inputs(size, left_of(read), read)
      prefix = state.prefix_len[part.row] if state.prefix_len.ndim else state.prefix_len
      positions = prefix + part.index
      if part.packing is not None:
        positions = PackedPositions(positions, state.prefix_len + read, part.packing)
      inject = features[part.row, part.index] if jax.tree.leaves(features) else None
      inputs = tokens[part.row, part.index]
      output, cache = self.model.apply(params.model, inputs, cache, positions=positions, inject=inject)
      return output.need_logits(), cache, part

    def read_some(size: int, carry: _Reading) -> _Reading:
      found, cache, part = forward(size, carry.cache, carry.read)
      number = first[:, None] - 1 + jnp.arange(self.window + 1)[None] - carry.read[:, None]  # of the input before a token
      is_read = (number >= 0) & (number < part.share[:, None])
      here = found.reshape(-1, found.shape[-1])[jnp.where(is_read, part.begin[:, None] + number, 0)]
      return _Reading(jnp.where(is_read[..., None], here, carry.logits), cache, carry.read + part.share)

    narrow, wide = self.sizes(rows)

    def read_more(carry: _Reading) -> _Reading:
      left = left_of(carry.read)
      needed = jnp.sum(jnp.minimum(left, reach)) if self.packs(rows) else jnp.max(left)
      fits = needed <= narrow
      if self.packs(rows):
        fits &= jnp.sum(left > 0) <= self.most_rows(narrow, rows)
      carry = run_if(fits, functools.partial(read_some, narrow), carry)
      return run_if(~fits, functools.partial(read_some, wide), carry)

    found = jax.eval_shape(functools.partial(forward, narrow), state.cache, unread.read)[0]
    logits = jnp.zeros((rows, self.window + 1, found.shape[-1]), found.dtype)
    start = _Reading(logits, state.cache, unread.read)
    logits, cache, _ = jax.lax.while_loop(lambda carry: jnp.any(left_of(carry.read) > 0), read_more, start)
    logits = self.warp(logits, params.sampling, first[:, None] + jnp.arange(self.window + 1)[None])
    verdict = self.accept_fn(params.rule, keys, _window_of(draft, self.window, num_window), logits)
    if jax.tree.leaves(verdict.metrics):
      raise ValueError("Must have a rule that reports nothing about tokens after a gate, we instead got an audited one")
    accepted = local + jnp.where(draft.needs_verify, verdict.num_accepted, 0)
    return verdict._replace(num_accepted=accepted), state._replace(cache=cache)


def num_catch_ups(unread: int, window: int, widest: int) -> int:
  """Number of passes before the pass of the window, with ``unread`` tokens before the token with the logits of the
  window."""
  return max(0, -(-(unread - (widest - window - 1)) // widest))


def _by_position(draft: Draft, cursor: Cursor, beyond: int) -> Array:
  """Committed tokens, locally accepted tokens and those of the window by position, ``[B, N + beyond]`` int32."""
  committed = draft.payload.tokens
  rows, size = committed.shape
  offset = jnp.arange(draft.tokens.shape[1])[None]
  position = jnp.where(offset < draft.num_drafted[:, None], cursor.length[:, None] + offset, size + beyond)  # or dropped
  buffer = jnp.pad(committed, ((0, 0), (0, beyond)))
  return buffer.at[jnp.arange(rows)[:, None], position].set(draft.tokens, mode="drop")


def _window_of(draft: Draft, window: int, num_window: Array) -> Draft:
  """The part of a draft for the rule: the tokens after the locally accepted ones."""
  index = draft.num_local[:, None] + jnp.arange(window)[None]
  index = jnp.minimum(index, draft.tokens.shape[1] - 1)
  tokens = jnp.take_along_axis(draft.tokens, index, axis=1)
  return Draft.chain(tokens, draft.proposal, num_window, 0)
