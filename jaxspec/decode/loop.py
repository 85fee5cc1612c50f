"""The loop: one `jax.lax.while_loop` for every method.

1. `start`: the verifier prefills the condition and samples token 0; the drafter prefills.
2. Until every row is finished: `propose_step`, `verify_step`, `commit_step`.

Rows advance independently: each has its own length, acceptance and end, and is only *computed* together with the
others. A row ends at ``max_len`` tokens or with one of ``end_ids``, which it keeps as its last token. The three steps are
public: the fused loop, a Python loop and a split over a network run the same functions and give the same tokens.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from jaxspec import rng, trees
from jaxspec.decode.state import (
  Counters,
  DecodeResult,
  DecodeState,
  EdgeState,
  Origin,
  SpecParams,
  advance,
  committed,
  is_end,
  new_tokens,
  result,
  up_to_end,
)
from jaxspec.drafters.none import NO_DRAFTER
from jaxspec.types import Array, Cursor, Draft, Drafter, Key, PyTree, Verdict, Verifier, WhileLoopFn


def start(
  params: SpecParams,
  key: Key,
  condition: PyTree,
  *,
  drafter: Drafter,
  verifier: Verifier,
  max_len: int,
  end_ids: tuple[int, ...] = (),
) -> DecodeState:
  """State after the prefill, with token 0 committed in every row."""
  rows = jax.tree.leaves(condition)[0].shape[0]
  keys = rng.row_keys(key, rows)
  first_keys = rng.stream_keys(keys, rng.Stream.FIRST, jnp.int32(0))
  prefill, verifier_state = verifier.init(params.target, first_keys, condition, max_len, drafter.window)
  drafter_state = drafter.init(params.draft, condition, max_len, prefill)
  first = prefill.next_token

  at_zero = lambda value, dtype: jnp.zeros((rows, max_len), dtype).at[:, 0].set(value)
  zeros, ones = jnp.zeros((rows,), jnp.int32), jnp.ones((rows,), jnp.int32)
  edge = EdgeState(
    tokens=at_zero(first, first.dtype),
    origin=at_zero(int(Origin.FIRST), jnp.int8),
    commit_round=jnp.zeros((rows, max_len), jnp.int32),
    cursor=Cursor(first, ones, (ones < max_len) & ~is_end(first, end_ids), jnp.int32(0)),
    keys=keys,
    drafter=drafter_state,
    counters=Counters(zeros, zeros, zeros, ones, ones if drafter.calls_per_round else zeros),
  )
  return DecodeState(edge, verifier_state)


def propose_step(
  params: PyTree, edge: EdgeState, *, drafter: Drafter, end_ids: tuple[int, ...] = ()
) -> tuple[Draft, EdgeState]:
  """Drafts for every row; what would overrun the end of a row, or a drafted end, is cut from ``num_drafted``."""
  keys = rng.stream_keys(edge.keys, rng.Stream.DRAFT, edge.cursor.round)
  draft, drafter_state = drafter.propose(params, keys, edge.drafter, edge.cursor)
  room = edge.tokens.shape[1] - edge.cursor.length - 1  # one place belongs to the verifier's own token
  num_drafted = jnp.clip(draft.num_drafted, 0, jnp.maximum(room, 0))
  if draft.parents is None:  # the branches of a tree end apart; what lies behind an end is then left to commit_step
    num_drafted = up_to_end(draft.tokens, num_drafted, end_ids)
  draft = draft._replace(num_drafted=num_drafted)
  return draft, edge.replace(drafter=drafter_state)


def verify_step(
  params: PyTree, keys: Key, state: PyTree, cursor: Cursor, draft: Draft, *, verifier: Verifier
) -> tuple[Verdict, PyTree]:
  """Judges a draft.

  Args:
    keys: the row keys of the decode ``[B]`` (not yet folded with stream and round).
  """
  keys = rng.stream_keys(keys, rng.Stream.VERIFY, cursor.round)
  return verifier.verify(params, keys, state, cursor, draft)


def commit_step(
  params: PyTree, edge: EdgeState, draft: Draft, verdict: Verdict, *, drafter: Drafter, end_ids: tuple[int, ...] = ()
) -> EdgeState:
  """Writes what was decided and moves the lengths; this is the whole of rolling back."""
  cursor, live = edge.cursor, edge.cursor.live
  rows, max_len = edge.tokens.shape[:2]
  gain = jnp.where(live, committed(draft, verdict, end_ids), 0)

  block = new_tokens(draft, verdict)  # [B, K + 1], or [B, L + 1] on the path of a tree
  offset = jnp.arange(block.shape[1])[None]
  is_next = (offset == verdict.num_accepted[:, None]) & draft.needs_verify[:, None]
  ended_by = jnp.where(trees.ended_by_rejection(draft, verdict), int(Origin.REPLACED), int(Origin.BONUS))
  origin = jnp.where(is_next, ended_by[:, None], int(Origin.DRAFT)).astype(jnp.int8)

  slot = jnp.where(offset < gain[:, None], cursor.length[:, None] + offset, max_len)  # max_len is dropped
  row = jnp.arange(rows)[:, None]
  put = lambda buffer, values: buffer.at[row, slot].set(values, mode="drop")
  one = live.astype(jnp.int32)
  counters = edge.counters
  counters = Counters(
    rounds=counters.rounds + one,
    drafted=counters.drafted + one * draft.num_drafted,
    accepted=counters.accepted + jnp.minimum(verdict.num_accepted, gain),  # gain is 0 in finished rows
    target_calls=counters.target_calls + one * draft.needs_verify,
    draft_calls=counters.draft_calls + one * drafter.calls_per_round,
  )
  return edge.replace(
    tokens=put(edge.tokens, block),
    origin=put(edge.origin, origin),
    commit_round=put(edge.commit_round, jnp.broadcast_to(cursor.round + 1, slot.shape)),
    cursor=advance(cursor, draft, verdict, max_len, end_ids),
    drafter=drafter.commit(params, edge.drafter, cursor, draft, verdict),
    counters=counters,
  )


def decode_round(
  params: SpecParams, state: DecodeState, *, drafter: Drafter, verifier: Verifier, end_ids: tuple[int, ...] = ()
) -> DecodeState:
  """One round: propose, verify, commit."""
  draft, edge = propose_step(params.draft, state.edge, drafter=drafter, end_ids=end_ids)
  verdict, verifier_state = verify_step(
    params.target, edge.keys, state.verifier, edge.cursor, draft, verifier=verifier
  )
  edge = commit_step(params.draft, edge, draft, verdict, drafter=drafter, end_ids=end_ids)
  return DecodeState(edge, verifier_state)


@functools.partial(jax.jit, static_argnames=("drafter", "verifier", "max_len", "end_ids", "loop_fn"))
def _run(params, key, condition, *, drafter, verifier, max_len, end_ids, loop_fn) -> DecodeResult:
  state = start(params, key, condition, drafter=drafter, verifier=verifier, max_len=max_len, end_ids=end_ids)
  body = functools.partial(decode_round, params, drafter=drafter, verifier=verifier, end_ids=end_ids)
  return result(loop_fn(lambda s: jnp.any(s.edge.cursor.live), body, state).edge)


def speculate(
  params: SpecParams,
  key: Key,
  condition: PyTree,
  *,
  drafter: Drafter,
  verifier: Verifier,
  max_len: int,
  end_ids: tuple[int, ...] = (),
  loop_fn: WhileLoopFn = jax.lax.while_loop,
) -> DecodeResult:
  """Generates up to ``max_len`` tokens for every row by speculative decoding, in one compiled program.

  Args:
    params: `SpecParams` for the two sides.
    key: one typed key (row r uses ``fold_in(key, r)``) or ``[B]`` row keys; consumed. A row depends on its own key and
      condition only, so it decodes to the same tokens alone and in any batch.
    condition: the family's condition pytree with ``B`` rows.
    drafter: source of proposals, static.
    verifier: judge of proposals, static.
    max_len: tokens ``N`` of every row, static.
    end_ids: tokens that end a row before that, static; the row keeps the end token, and its later slots are 0.
    loop_fn: `jax.lax.while_loop`; `host_while_loop` runs the same compiled rounds from Python.
  Returns:
    `DecodeResult`.
  Raises:
    ValueError: if ``max_len`` is not positive, or the key has the wrong type or shape.

  Example:
    >>> import jax, jax.numpy as jnp, jaxspec
    >>> from jaxspec.models.conditions import ClassLabels
    >>> from jaxspec.models.llamagen import LlamaGenConfig, llamagen_fns
    >>> fns = llamagen_fns(LlamaGenConfig(num_layers=1, dim=16, num_heads=2, vocab_size=8, num_tokens=4, num_classes=3))
    >>> side = jaxspec.ModelParams(fns.init(jax.random.key(0)), jaxspec.sampling_params())
    >>> out = jaxspec.speculate(
    ...   jaxspec.SpecParams(side, side), jax.random.key(1), ClassLabels(jnp.array([0, 2])),
    ...   drafter=jaxspec.small_model(fns, window=2, warp=jaxspec.Warp()),
    ...   verifier=jaxspec.target_model(fns, jaxspec.lossless, warp=jaxspec.Warp()), max_len=4)
    >>> out.tokens.shape, out.lengths.tolist()
    ((2, 4), [4, 4])
  """
  if max_len < 1:
    raise ValueError(f"Must have max_len of at least 1, we instead got {max_len}")
  rng.row_keys(key, jax.tree.leaves(condition)[0].shape[0])
  kwargs = dict(drafter=drafter, verifier=verifier, max_len=max_len, end_ids=tuple(end_ids))
  if loop_fn is host_while_loop:
    return _run_on_host(params, key, condition, **kwargs)
  return _run(params, key, condition, **kwargs, loop_fn=loop_fn)


def autoregress(
  params: SpecParams,
  key: Key,
  condition: PyTree,
  *,
  verifier: Verifier,
  max_len: int,
  end_ids: tuple[int, ...] = (),
) -> DecodeResult:
  """Plain decoding, one token per pass: the same loop without a drafter.

  Without end tokens the number of rounds is constant. Arguments as in `speculate`; ``params.draft`` is not read.
  """
  params = SpecParams((), params.target)
  loop_fn = jax.lax.while_loop if end_ids else fixed_length_loop(max_len - 1)
  return speculate(
    params, key, condition, drafter=NO_DRAFTER, verifier=verifier, max_len=max_len, end_ids=end_ids, loop_fn=loop_fn
  )


@functools.cache
def fixed_length_loop(length: int) -> WhileLoopFn:
  """A loop of ``length`` rounds: a GPU then need not ask the host after each one."""

  def loop(cond_fun, body_fun, init_val):
    del cond_fun
    return jax.lax.fori_loop(0, length, lambda _, state: body_fun(state), init_val)

  return loop


def host_while_loop(cond_fun, body_fun, init_val):
  """`jax.lax.while_loop` in Python, for streaming and debugging."""
  state = init_val
  while bool(cond_fun(state)):
    state = body_fun(state)
  return state


_start = jax.jit(start, static_argnames=("drafter", "verifier", "max_len", "end_ids"))
_round = jax.jit(decode_round, static_argnames=("drafter", "verifier", "end_ids"), donate_argnames=("state",))


def iterate(
  params: SpecParams,
  key: Key,
  condition: PyTree,
  *,
  drafter: Drafter,
  verifier: Verifier,
  max_len: int,
  end_ids: tuple[int, ...] = (),
):
  """Yields the `EdgeState` after the prefill and after every round, as `speculate` would pass through them.

  The buffers of a yielded state are reused by the next round: read what you need before asking for more.
  """
  end_ids = tuple(end_ids)
  state = _start(params, key, condition, drafter=drafter, verifier=verifier, max_len=max_len, end_ids=end_ids)
  yield state.edge
  while bool(jnp.any(state.edge.cursor.live)):
    state = _round(params, state, drafter=drafter, verifier=verifier, end_ids=end_ids)
    yield state.edge


def _run_on_host(params, key, condition, *, drafter, verifier, max_len, end_ids) -> DecodeResult:
  state = _start(params, key, condition, drafter=drafter, verifier=verifier, max_len=max_len, end_ids=end_ids)
  body = functools.partial(_round, params, drafter=drafter, verifier=verifier, end_ids=end_ids)
  return result(host_while_loop(lambda s: jnp.any(s.edge.cursor.live), body, state).edge)


def accepted_by_round(outcome: DecodeResult) -> Array:
  """Tokens committed by each round ``[B, N]`` (column r is round r; column 0 the prefill): the heat map's data."""
  rows, max_len = outcome.commit_round.shape
  ones = (outcome.origin != int(Origin.EMPTY)).astype(jnp.int32)
  row = jnp.arange(rows)[:, None]
  return jnp.zeros((rows, max_len), jnp.int32).at[row, outcome.commit_round].add(ones)
