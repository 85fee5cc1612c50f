"""What a draft and the verdict about it say together, as pure functions. Every reader of the two goes through here."""

from __future__ import annotations

import jax.numpy as jnp

from jaxspec.core import trees
from jaxspec.core.token_axes import at_position, over_tokens
from jaxspec.core.types import Array, Cursor, Draft, Verdict


def empty_draft(last: Array) -> Draft:
  """A draft of no tokens (``K = 0``) of the kind of ``last [B]`` or ``[B, C]``: the verifier draws one token alone."""
  rows = last.shape[0]
  return Draft(jnp.zeros((rows, 0, *last.shape[1:]), last.dtype), (), jnp.zeros((rows,), jnp.int32))


def num_local(draft: Draft) -> Array:
  """``[B]`` int32, leading tokens that the draft side accepted by itself."""
  return jnp.zeros_like(draft.num_drafted) if draft.num_local is None else draft.num_local


def needs_verify(draft: Draft) -> Array:
  """``[B]`` bool, rows in which the target has something to decide."""
  return jnp.ones(draft.num_drafted.shape, bool) if draft.needs_verify is None else draft.needs_verify


def num_next(verdict: Verdict) -> Array:
  """``[B]`` int32, tokens that the verifier adds: 1, or the valid ones of its block."""
  return jnp.ones_like(verdict.num_accepted) if verdict.num_next is None else verdict.num_next


def next_block(verdict: Verdict) -> Array:
  """The tokens that the verifier adds, ``[B, M]`` or ``[B, M, C]``; M is 1 unless the verdict brings a block."""
  return verdict.next_token[:, None] if verdict.num_next is None else verdict.next_token


def num_committed(draft: Draft, verdict: Verdict) -> Array:
  """``[B]`` int32, tokens that a live row gains: accepted ones and those of the verifier, or only local ones.

  Of a row without a question all local tokens are accepted, unless rows keep one length and another row stops it.
  """
  return verdict.num_accepted + jnp.where(needs_verify(draft), num_next(verdict), 0)


def committed_block(draft: Draft, verdict: Verdict) -> Array:
  """What a round commits, ``[B, L + M]`` (or ``[B, L + M, C]``); the first `num_committed` tokens of a row are valid.

  ``L`` is the length of the draft, or of the path of a tree. After the accepted tokens come those of the verifier.
  """
  accepted, block = trees.accepted_tokens(draft, verdict), next_block(verdict)
  size = block.shape[1]
  offset = jnp.arange(accepted.shape[1] + size)[None] - verdict.num_accepted[:, None]  # [B, L + M], 0 is the block's first
  is_next = (offset >= 0) & (offset < num_next(verdict)[:, None]) & needs_verify(draft)[:, None]
  padded = jnp.concatenate([accepted, block], axis=1)
  if size == 1:
    following = block
  else:
    following = jnp.take_along_axis(block, over_tokens(jnp.clip(offset, 0, size - 1), block), axis=1)
  return jnp.where(over_tokens(is_next, padded), following, padded)


def newest_token(cursor: Cursor, draft: Draft, verdict: Verdict) -> Array:
  """The last token of a live row after the round, ``[B]`` or ``[B, C]``."""
  gain = num_committed(draft, verdict)
  block = committed_block(draft, verdict)
  newest = at_position(block, jnp.clip(gain - 1, 0, block.shape[1] - 1))
  return jnp.where(over_tokens(gain > 0, newest), newest, cursor.last)


def token_before_newest(cursor: Cursor, draft: Draft, verdict: Verdict) -> Array:
  """The token before the last one of a live row after the round, ``[B]`` or ``[B, C]``; needs a gain of at least 1."""
  gain = num_committed(draft, verdict)
  block = committed_block(draft, verdict)
  before = at_position(block, jnp.clip(gain - 2, 0, block.shape[1] - 1))
  return jnp.where(over_tokens(gain > 1, before), before, cursor.last)


def is_end_token(cursor: Cursor, tokens: Array) -> Array:
  """``[...]`` bool of ids ``[...]``: those that end their row. Vectors ``[..., C]``, of floats or of ids, never do: all
  False, ``[...]``.

  Where rows have end tokens of their own, the first axis of the ids is that of the rows.
  """
  if cursor.last.ndim > 1 or not jnp.issubdtype(tokens.dtype, jnp.integer):
    return jnp.zeros(tokens.shape[:-1], bool)
  ends = jnp.atleast_1d(jnp.asarray(cursor.end_tokens, tokens.dtype))
  rows = ends.shape[:-1] or (1,)
  return jnp.any(tokens[..., None] == ends.reshape(rows + (1,) * (tokens.ndim - 1) + (-1,)), axis=-1)


def stop_at_end_token(cursor: Cursor, draft: Draft, verdict: Verdict) -> Verdict:
  """Ends a row at its end token: nothing after the first one that is accepted, or drawn, is committed.

  An accepted end token is handed over as ``next_token``, so that every reader of a verdict sees one committed block that
  ends where the row ends (`ends_on_draft` tells that it was drafted).
  """
  accepted = trees.accepted_tokens(draft, verdict)
  if accepted.ndim > 2:
    return verdict
  if verdict.num_next is not None:
    ends = is_end_token(cursor, verdict.next_token)  # [B, M]
    first = jnp.argmax(ends, axis=1).astype(jnp.int32) + 1
    verdict = verdict._replace(
      num_next=jnp.where(jnp.any(ends, axis=1), jnp.minimum(verdict.num_next, first), verdict.num_next)
    )
  if accepted.shape[1] == 0:
    return verdict
  ends = is_end_token(cursor, accepted) & (jnp.arange(accepted.shape[1])[None] < verdict.num_accepted[:, None])
  ends = ends & needs_verify(draft)[:, None]  # a row that asks nothing brings no token of the target after its end
  found, first = jnp.any(ends, axis=1), jnp.argmax(ends, axis=1).astype(jnp.int32)
  end = at_position(accepted, first)
  verdict = verdict._replace(num_accepted=jnp.where(found, first, verdict.num_accepted), is_drafted_end=found)
  if verdict.num_next is None:
    return verdict._replace(next_token=jnp.where(found, end, verdict.next_token))
  block = verdict.next_token.at[:, 0].set(jnp.where(found, end, verdict.next_token[:, 0]))
  return verdict._replace(next_token=block, num_next=jnp.where(found, 1, verdict.num_next))


def ends_on_draft(cursor: Cursor, draft: Draft, verdict: Verdict) -> Array:
  """``[B]`` bool: the verifier's first token is an end token that was drafted and accepted (see `stop_at_end_token`).

  A verdict that came as a message does not say it. It is then read off the draft, which is certain for chains whose rule
  never replaces a rejected token by itself: all rules that have messages.
  """
  if verdict.is_drafted_end is not None:
    return verdict.is_drafted_end
  accepted = trees.accepted_tokens(draft, verdict)
  if accepted.ndim > 2 or accepted.shape[1] == 0:
    return jnp.zeros(verdict.num_accepted.shape, bool)
  position = jnp.minimum(verdict.num_accepted, accepted.shape[1] - 1)
  drafted = at_position(accepted, position)
  inside = verdict.num_accepted < draft.num_drafted
  return inside & is_end_token(cursor, drafted) & (next_block(verdict)[:, 0] == drafted)


def advance(cursor: Cursor, draft: Draft, verdict: Verdict, max_len: int | Array) -> Cursor:
  """The cursor after a round; a finished row stands still. Both sides of a split decode call this.

  Args:
    max_len: tokens of a row, ``[]``, or ``[B]`` where every row has its own.
  """
  gain = jnp.where(cursor.live, num_committed(draft, verdict), 0)
  length = cursor.length + gain
  last = newest_token(cursor, draft, verdict)
  last = jnp.where(over_tokens(gain > 0, last), last, cursor.last)
  live = cursor.live & (length < max_len) & ~is_end_token(cursor, last)
  return cursor._replace(last=last, length=length, live=live, round=cursor.round + 1)


def known_length(length: int | None) -> int:
  """The length of the rows, for drafters and verifiers whose shapes depend on it (`Verifier.in_step`).

  Raises:
    ValueError: where it is not known.
  """
  if length is None:
    raise ValueError("Must have rows of one known length here: ask the part for it with at(length, max_len)")
  return length
