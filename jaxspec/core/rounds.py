"""A round of a decode: draft, verify, commit; and the prefill before the first one.

The fused loop (`jaxspec.core.loop`), a Python loop and two machines run these functions and give the same tokens. A side
(`DraftSide`, `TargetSide`) is what one machine keeps between rounds.
"""

from __future__ import annotations

import dataclasses
from typing import TypeVar

import jax
import jax.numpy as jnp

from jaxspec.core import commits, rng
from jaxspec.core.control_flow import run_if
from jaxspec.core.precision import in_32_bits
from jaxspec.core.state import Counters, DecodeState, DraftSide, Origin, SpecParams, TargetSide, Waiting
from jaxspec.core.types import Array, Cursor, Draft, Drafter, Key, PyTree, Verdict, Verifier

_Part = TypeVar("_Part", Drafter, Verifier)


@in_32_bits
def start_target(
  params: PyTree,
  keys: Key,
  condition: PyTree,
  *,
  verifier: Verifier,
  max_len: int,
  window: int,
  end_token: Array | int = -1,
) -> tuple[TargetSide, Verdict]:
  """Runs the target's prefill and returns the target side.

  Args:
    params: the target's parameters.
    keys: row keys of the decode ``[B]``.
    window: the drafter's window.
    end_token: the end token, or several ``[E]``; -1 for none.
  Returns:
    The state, and the verdict with token 0 for the draft side (`start_draft`).
  """
  first_keys = rng.stream_keys(keys, rng.Stream.FIRST, jnp.int32(0))
  prefill, state = verifier.init(params, first_keys, condition, max_len, window)
  cursor = _first_cursor(prefill.next_tokens[:, 0], max_len, end_token)
  return TargetSide(cursor, keys, jnp.int32(max_len), state), prefill


@in_32_bits
def start_draft(
  params: PyTree,
  keys: Key,
  condition: PyTree,
  prefill: Verdict,
  *,
  drafter: Drafter,
  max_len: int,
  end_token: Array | int = -1,
  target_prefix: int = 0,
) -> DraftSide:
  """Runs the drafter's prefill and returns the draft side, with token 0 committed in every row.

  Args:
    prefill: the verdict of `start_target`, with the same other arguments.
    target_prefix: number of leading tokens that the target draws alone; if positive, it also draws token 0.
  """
  open_keys = rng.stream_keys(keys, rng.Stream.OPEN, jnp.int32(0))
  drafter_state, opening = drafter.init(params, open_keys, condition, max_len, prefill)
  rows = keys.shape[0]
  zeros = jnp.zeros((rows,), jnp.int32)
  first, local = prefill.next_tokens[:, 0], zeros
  if opening is not None and target_prefix == 0:
    first, local, drafter_state = opening.token, opening.is_local.astype(jnp.int32), opening.state
  at_zero = lambda value, dtype: jnp.zeros((rows, max_len, *value.shape[1:]), dtype).at[:, 0].set(value)
  return DraftSide(
    tokens=at_zero(first, first.dtype),
    origin=at_zero(jnp.where(local > 0, int(Origin.LOCAL), int(Origin.FIRST)).astype(jnp.int8), jnp.int8),
    commit_round=jnp.zeros((rows, max_len), jnp.int32),
    cursor=_first_cursor(first, max_len, end_token),
    keys=keys,
    drafter=drafter_state,
    counters=Counters(zeros, zeros, zeros, local, 1 - local, zeros + drafter.calls_to_read),
    metrics=jax.tree.map(lambda leaf: at_zero(leaf[:, 0], leaf.dtype), prefill.metrics),
  )


def _first_cursor(first: Array, max_len: int, end_token: Array | int) -> Cursor:
  ones = jnp.ones(first.shape[:1], jnp.int32)
  cursor = Cursor(first, ones, ones < max_len, jnp.int32(0), jnp.asarray(end_token, jnp.int32))
  return cursor._replace(live=cursor.live & ~commits.is_end_token(cursor, first))


def start(
  params: SpecParams,
  key: Key,
  condition: PyTree,
  *,
  drafter: Drafter,
  verifier: Verifier,
  max_len: int,
  end_token: Array | int = -1,
  target_prefix: int = 0,
) -> DecodeState:
  """Runs both prefills and returns both sides, with token 0 committed in every row; arguments as in `speculate`."""
  rows = condition.batch_size
  keys = rng.row_keys(key, rows)
  target, prefill = start_target(
    params.target, keys, condition, verifier=verifier, max_len=max_len, window=drafter.window, end_token=end_token
  )
  side = start_draft(
    params.draft,
    keys,
    condition,
    prefill,
    drafter=drafter,
    max_len=max_len,
    end_token=end_token,
    target_prefix=target_prefix,
  )
  if drafter.keeps_rounds_open and rows > 1:
    side = dataclasses.replace(side, cursor=side.cursor._replace(round=jnp.zeros((rows,), jnp.int32)))
  return DecodeState(side, target.verifier)


@in_32_bits
def draft_round(params: PyTree, side: DraftSide, *, drafter: Drafter) -> Waiting:
  """Drafts for every row, never beyond the last position of a row; the draft side's part before the exchange.

  Args:
    params: the drafter's parameters.
  Returns:
    The draft side while it waits; its ``draft`` is the message to the target side.
  """
  keys = rng.stream_keys(side.keys, rng.Stream.DRAFT, side.cursor.round)
  draft, state, trace = drafter.draft(params, keys, side.drafter, side.cursor)
  room = side.tokens.shape[1] - side.cursor.length - 1  # one position belongs to the target's own token
  # Locally accepted tokens are final: they may also take the last position of a row.
  num_drafted = jnp.maximum(jnp.clip(draft.num_drafted, 0, jnp.maximum(room, 0)), draft.num_local)
  return Waiting(dataclasses.replace(side, drafter=state), draft._replace(num_drafted=num_drafted), trace)


@in_32_bits
def verify_step(
  params: PyTree, keys: Key, state: PyTree, cursor: Cursor, draft: Draft, *, verifier: Verifier
) -> tuple[Verdict, PyTree]:
  """Judges a draft and ends rows at their end token.

  Args:
    keys: the row keys of the decode ``[B]`` (not yet folded with stream and round).
  """
  keys = rng.stream_keys(keys, rng.Stream.VERIFY, cursor.round)
  verdict, state = verifier.verify(params, keys, state, cursor, draft)
  return commits.stop_at_end_token(cursor, draft, verdict), state


def verify_round(params: PyTree, target: TargetSide, draft: Draft, *, verifier: Verifier) -> tuple[TargetSide, Verdict]:
  """Judges a draft, moves the target side's cursor, and replies with the verdict; the target side's part of a round.

  Args:
    params: the target's parameters.
  """
  verdict, state = verify_step(params, target.keys, target.verifier, target.cursor, draft, verifier=verifier)
  cursor = commits.advance(target.cursor, draft, verdict, target.max_len)
  return dataclasses.replace(target, cursor=cursor, verifier=state), verdict


@in_32_bits
def commit_reply(params: PyTree, waiting: Waiting, verdict: Verdict, *, drafter: Drafter) -> DraftSide:
  """Writes the committed tokens and moves the lengths; the draft side's part after the reply.

  Rejected drafts need no rollback: entries of a buffer after a row's length are never read.
  """
  side, draft, trace = waiting
  cursor, live = side.cursor, side.cursor.live
  rows, max_len = side.tokens.shape[:2]
  verified, local = draft.needs_verify, draft.num_local
  gain = commits.num_committed(draft, verdict)
  block = commits.committed_block(draft, verdict)

  position, row = commits.block_positions(cursor, draft, verdict, max_len), jnp.arange(rows)[:, None]
  put = lambda buffer, values: buffer.at[row, position].set(values, mode="drop")
  one = live.astype(jnp.int32)
  kept = jnp.minimum(local, gain)  # fewer than all if rows keep one length and another row stopped this one
  counters = side.counters
  ended = one * commits.ends_round(draft) if jnp.ndim(cursor.round) else one
  counters = Counters(
    rounds=counters.rounds + ended,
    drafted=counters.drafted + one * (draft.num_drafted - local),
    accepted=counters.accepted + jnp.where(live, commits.num_accepted(cursor, draft, verdict) - kept, 0),
    local=counters.local + one * kept,
    target_calls=counters.target_calls + one * (verified & (gain > local)),
    draft_calls=counters.draft_calls + one * draft.num_calls,
  )
  return dataclasses.replace(
    side,
    tokens=put(side.tokens, block),
    origin=put(side.origin, commits.committed_origin(cursor, draft, verdict)),
    commit_round=put(side.commit_round, jnp.broadcast_to(_to_rows(cursor.round + 1), position.shape)),
    metrics=jax.tree.map(put, side.metrics, verdict.metrics),
    cursor=commits.advance(cursor, draft, verdict, max_len),
    drafter=drafter.commit(params, side.drafter, cursor, draft, trace, verdict),
    counters=counters,
  )


def _to_rows(value: Array) -> Array:
  """``[]`` unchanged, ``[B]`` as ``[B, 1]``."""
  return value[:, None] if value.ndim else value


def needs_exchange(cursor: Cursor, draft: Draft) -> Array:
  """``[]`` bool: some live row needs verification."""
  return jnp.any(cursor.live & draft.needs_verify)


def reply_to_nothing(draft: Draft, like: Verdict) -> Verdict:
  """The verdict of a round without an exchange: local tokens count as accepted, other fields are 0.

  Args:
    like: a verdict that gives shapes and dtypes.
  """
  nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like)
  return nothing._replace(num_accepted=draft.num_local)


def _target_of(side: DraftSide, verifier_state: PyTree) -> TargetSide:
  """The target side in the fused loop; it shares the cursor of the draft side."""
  return TargetSide(side.cursor, side.keys, jnp.int32(side.tokens.shape[1]), verifier_state)


def judge_round(
  params: PyTree, side: DraftSide, state: PyTree, draft: Draft, *, drafter: Drafter, verifier: Verifier
) -> tuple[Verdict, PyTree]:
  """The target side's part of a round in one program, with the draft side's cursor; skipped if no row needs it.

  Args:
    params: the target's parameters.
    state: the verifier's.
  """

  def ask(exchange: tuple[Verdict | None, PyTree]) -> tuple[Verdict, PyTree]:
    after, verdict = verify_round(params, _target_of(side, exchange[1]), draft, verifier=verifier)
    return verdict, after.verifier

  if not drafter.may_accept_locally:
    return ask((None, state))
  silent = reply_to_nothing(draft, jax.eval_shape(ask, (None, state))[0])
  return run_if(needs_exchange(side.cursor, draft), ask, (silent, state))


def decode_round(params: SpecParams, state: DecodeState, *, drafter: Drafter, verifier: Verifier) -> DecodeState:
  """One round in one program: `draft_round`, `judge_round`, `commit_reply`, with one cursor for both sides."""
  waiting = draft_round(params.draft, state.draft_side, drafter=drafter)
  verdict, verifier_state = judge_round(
    params.target, state.draft_side, state.verifier, waiting.draft, drafter=drafter, verifier=verifier
  )
  return DecodeState(commit_reply(params.draft, waiting, verdict, drafter=drafter), verifier_state)


def read_round(params: PyTree, side: DraftSide, *, drafter: Drafter) -> Waiting:
  """Reads the committed tokens without drafting; the draft side's part of a round while the target draws alone."""
  state = drafter.read(params, side.drafter, side.cursor)
  draft = Draft.empty(side.cursor.last)
  calls = jnp.full(draft.num_drafted.shape, drafter.calls_to_read, jnp.int32)
  return Waiting(dataclasses.replace(side, drafter=state), draft._replace(num_calls=calls), ())


def prefix_round(params: SpecParams, state: DecodeState, *, drafter: Drafter, verifier: Verifier) -> DecodeState:
  """One round in which the target draws one token alone."""
  waiting = read_round(params.draft, state.draft_side, drafter=drafter)
  target = _target_of(state.draft_side, state.verifier)
  target, verdict = verify_round(params.target, target, waiting.draft, verifier=verifier)
  return DecodeState(commit_reply(params.draft, waiting, verdict, drafter=drafter), target.verifier)


def prefix_rounds(target_prefix: int, max_len: int) -> int:
  """Rounds of `prefix_round` up to ``target_prefix`` tokens in every row; the prefill has drawn token 0.

  Raises:
    ValueError: if ``target_prefix`` is negative.
  """
  if target_prefix < 0:
    raise ValueError(f"Must have target_prefix of at least 0, we instead got {target_prefix}")
  return max(min(target_prefix, max_len) - 1, 0)


def at_length(part: _Part, length: int, max_len: int) -> _Part:
  """The drafter or verifier of rounds in which every row has ``length`` tokens; itself, if one serves all lengths."""
  return part.at(length, max_len)


def round_at(
  params: SpecParams,
  state: DecodeState,
  *,
  drafter: Drafter,
  verifier: Verifier,
  length: int,
  max_len: int,
  target_prefix: int,
) -> DecodeState:
  """One round of rows that all have ``length`` tokens, static; shapes of the round may depend on it."""
  drafter, verifier = at_length(drafter, length, max_len), at_length(verifier, length, max_len)
  return (prefix_round if length < target_prefix else decode_round)(params, state, drafter=drafter, verifier=verifier)
