"""What a round commits: tokens, positions, end tokens and the new length, as pure functions of a draft and its verdict.

`jaxspec.core.rounds.commit_reply` writes the tokens; drafters and verifiers read the same values.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxspec.core import trees
from jaxspec.core.state import Origin
from jaxspec.core.token_axes import at_position, over_tokens
from jaxspec.core.types import Array, Cache, Cursor, Draft, ModelFns, Params, Verdict


def num_committed(draft: Draft, verdict: Verdict) -> Array:
  """``[B]`` int32, tokens that a live row gains: accepted ones and those of the verifier, or only local ones.

  A row without verification gains all local tokens, unless rows keep one length and another row stops it.
  """
  return verdict.num_accepted + jnp.where(draft.needs_verify, verdict.num_next, 0)


def ends_round(draft: Draft) -> Array:
  """``[B]`` bool: the round of a live row ends with this draft; see `jaxspec.core.types.Drafter.keeps_rounds_open`."""
  return draft.needs_verify | (draft.num_local > 0)


def without_bonus(draft: Draft, verdict: Verdict) -> Verdict:
  """The verdict without the verifier's token after full acceptance; such a round commits its drafts only.

  Empty drafts keep their token, so that every round of a live row commits one. Draft and tests decide about the token alone,
  so an exact rule stays exact.
  """
  is_full = (verdict.num_accepted == draft.num_drafted) & (draft.num_drafted > draft.num_local)
  return verdict._replace(num_next=jnp.where(is_full, 0, verdict.num_next))


def committed_block(draft: Draft, verdict: Verdict) -> Array:
  """Committed tokens of a round, ``[B, L + M]`` (or ``[B, L + M, C]``); the first `num_committed` of a row are valid.

  ``L`` is the length of the draft, or of the path of a tree. After the accepted tokens come those of the verifier.
  """
  accepted, block = trees.accepted_tokens(draft, verdict), verdict.next_tokens
  offset = jnp.arange(accepted.shape[1] + block.shape[1])[None] - verdict.num_accepted[:, None]  # 0 is the block's first
  is_next = (offset >= 0) & (offset < verdict.num_next[:, None]) & draft.needs_verify[:, None]
  padded = jnp.concatenate([accepted, block], axis=1)
  return jnp.where(over_tokens(is_next, padded), _at_offset(block, offset), padded)


def _at_offset(block: Array, offset: Array) -> Array:
  """Entries ``[B, L + M]`` (or ``[B, L + M, C]``) of ``block [B, M]`` at ``offset``, the nearest outside the block."""
  size = block.shape[1]
  return block if size == 1 else jnp.take_along_axis(block, over_tokens(jnp.clip(offset, 0, size - 1), block), axis=1)


def committed_origin(cursor: Cursor, draft: Draft, verdict: Verdict) -> Array:
  """`Origin` ``[B, L + M]`` int8 of every token of `committed_block`."""
  size = trees.accepted_tokens(draft, verdict).shape[1] + verdict.next_tokens.shape[1]
  position = jnp.arange(size)[None]
  offset = position - verdict.num_accepted[:, None]
  rejected = trees.ended_by_rejection(draft, verdict)[:, None] & (position < draft.num_drafted[:, None])
  own = jnp.where(rejected, int(Origin.REPLACED), int(Origin.BONUS))
  own = jnp.where(_at_offset(drafted_next(cursor, draft, verdict), offset), int(Origin.DRAFT), own)
  origin = jnp.where((offset >= 0) & draft.needs_verify[:, None], own, int(Origin.DRAFT))
  return jnp.where(position < draft.num_local[:, None], int(Origin.LOCAL), origin).astype(jnp.int8)


def replaced_in_cache(
  network: ModelFns, params: Params, cache: Cache, cursor: Cursor, prefix_len: Array, draft: Draft, verdict: Verdict
) -> Cache:
  """The cache after a verdict of several own tokens, which replace drafts in it; the same cache for one own token.

  A pass over the committed tokens writes them. Its output is unused: a masked network, whose cache holds tokens, computes
  nothing else.

  Args:
    cursor: the one before the round.
    prefix_len: cache slots of the condition.
  """
  size = verdict.next_tokens.shape[1]
  if size == 1:
    return cache
  positions = (prefix_len + cursor.length)[:, None] + jnp.arange(size, dtype=jnp.int32)[None]
  return network.apply(params, committed_block(draft, verdict)[:, :size], cache, positions=positions)[1]


def block_positions(cursor: Cursor, draft: Draft, verdict: Verdict, max_len: int) -> Array:
  """Index ``[B, L + M]`` in its row of every token of `committed_block`.

  It is ``max_len`` for tokens that are not committed, so that a write with ``mode="drop"`` omits them.
  """
  gain = jnp.where(cursor.live, num_committed(draft, verdict), 0)
  offset = jnp.arange(trees.accepted_tokens(draft, verdict).shape[1] + verdict.next_tokens.shape[1])[None]
  return jnp.where(offset < gain[:, None], cursor.length[:, None] + offset, max_len)


def newest_token(cursor: Cursor, draft: Draft, verdict: Verdict) -> Array:
  """The last token of a live row after the round, ``[B]`` or ``[B, C]``."""
  gain = num_committed(draft, verdict)
  block = committed_block(draft, verdict)
  newest = at_position(block, jnp.clip(gain - 1, 0, block.shape[1] - 1))
  return jnp.where(over_tokens(gain > 0, newest), newest, cursor.last)


def token_before_newest(cursor: Cursor, draft: Draft, verdict: Verdict, previous: Array) -> Array:
  """The token before the last one of a row after the round, ``[B]`` or ``[B, C]``.

  Args:
    previous: the token from before the round, for rows that are finished or commit nothing.
  """
  gain = jnp.where(cursor.live, num_committed(draft, verdict), 0)
  block = committed_block(draft, verdict)
  before = at_position(block, jnp.clip(gain - 2, 0, block.shape[1] - 1))
  before = jnp.where(over_tokens(gain > 1, before), before, cursor.last)
  return jnp.where(over_tokens(gain > 0, before), before, previous)


def features_of(verdict: Verdict) -> Array:
  """The target's features in a verdict, ``[B, T, D]``.

  Raises:
    ValueError: if the verifier returns no features.
  """
  features = verdict.feedback
  if not isinstance(features, jax.Array) or features.ndim != 3:
    raise ValueError(f"Must have features [B, T, D] as the verifier's feedback, we instead got {features!r}")
  return features


def is_end_token(cursor: Cursor, tokens: Array) -> Array:
  """``[...]`` bool: whether ids ``[...]`` end their row. Tokens ``[..., C]`` never do: all False, ``[...]``.

  If end tokens differ between rows, the first axis of the ids is that of the rows.
  """
  if cursor.last.ndim > 1 or not jnp.issubdtype(tokens.dtype, jnp.integer):
    return jnp.zeros(tokens.shape[:-1], bool)
  ends = jnp.atleast_1d(jnp.asarray(cursor.end_tokens, tokens.dtype))
  rows = ends.shape[:-1] or (1,)
  return jnp.any(tokens[..., None] == ends.reshape(rows + (1,) * (tokens.ndim - 1) + (-1,)), axis=-1)


def stop_at_end_token(cursor: Cursor, draft: Draft, verdict: Verdict) -> Verdict:
  """Ends a row at its end token: tokens after the first accepted or drawn one are not committed.

  An accepted end token is moved to ``next_tokens``, so that every reader of a verdict sees one committed block that ends
  with the row (``is_drafted`` marks it).
  """
  accepted = trees.accepted_tokens(draft, verdict)
  if accepted.ndim > 2:
    return verdict
  ends = is_end_token(cursor, verdict.next_tokens)  # [B, M]
  first = jnp.argmax(ends, axis=1).astype(jnp.int32) + 1
  num_next = jnp.where(jnp.any(ends, axis=1), jnp.minimum(verdict.num_next, first), verdict.num_next)
  if accepted.shape[1] == 0:
    return verdict._replace(num_next=num_next)
  ends = is_end_token(cursor, accepted) & (jnp.arange(accepted.shape[1])[None] < verdict.num_accepted[:, None])
  ends = ends & draft.needs_verify[:, None]  # a row without verification gets no token of the target after its end
  found, first = jnp.any(ends, axis=1), jnp.argmax(ends, axis=1).astype(jnp.int32)
  end = jnp.take_along_axis(accepted, first[:, None], axis=1)  # [B, 1], at every position of a block with one valid token
  return verdict._replace(
    num_accepted=jnp.where(found, first, verdict.num_accepted),
    next_tokens=jnp.where(found[:, None], end, verdict.next_tokens),
    num_next=jnp.where(found, 1, num_next),
    is_drafted=jnp.broadcast_to(found[:, None], verdict.next_tokens.shape),
  )


def drafted_next(cursor: Cursor, draft: Draft, verdict: Verdict) -> Array:
  """``[B, M]`` bool: the verifier's own tokens that were drafted and accepted (`Verdict.is_drafted`).

  Messages of verdicts do not contain it. It is then derived from the draft: an end token (see `stop_at_end_token`). This is
  exact for chains whose rule never replaces a rejected token by itself: all rules with messages.
  """
  if verdict.is_drafted is not None:
    return verdict.is_drafted
  accepted = trees.accepted_tokens(draft, verdict)
  if accepted.ndim > 2 or accepted.shape[1] == 0:
    return jnp.zeros(verdict.next_tokens.shape[:2], bool)
  position = jnp.minimum(verdict.num_accepted, accepted.shape[1] - 1)
  drafted = at_position(accepted, position)[:, None]
  inside = (verdict.num_accepted < draft.num_drafted)[:, None] & (jnp.arange(verdict.next_tokens.shape[1])[None] == 0)
  return inside & is_end_token(cursor, drafted) & (verdict.next_tokens == drafted)


def num_accepted(cursor: Cursor, draft: Draft, verdict: Verdict) -> Array:
  """``[B]`` int32: accepted drafts of a round, including local ones and those among the verifier's own tokens."""
  is_next = jnp.arange(verdict.next_tokens.shape[1])[None] < verdict.num_next[:, None]
  return verdict.num_accepted + jnp.sum(drafted_next(cursor, draft, verdict) & is_next, axis=1, dtype=jnp.int32)


def advance(cursor: Cursor, draft: Draft, verdict: Verdict, max_len: int | Array) -> Cursor:
  """The cursor after a round; finished rows do not change. Both sides of a decode on two machines call this.

  Args:
    max_len: tokens of a row, ``[]``, or ``[B]`` with one per row.
  """
  gain = jnp.where(cursor.live, num_committed(draft, verdict), 0)
  length = cursor.length + gain
  last = newest_token(cursor, draft, verdict)
  last = jnp.where(over_tokens(gain > 0, last), last, cursor.last)
  live = cursor.live & (length < max_len) & ~is_end_token(cursor, last)
  ends = ends_round(draft).astype(jnp.int32) if jnp.ndim(cursor.round) else 1
  return cursor._replace(last=last, length=length, live=live, round=cursor.round + ends)


def known_length(length: int | None) -> int:
  """The length of the rows, for drafters and verifiers whose shapes depend on it (`Verifier.in_step`).

  Raises:
    ValueError: where it is not known.
  """
  if length is None:
    raise ValueError("Must have rows of one known length here: ask the part for it with at(length, max_len)")
  return length
