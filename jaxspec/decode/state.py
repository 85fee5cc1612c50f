"""What a decode carries from round to round, and what it returns."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

import flax.struct
import jax.numpy as jnp

from jaxspec import trees
from jaxspec.types import Array, Cursor, Draft, Key, PyTree, Verdict


class Origin(enum.IntEnum):
  """Where a committed token came from."""

  EMPTY = 0
  FIRST = 1  # sampled from the prefill
  DRAFT = 2  # drafted and accepted
  REPLACED = 3  # drawn by the verifier after a rejection
  BONUS = 4  # drawn by the verifier after full acceptance; every token of plain decoding


class SpecParams(NamedTuple):
  """Everything traced that the two sides need; ``draft`` is ``()`` without a drafter."""

  draft: PyTree
  target: PyTree


@flax.struct.dataclass
class Counters:
  """Per-row counts ``[B]`` int32; a finished row no longer counts."""

  rounds: Array
  drafted: Array  # tokens proposed (levels of a tree)
  accepted: Array  # proposed tokens kept
  target_calls: Array  # forward passes of the target, the prefill included
  draft_calls: Array  # forward passes of the draft network, its prefill included


@flax.struct.dataclass
class EdgeState:
  """The drafting side."""

  tokens: Array  # [B, N] int32; slots from ``cursor.length`` on are 0
  origin: Array  # [B, N] int8, an `Origin`
  commit_round: Array  # [B, N] int32, the round that committed each token; 0 is the prefill
  cursor: Cursor
  keys: Key  # [B]
  drafter: PyTree
  counters: Counters


@flax.struct.dataclass
class DecodeState:
  """The carry of the fused loop: both sides."""

  edge: EdgeState
  verifier: PyTree


class DecodeResult(NamedTuple):
  """Result of a decode.

  ``accepted_mask`` is True where a token was drafted and accepted: the acceptance map by position.
  """

  tokens: Array  # [B, N] int32
  lengths: Array  # [B] int32
  counters: Counters
  accepted_mask: Array  # [B, N] bool
  origin: Array  # [B, N] int8
  commit_round: Array  # [B, N] int32


def is_end(tokens: Array, end_ids: tuple[int, ...]) -> Array:
  """Where ``tokens`` end a row: bool of the same shape, False everywhere without end tokens."""
  ended = jnp.zeros(tokens.shape, bool)
  for end_id in end_ids:
    ended |= tokens == end_id
  return ended


def up_to_end(tokens: Array, length: Array, end_ids: tuple[int, ...]) -> Array:
  """The first ``length [B]`` of ``tokens [B, L]``, counted up to and including the first end token among them."""
  if not end_ids:
    return length
  place = jnp.arange(tokens.shape[1])[None]
  ends = is_end(tokens, end_ids) & (place < length[:, None])
  return jnp.min(jnp.where(ends, place + 1, length[:, None]), axis=1, initial=tokens.shape[1])


def new_tokens(draft: Draft, verdict: Verdict) -> Array:
  """``[B, L + 1]`` the kept tokens with the next token behind the accepted ones; valid up to `committed`."""
  kept = trees.kept_tokens(draft, verdict)
  next_token = verdict.next_token[:, None]
  is_next = jnp.arange(kept.shape[1] + 1)[None] == verdict.num_accepted[:, None]
  block = jnp.concatenate([kept, next_token], axis=1)
  return jnp.where(is_next & draft.needs_verify[:, None], next_token, block)


def committed(draft: Draft, verdict: Verdict, end_ids: tuple[int, ...] = ()) -> Array:
  """Tokens ``[B]`` a row gains: the accepted ones and the next token, or only the settled ones; none behind an end."""
  gain = jnp.where(draft.needs_verify, verdict.num_accepted + 1, draft.num_settled)
  return up_to_end(new_tokens(draft, verdict), gain, end_ids)


def advance(
  cursor: Cursor, draft: Draft, verdict: Verdict, max_len: int, end_ids: tuple[int, ...] = ()
) -> Cursor:
  """The cursor after a round; a finished row stands still. Both ends of a split call this."""
  gain = jnp.where(cursor.live, committed(draft, verdict, end_ids), 0)
  length = cursor.length + gain
  newest = jnp.maximum(gain - 1, 0)
  last = jnp.take_along_axis(new_tokens(draft, verdict), newest[:, None], axis=1)[:, 0]
  last = jnp.where(gain > 0, last, cursor.last)
  live = cursor.live & (length < max_len) & ~is_end(last, end_ids)
  return Cursor(last, length, live, cursor.round + 1)


def result(edge: EdgeState) -> DecodeResult:
  """Reads the result out of a final state."""
  return DecodeResult(
    edge.tokens,
    edge.cursor.length,
    edge.counters,
    edge.origin == Origin.DRAFT,
    edge.origin,
    edge.commit_round,
  )


def summarize(counters: Counters) -> dict[str, Any]:
  """Totals over the batch as Python numbers, with the acceptance rate and tokens per target call."""
  total = {name: int(jnp.sum(getattr(counters, name))) for name in counters.__dataclass_fields__}
  total["acceptance"] = total["accepted"] / total["drafted"] if total["drafted"] else None
  return total
