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
  metrics: PyTree  # leaves [B, N], `Verdict.metrics` of the token in each slot


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
  metrics: PyTree = ()  # leaves [B, N], what the rule said about each token (`jaxspec.audited`); () if nothing


def committed(draft: Draft, verdict: Verdict) -> Array:
  """Tokens ``[B]`` a row gains: the accepted ones and the next token, or only the settled ones."""
  return jnp.where(draft.needs_verify, verdict.num_accepted + 1, draft.num_settled)


def advance(cursor: Cursor, draft: Draft, verdict: Verdict, max_len: int) -> Cursor:
  """The cursor after a round; a finished row stands still. Both ends of a split call this."""
  gain = jnp.where(cursor.live, committed(draft, verdict), 0)
  length = cursor.length + gain
  kept = trees.kept_tokens(draft, verdict)
  if kept.shape[1]:
    newest = jnp.clip(gain - 1, 0, kept.shape[1] - 1)
    settled = jnp.take_along_axis(kept, newest[:, None], axis=1)[:, 0]
    last = jnp.where(draft.needs_verify, verdict.next_token, settled)
  else:
    last = verdict.next_token
  last = jnp.where(gain > 0, last, cursor.last)
  return Cursor(last, length, cursor.live & (length < max_len), cursor.round + 1)


def result(edge: EdgeState) -> DecodeResult:
  """Reads the result out of a final state."""
  return DecodeResult(
    edge.tokens,
    edge.cursor.length,
    edge.counters,
    edge.origin == Origin.DRAFT,
    edge.origin,
    edge.commit_round,
    edge.metrics,
  )


def summarize(counters: Counters) -> dict[str, Any]:
  """Totals over the batch as Python numbers, with the acceptance rate and tokens per target call."""
  total = {name: int(jnp.sum(getattr(counters, name))) for name in counters.__dataclass_fields__}
  total["acceptance"] = total["accepted"] / total["drafted"] if total["drafted"] else None
  return total
