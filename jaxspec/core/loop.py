"""The loop: one `jax.lax.while_loop` for every method.

1. `start`: the target prefills the condition and draws token 0; the drafter prefills.
2. For the first ``target_prefix`` tokens: `prefix_round`. The target draws alone and the drafter only reads.
3. Until every row is finished: `decode_round`, which is `draft_round`, `verify_round`, `commit_reply`.

Rows are computed together but advance independently: each has its own length, acceptance and end token. The fused loop, a
Python loop and two machines run these same functions and give the same tokens. If shapes depend on the length (scales of
growing resolution), rows keep one length, and rounds are compiled once per length (`sweep`).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator
from typing import Any, Literal, TypeVar

import jax
import jax.numpy as jnp

from jaxspec.core import rng, trees, verdicts
from jaxspec.core.control_flow import run_if
from jaxspec.core.no_draft import NO_DRAFTER
from jaxspec.core.options import LARGEST_INT, check_length, plain
from jaxspec.core.precision import in_32_bits
from jaxspec.core.state import (
  Counters,
  DecodeResult,
  DecodeState,
  DraftSide,
  Origin,
  SpecParams,
  TargetSide,
  Waiting,
  result,
)
from jaxspec.core.types import Array, Cursor, Draft, Drafter, Key, PyTree, Verdict, Verifier

EndTokens = int | tuple[int, ...] | None
Loop = Literal["while", "fixed", "host"]
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
  return cursor._replace(live=cursor.live & ~verdicts.is_end_token(cursor, first))


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
  keys = rng.row_keys(key, condition.batch_size)
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
  return verdicts.stop_at_end_token(cursor, draft, verdict), state


def verify_round(params: PyTree, target: TargetSide, draft: Draft, *, verifier: Verifier) -> tuple[TargetSide, Verdict]:
  """Judges a draft, moves the target side's cursor, and replies with the verdict; the target side's part of a round.

  Args:
    params: the target's parameters.
  """
  verdict, state = verify_step(params, target.keys, target.verifier, target.cursor, draft, verifier=verifier)
  cursor = verdicts.advance(target.cursor, draft, verdict, target.max_len)
  return dataclasses.replace(target, cursor=cursor, verifier=state), verdict


@in_32_bits
def commit_reply(params: PyTree, waiting: Waiting, verdict: Verdict, *, drafter: Drafter) -> DraftSide:
  """Writes the committed tokens and moves the lengths; the draft side's part after the reply.

  Rejected drafts need no rollback: entries of a buffer after a row's length are never read.
  """
  side, draft, trace = waiting
  cursor, live = side.cursor, side.cursor.live
  rows, max_len = side.tokens.shape[:2]
  verified, local, accepted = draft.needs_verify, draft.num_local, verdict.num_accepted[:, None]
  gain = verdicts.num_committed(draft, verdict)
  block = verdicts.committed_block(draft, verdict)

  offset = jnp.arange(block.shape[1])[None]
  drafted_end = verdicts.ends_on_draft(cursor, draft, verdict)
  first_next = jnp.where(trees.ended_by_rejection(draft, verdict), int(Origin.REPLACED), int(Origin.BONUS))
  first_next = jnp.where(drafted_end, int(Origin.DRAFT), first_next)
  origin = jnp.where((offset == accepted) & verified[:, None], first_next[:, None], int(Origin.DRAFT))
  origin = jnp.where((offset > accepted) & verified[:, None], int(Origin.BONUS), origin)
  origin = jnp.where(offset < local[:, None], int(Origin.LOCAL), origin).astype(jnp.int8)

  position, row = verdicts.block_positions(cursor, draft, verdict, max_len), jnp.arange(rows)[:, None]
  put = lambda buffer, values: buffer.at[row, position].set(values, mode="drop")
  one = live.astype(jnp.int32)
  kept = jnp.minimum(local, gain)  # fewer than all if rows keep one length and another row stopped this one
  counters = side.counters
  counters = Counters(
    rounds=counters.rounds + one,
    drafted=counters.drafted + one * (draft.num_drafted - local),
    accepted=counters.accepted + jnp.where(live, verdict.num_accepted + drafted_end - kept, 0),
    local=counters.local + one * kept,
    target_calls=counters.target_calls + one * (verified & (gain > local)),
    draft_calls=counters.draft_calls + one * draft.num_calls,
  )
  return dataclasses.replace(
    side,
    tokens=put(side.tokens, block),
    origin=put(side.origin, origin),
    commit_round=put(side.commit_round, jnp.broadcast_to(_to_rows(cursor.round + 1), position.shape)),
    metrics=jax.tree.map(put, side.metrics, verdict.metrics),
    cursor=verdicts.advance(cursor, draft, verdict, max_len),
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


def sweep(
  params: SpecParams, state: DecodeState, *, drafter: Drafter, verifier: Verifier, max_len: int, target_prefix: int
) -> DecodeState:
  """All rounds of rows that keep one length (`Verifier.at`): each length once, skipped at run time if no row stops there."""
  for length in range(1, max_len):
    sizes = dict(length=length, max_len=max_len, target_prefix=target_prefix)
    body = functools.partial(round_at, params, drafter=drafter, verifier=verifier, **sizes)
    cursor = state.draft_side.cursor
    state = run_if(jnp.any(cursor.live & (cursor.length == length)), body, state)
  return state


@functools.partial(jax.jit, static_argnames=("drafter", "verifier", "max_len", "loop", "target_prefix"))
def _run(
  params: SpecParams,
  key: Key,
  condition: PyTree,
  end_token: Array,
  *,
  drafter: Drafter,
  verifier: Verifier,
  max_len: int,
  loop: Loop,
  target_prefix: int,
) -> DecodeResult:
  kwargs: dict[str, Any] = dict(drafter=drafter, verifier=verifier)
  state = start(params, key, condition, max_len=max_len, end_token=end_token, target_prefix=target_prefix, **kwargs)
  if verifier.in_step:
    return result(sweep(params, state, max_len=max_len, target_prefix=target_prefix, **kwargs).draft_side, drafter)
  if rounds := prefix_rounds(target_prefix, max_len):
    prefix = functools.partial(prefix_round, params, **kwargs)
    state = jax.lax.fori_loop(0, rounds, lambda _, s: prefix(s), state)
  body = functools.partial(decode_round, params, **kwargs)
  if loop == "fixed":
    state = jax.lax.fori_loop(0, max_len - 1 - rounds, lambda _, s: body(s), state)
  else:
    state = jax.lax.while_loop(lambda s: jnp.any(s.draft_side.cursor.live), body, state)
  return result(state.draft_side, drafter)


@in_32_bits
def speculate(
  params: SpecParams,
  key: Key,
  condition: PyTree,
  *,
  drafter: Drafter,
  verifier: Verifier,
  max_len: int,
  end_token: EndTokens = None,
  loop: Loop | None = None,
  target_prefix: int = 0,
) -> DecodeResult:
  """Generates ``max_len`` tokens for every row by speculative decoding, in one compiled program.

  Args:
    params: `SpecParams` for the two sides.
    key: one typed key (row r uses ``fold_in(key, r)``) or ``[B]`` row keys; consumed. A row depends on its own key and
      condition only, so it decodes to the same tokens alone and in any batch.
    condition: the family's condition pytree with ``B`` rows.
    drafter: source of proposals, static.
    verifier: judge of proposals, static.
    max_len: tokens ``N`` of every row, static.
    end_token: the token that ends a row (EOS), or several; None: rows end at their length only. Positions of a row after
      its end token stay 0, and ``lengths`` counts the others.
    loop: ``while`` ends after the round that finishes the last row. ``fixed`` has ``max_len - 1`` rounds, for which a GPU
      does not wait for the host; the number of rounds must not vary, so there is no drafter, no end token, and no
      `Verifier.in_step`. ``host`` calls each round from Python. None: ``fixed`` if possible, else ``while``.
    target_prefix: number of leading tokens of every row that the target draws alone, static; the drafter only reads them.
  Returns:
    `DecodeResult`.
  Raises:
    ValueError: if ``max_len`` is not positive, ``target_prefix`` is negative, the key has the wrong type or shape, or
      ``loop`` does not fit.

  Example:
    >>> import jax, jax.numpy as jnp, jaxspec
    >>> from jaxspec.models.conditions import ClassLabels
    >>> from jaxspec.models.llamagen import LlamaGenConfig, llamagen_fns
    >>> fns = llamagen_fns(LlamaGenConfig(num_layers=1, dim=16, num_heads=2, vocab_size=8, num_tokens=4, num_classes=3))
    >>> side = jaxspec.ModelParams(fns.init(jax.random.key(0)), jaxspec.sampling_params())
    >>> out = jaxspec.speculate(
    ...   jaxspec.SpecParams(side, side), jax.random.key(1), ClassLabels(jnp.array([0, 2])),
    ...   drafter=jaxspec.SmallModelDrafter(fns, window=2, warp=jaxspec.Warp()),
    ...   verifier=jaxspec.TargetVerifier(fns, jaxspec.lossless, warp=jaxspec.Warp()), max_len=4)
    >>> out.tokens.shape, out.lengths.tolist()
    ((2, 4), [4, 4])
  """
  max_len, key = check_length(max_len), rng.row_keys(key, condition.batch_size)
  prefix_rounds(target_prefix, max_len)
  end, loop = end_array(end_token), _loop_of(loop, drafter, verifier, end_token)
  kwargs: dict[str, Any] = dict(drafter=drafter, verifier=verifier, max_len=max_len, target_prefix=target_prefix)
  if loop == "host":
    for state in _states(params, key, condition, end, **kwargs):
      last = state
    return result(last.draft_side, drafter)
  return _run(params, key, condition, end, **kwargs, loop=loop)


def _loop_of(loop: Loop | None, drafter: Drafter, verifier: Verifier, end_token: EndTokens) -> Loop:
  """The loop of a decode; errors as in `speculate`."""
  varies = "a drafter" if drafter.window else "an end token" if end_tuple(end_token) else None
  varies = "rows in step" if varies is None and verifier.in_step else varies
  if loop not in (None, "while", "fixed", "host"):
    raise ValueError(f"Must have 'while', 'fixed' or 'host' as loop, we instead got {loop!r}")
  if loop == "fixed" and varies is not None:
    raise ValueError(f"Must have a constant number of rounds for loop 'fixed', we instead got {varies}")
  return loop or ("fixed" if varies is None else "while")


def autoregress(
  params: SpecParams,
  key: Key,
  condition: PyTree,
  *,
  verifier: Verifier,
  max_len: int,
  end_token: EndTokens = None,
) -> DecodeResult:
  """Plain decoding, one token per pass: the same loop without a drafter.

  Arguments as in `speculate`; ``params.draft`` is not read.
  """
  params = SpecParams((), params.target)
  return speculate(params, key, condition, drafter=NO_DRAFTER, verifier=verifier, max_len=max_len, end_token=end_token)


def end_tuple(end_token: EndTokens) -> tuple[int, ...]:
  """End tokens as a tuple, empty for none.

  Raises:
    ValueError: for values that are not ids.
  """
  found = plain(end_token)
  tokens = () if found is None else [plain(token) for token in found] if isinstance(found, Iterable) else [found]
  for token in tokens:
    if not isinstance(token, int) or isinstance(token, bool) or token > LARGEST_INT:
      raise ValueError(f"Must have an id, or several, as end_token, we instead got {end_token!r}")
  return tuple(token for token in tokens if token >= 0)


def end_array(end_token: EndTokens) -> Array:
  """End tokens in the form of a cursor: ``[]`` or ``[E]`` int32, -1 for none."""
  tokens = end_tuple(end_token)
  return jnp.asarray(-1 if not tokens else tokens if isinstance(plain(end_token), Iterable) else tokens[0], jnp.int32)


_start = jax.jit(start, static_argnames=("drafter", "verifier", "max_len", "target_prefix"))
_prefix_round = jax.jit(prefix_round, static_argnames=("drafter", "verifier"), donate_argnames=("state",))
_round = jax.jit(decode_round, static_argnames=("drafter", "verifier"), donate_argnames=("state",))
_round_at = jax.jit(
  round_at,
  static_argnames=("drafter", "verifier", "length", "max_len", "target_prefix"),
  donate_argnames=("state",),
)


def _states(
  params: SpecParams,
  key: Key,
  condition: PyTree,
  end_token: Array,
  *,
  drafter: Drafter,
  verifier: Verifier,
  max_len: int,
  target_prefix: int,
) -> Iterator[DecodeState]:
  """The state after the prefill and after every round, with one call per round."""
  kwargs: dict[str, Any] = dict(drafter=drafter, verifier=verifier)
  state = _start(params, key, condition, max_len=max_len, end_token=end_token, target_prefix=target_prefix, **kwargs)
  yield state
  in_step = verifier.in_step
  for _ in range(0 if in_step else prefix_rounds(target_prefix, max_len)):
    state = _prefix_round(params, state, **kwargs)
    yield state
  while bool(jnp.any(state.draft_side.cursor.live)):
    if in_step:
      length = int(state.draft_side.cursor.length[0])
      state = _round_at(params, state, length=length, max_len=max_len, target_prefix=target_prefix, **kwargs)
    else:
      state = _round(params, state, **kwargs)
    yield state


def iterate(
  params: SpecParams,
  key: Key,
  condition: PyTree,
  *,
  drafter: Drafter,
  verifier: Verifier,
  max_len: int,
  end_token: EndTokens = None,
  target_prefix: int = 0,
) -> Iterator[DraftSide]:
  """Yields the `DraftSide` after the prefill and after every round; rounds and arguments are those of `speculate`.

  The next round reuses the buffers of a yielded state, so copy values before it.
  """
  sizes, key = dict(max_len=check_length(max_len), target_prefix=target_prefix), rng.row_keys(key, condition.batch_size)
  for state in _states(params, key, condition, end_array(end_token), drafter=drafter, verifier=verifier, **sizes):
    yield state.draft_side


def accepted_by_round(outcome: DecodeResult) -> Array:
  """Number of tokens ``[B, N]`` int32 that each round committed; column r is round r, column 0 is the prefill."""
  rows, max_len = outcome.commit_round.shape
  ones = (outcome.origin != int(Origin.EMPTY)).astype(jnp.int32)
  row = jnp.arange(rows)[:, None]
  return jnp.zeros((rows, max_len), jnp.int32).at[row, outcome.commit_round].add(ones)
