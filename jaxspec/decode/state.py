"""What a decode carries from round to round, and what it returns."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

import flax.struct
import jax.numpy as jnp

from jaxspec import trees
from jaxspec.token_axes import over_tokens, token_at
from jaxspec.types import Array, Cursor, Draft, Drafter, Key, PyTree, Verdict


class Origin(enum.IntEnum):
  """Where a committed token came from."""

  EMPTY = 0
  FIRST = 1  # sampled from the prefill
  DRAFT = 2  # drafted and accepted
  REPLACED = 3  # drawn by the verifier after a rejection
  BONUS = 4  # drawn by the verifier after full acceptance; every token of plain decoding
  SETTLED = 5  # decided by the drafting side alone, never verified


class SpecParams(NamedTuple):
  """Everything traced that the two sides need; ``draft`` is ``()`` without a drafter."""

  draft: PyTree
  target: PyTree


@flax.struct.dataclass
class Counters:
  """Per-row counts ``[B]`` int32; a finished row no longer counts."""

  rounds: Array
  drafted: Array  # tokens proposed to the verifier (levels of a tree)
  accepted: Array  # proposed tokens kept
  settled: Array  # tokens decided by the drafting side alone
  target_calls: Array  # rounds that asked the target, and the prefill where it gave token 0
  draft_calls: Array  # forward passes of the draft network, its prefill included


@flax.struct.dataclass
class EdgeState:
  """The drafting side."""

  tokens: Array  # [B, N] int32, or [B, N, C] float; slots from ``cursor.length`` on are 0
  origin: Array  # [B, N] int8, an `Origin`
  commit_round: Array  # [B, N] int32, the round that committed each token; 0 is the prefill
  cursor: Cursor
  read: Array  # [B] int32, places the verifying side has read; all but the last, except behind settled tokens
  keys: Key  # [B]
  drafter: PyTree
  counters: Counters
  metrics: PyTree  # leaves [B, N], `Verdict.metrics` of the token in each slot


@flax.struct.dataclass
class DecodeState:
  """The carry of the fused loop: both sides."""

  edge: EdgeState
  verifier: PyTree


@flax.struct.dataclass
class CloudState:
  """The verifying side when the two sides are apart: it moves its own cursor."""

  cursor: Cursor
  keys: Key  # [B]
  max_len: Array  # [] int32
  verifier: PyTree


class InFlight(NamedTuple):
  """The drafting side while it waits for the verdict about its draft."""

  edge: EdgeState
  draft: Draft


class DecodeResult(NamedTuple):
  """Result of a decode.

  ``accepted_mask`` is True where a token was drafted and accepted: the acceptance map by position.
  """

  tokens: Array  # [B, N] int32, or [B, N, C] float; in generation order
  lengths: Array  # [B] int32
  counters: Counters
  accepted_mask: Array  # [B, N] bool
  origin: Array  # [B, N] int8
  commit_round: Array  # [B, N] int32
  metrics: PyTree = ()  # leaves [B, N], what the rule said about each token (`jaxspec.audited`); () if nothing
  report: PyTree = ()  # what the drafter counted by itself (`Drafter.report`)


def stop_at_end(cursor: Cursor, draft: Draft, verdict: Verdict) -> Verdict:
  """Ends a row at its end token: nothing behind the first accepted one is kept.

  The end token is then handed over as ``next_token``, so that every consumer of a verdict sees one committed block that
  ends where the row ends (`ends_on_draft` tells that it was drafted).
  """
  kept = trees.kept_tokens(draft, verdict)
  if kept.ndim > 2 or kept.shape[1] == 0:
    return verdict
  ends = is_end(cursor, kept) & (jnp.arange(kept.shape[1])[None] < verdict.num_accepted[:, None])
  found, first = jnp.any(ends, axis=1), jnp.argmax(ends, axis=1).astype(jnp.int32)
  end = jnp.take_along_axis(kept, first[:, None], axis=1)[:, 0]
  return verdict._replace(
    num_accepted=jnp.where(found, first, verdict.num_accepted), next_token=jnp.where(found, end, verdict.next_token)
  )


def ends_on_draft(cursor: Cursor, draft: Draft, verdict: Verdict) -> Array:
  """``[B]`` bool: ``next_token`` is an end token that was drafted and accepted (see `stop_at_end`)."""
  kept = trees.kept_tokens(draft, verdict)
  if kept.ndim > 2 or kept.shape[1] == 0:
    return jnp.zeros(verdict.num_accepted.shape, bool)
  place = jnp.minimum(verdict.num_accepted, kept.shape[1] - 1)
  drafted = jnp.take_along_axis(kept, place[:, None], axis=1)[:, 0]
  inside = verdict.num_accepted < draft.num_drafted
  return inside & is_end(cursor, drafted) & (verdict.next_token == drafted)


def committed(draft: Draft, verdict: Verdict) -> Array:
  """Tokens ``[B]`` a row gains: the accepted ones and the next token, or only the settled ones."""
  return jnp.where(draft.needs_verify, verdict.num_accepted + 1, draft.num_settled)


def advance(cursor: Cursor, draft: Draft, verdict: Verdict, max_len: int | Array) -> Cursor:
  """The cursor after a round; a finished row stands still. Both ends of a split call this."""
  gain = jnp.where(cursor.live, committed(draft, verdict), 0)
  length = cursor.length + gain
  kept = trees.kept_tokens(draft, verdict)
  if kept.shape[1]:
    newest = jnp.clip(gain - 1, 0, kept.shape[1] - 1)
    settled = token_at(kept, newest)
    last = jnp.where(over_tokens(draft.needs_verify, settled), verdict.next_token, settled)
  else:
    last = verdict.next_token
  last = jnp.where(over_tokens(gain > 0, last), last, cursor.last)
  return cursor._replace(
    last=last, length=length, live=cursor.live & (length < max_len) & ~is_end(cursor, last), round=cursor.round + 1
  )


def catch_up(cursor: Cursor, draft: Draft) -> Cursor:
  """The verifying side's cursor where it finds itself behind rounds it was not asked about; both ends in one place agree."""
  backlog = draft.backlog
  if backlog is None:
    return cursor
  last = token_at(backlog.tokens, jnp.maximum(backlog.length - 1, 0))
  asked = draft.needs_verify
  return cursor._replace(
    last=jnp.where(over_tokens(asked, last), last, cursor.last),
    length=jnp.where(asked, backlog.length, cursor.length),
    round=backlog.round,
  )


def is_end(cursor: Cursor, tokens: Array) -> Array:
  """``[...]`` bool of ``tokens [...]``: the ids that end their row; numbers that are no ids never do."""
  if not jnp.issubdtype(tokens.dtype, jnp.integer):
    return jnp.zeros(tokens.shape[:1], bool)
  ends = jnp.atleast_1d(jnp.asarray(cursor.end, tokens.dtype))
  return jnp.any(tokens[..., None] == ends.reshape((1,) * tokens.ndim + (-1,)), axis=-1)


def result(edge: EdgeState, drafter: Drafter) -> DecodeResult:
  """Reads the result out of a final state."""
  return DecodeResult(
    edge.tokens,
    edge.cursor.length,
    edge.counters,
    edge.origin == Origin.DRAFT,
    edge.origin,
    edge.commit_round,
    edge.metrics,
    drafter.report(edge.drafter) if drafter.report is not None else (),
  )


def summarize(counters: Counters) -> dict[str, Any]:
  """Totals over the batch as Python numbers, with the acceptance rate and tokens per target call."""
  total = {name: int(jnp.sum(getattr(counters, name))) for name in counters.__dataclass_fields__}
  total["acceptance"] = total["accepted"] / total["drafted"] if total["drafted"] else None
  return total
