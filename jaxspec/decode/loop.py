"""The loop: one `jax.lax.while_loop` for every method.

1. `start`: the verifier prefills the condition and samples token 0; the drafter prefills.
2. Until every row is finished: `propose_step`, `verify_step`, `commit_step`.

Rows advance independently: each has its own length, acceptance and end, and is only *computed* together with the
others. A round is three functions, one for each thing an end does: `edge_round` drafts and hands out a message,
`cloud_round` turns a message into a reply, `edge_commit` absorbs the reply. The fused loop, a Python loop and two
machines run these same functions and give the same tokens.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from jaxspec import rng, trees
from jaxspec.decode.state import (
  CloudState,
  Counters,
  DecodeResult,
  DecodeState,
  EdgeState,
  InFlight,
  Origin,
  SpecParams,
  advance,
  catch_up,
  committed,
  ends_on_draft,
  is_end,
  result,
  stop_at_end,
)
from jaxspec.drafters.none import NO_DRAFTER
from jaxspec.skipping import run_if
from jaxspec.token_axes import over_tokens
from jaxspec.types import Array, Backlog, Cursor, Draft, Drafter, Key, PyTree, Verdict, Verifier, WhileLoopFn


def start_cloud(
  params: PyTree,
  keys: Key,
  condition: PyTree,
  *,
  verifier: Verifier,
  max_len: int,
  window: int,
  end_token: Array | int = -1,
) -> tuple[CloudState, Verdict]:
  """The verifying side after its prefill.

  Args:
    params: the target's parameters.
    keys: row keys of the decode ``[B]``.
    window: the drafter's window.
    end_token: the token that ends a row, or several ``[E]``; -1 for none.
  Returns:
    The state, and the verdict that brings token 0 to the drafting side (`start_edge`).
  """
  first_keys = rng.stream_keys(keys, rng.Stream.FIRST, jnp.int32(0))
  prefill, state = verifier.init(params, first_keys, condition, max_len, window)
  return CloudState(_first_cursor(prefill, max_len, end_token), keys, jnp.int32(max_len), state), prefill


def start_edge(
  params: PyTree,
  keys: Key,
  condition: PyTree,
  prefill: Verdict,
  *,
  drafter: Drafter,
  max_len: int,
  end_token: Array | int = -1,
) -> EdgeState:
  """The drafting side after its prefill, with token 0 committed in every row; arguments as in `start_cloud`."""
  drafter_state = drafter.init(params, condition, max_len, prefill)
  rows = keys.shape[0]
  zeros, ones = jnp.zeros((rows,), jnp.int32), jnp.ones((rows,), jnp.int32)
  settled = zeros
  if drafter.open is not None:
    open_keys = rng.stream_keys(keys, rng.Stream.OPEN, jnp.int32(0))
    first, alone, drafter_state = drafter.open(params, open_keys, drafter_state, prefill)
    prefill, settled = prefill._replace(next_token=first), alone.astype(jnp.int32)
  first = prefill.next_token
  at_zero = lambda value, dtype: jnp.zeros((rows, max_len, *value.shape[1:]), dtype).at[:, 0].set(value)
  return EdgeState(
    tokens=at_zero(first, first.dtype),
    origin=at_zero(jnp.where(settled > 0, int(Origin.SETTLED), int(Origin.FIRST)).astype(jnp.int8), jnp.int8),
    commit_round=jnp.zeros((rows, max_len), jnp.int32),
    cursor=_first_cursor(prefill, max_len, end_token),
    read=zeros,
    keys=keys,
    drafter=drafter_state,
    counters=Counters(zeros, zeros, zeros, settled, 1 - settled, ones if drafter.calls_per_round else zeros),
    metrics=jax.tree.map(lambda leaf: at_zero(leaf[:, 0], leaf.dtype), prefill.metrics),
  )


def _first_cursor(prefill: Verdict, max_len: int, end_token: Array | int) -> Cursor:
  ones = jnp.ones(prefill.num_accepted.shape, jnp.int32)
  cursor = Cursor(prefill.next_token, ones, ones < max_len, jnp.int32(0), jnp.asarray(end_token, jnp.int32))
  return cursor._replace(live=cursor.live & ~is_end(cursor, cursor.last))


def start(
  params: SpecParams,
  key: Key,
  condition: PyTree,
  *,
  drafter: Drafter,
  verifier: Verifier,
  max_len: int,
  end_token: Array | int = -1,
) -> DecodeState:
  """State of both sides after the prefill, with token 0 committed in every row."""
  keys = rng.row_keys(key, jax.tree.leaves(condition)[0].shape[0])
  kwargs = dict(max_len=max_len, end_token=end_token)
  cloud, prefill = start_cloud(params.target, keys, condition, verifier=verifier, window=drafter.window, **kwargs)
  edge = start_edge(params.draft, keys, condition, prefill, drafter=drafter, **kwargs)
  return DecodeState(edge, cloud.verifier)


def propose_step(params: PyTree, edge: EdgeState, *, drafter: Drafter) -> tuple[Draft, EdgeState]:
  """Drafts for every row; what would overrun the end of a row is cut from ``num_drafted``."""
  keys = rng.stream_keys(edge.keys, rng.Stream.DRAFT, edge.cursor.round)
  draft, drafter_state = drafter.propose(params, keys, edge.drafter, edge.cursor)
  room = edge.tokens.shape[1] - edge.cursor.length - 1  # one place belongs to the verifier's own token
  num_drafted = jnp.clip(draft.num_drafted, 0, jnp.maximum(room, 0))
  # Settled tokens are final: a drafter may settle the last place of a row too.
  draft = draft._replace(num_drafted=jnp.maximum(num_drafted, draft.num_settled))
  return draft, edge.replace(drafter=drafter_state)


def verify_step(
  params: PyTree, keys: Key, state: PyTree, cursor: Cursor, draft: Draft, *, verifier: Verifier
) -> tuple[Verdict, PyTree]:
  """Judges a draft.

  Args:
    keys: the row keys of the decode ``[B]`` (not yet folded with stream and round).
  """
  keys = rng.stream_keys(keys, rng.Stream.VERIFY, cursor.round)
  verdict, state = verifier.verify(params, keys, state, cursor, draft)
  return stop_at_end(cursor, draft, verdict), state


def commit_step(params: PyTree, edge: EdgeState, draft: Draft, verdict: Verdict, *, drafter: Drafter) -> EdgeState:
  """Writes what was decided and moves the lengths; this is the whole of rolling back."""
  cursor, live = edge.cursor, edge.cursor.live
  rows, max_len = edge.tokens.shape[:2]
  kept = trees.kept_tokens(draft, verdict)
  gain = jnp.where(live, committed(draft, verdict), 0)

  offset = jnp.arange(kept.shape[1] + 1)[None]  # [1, K + 1], or [1, L + 1] on the path of a tree
  accepted = verdict.num_accepted[:, None]
  block = jnp.concatenate([kept, verdict.next_token[:, None]], axis=1)
  is_next = (offset == accepted) & draft.needs_verify[:, None]
  block = jnp.where(over_tokens(is_next, block), verdict.next_token[:, None], block)
  drafted_end = ends_on_draft(cursor, draft, verdict)
  ended_by = jnp.where(trees.ended_by_rejection(draft, verdict), int(Origin.REPLACED), int(Origin.BONUS))
  ended_by = jnp.where(drafted_end, int(Origin.DRAFT), ended_by)
  origin = jnp.where(is_next, ended_by[:, None], int(Origin.DRAFT))
  origin = jnp.where(offset < draft.num_settled[:, None], int(Origin.SETTLED), origin).astype(jnp.int8)

  slot = jnp.where(offset < gain[:, None], cursor.length[:, None] + offset, max_len)  # max_len is dropped
  row = jnp.arange(rows)[:, None]
  put = lambda buffer, values: buffer.at[row, slot].set(values, mode="drop")
  one = live.astype(jnp.int32)
  counters = edge.counters
  counters = Counters(
    rounds=counters.rounds + one,
    drafted=counters.drafted + one * (draft.num_drafted - draft.num_settled),
    accepted=counters.accepted + jnp.where(live, verdict.num_accepted + drafted_end - draft.num_settled, 0),
    settled=counters.settled + one * draft.num_settled,
    target_calls=counters.target_calls + one * draft.needs_verify,
    draft_calls=counters.draft_calls + one * (drafter.calls_per_round if draft.num_calls is None else draft.num_calls),
  )
  moved = advance(cursor, draft, verdict, max_len)
  return edge.replace(
    tokens=put(edge.tokens, block),
    origin=put(edge.origin, origin),
    commit_round=put(edge.commit_round, jnp.broadcast_to(cursor.round + 1, slot.shape)),
    metrics=jax.tree.map(put, edge.metrics, verdict.metrics),
    cursor=moved,
    read=jnp.where(live & draft.needs_verify, moved.length - 1, edge.read),
    drafter=drafter.commit(params, edge.drafter, cursor, draft, verdict),
    counters=counters,
  )


def edge_round(params: PyTree, edge: EdgeState, *, drafter: Drafter) -> tuple[InFlight, Draft]:
  """What the drafting side does before the exchange.

  Args:
    params: the draft's parameters.
  Returns:
    The waiting side, and the message to the verifier: the draft without its ``trace``.
  """
  draft, edge = propose_step(params, edge, drafter=drafter)
  message = draft._replace(trace=())
  if drafter.may_settle:
    message = message._replace(backlog=Backlog(edge.tokens, edge.read, edge.cursor.length, edge.cursor.round))
  return InFlight(edge, draft), message


def needs_exchange(cursor: Cursor, message: Draft) -> Array:
  """``[]`` bool: some live row has something to verify."""
  return jnp.any(cursor.live & message.needs_verify)


def reply_unasked(message: Draft, like: Verdict) -> Verdict:
  """The verdict of a round that nobody verifies: settled tokens are kept, the rest of ``like`` (shapes, dtypes) is 0."""
  nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like)
  return nothing._replace(num_accepted=message.num_settled)


def cloud_round(params: PyTree, cloud: CloudState, message: Draft, *, verifier: Verifier) -> tuple[CloudState, Verdict]:
  """What the verifying side does: judges a message, moves its own cursor, and replies with the verdict.

  Args:
    params: the target's parameters.
  """
  cursor = catch_up(cloud.cursor, message)
  verdict, state = verify_step(params, cloud.keys, cloud.verifier, cursor, message, verifier=verifier)
  return cloud.replace(cursor=advance(cursor, message, verdict, cloud.max_len), verifier=state), verdict


def edge_commit(params: PyTree, flight: InFlight, reply: Verdict, *, drafter: Drafter) -> EdgeState:
  """What the drafting side does with the reply."""
  return commit_step(params, flight.edge, flight.draft, reply, drafter=drafter)


def decode_round(params: SpecParams, state: DecodeState, *, drafter: Drafter, verifier: Verifier) -> DecodeState:
  """One round in one place: `edge_round`, `cloud_round`, `edge_commit`, with one cursor for both sides."""
  edge = state.edge
  cloud = CloudState(edge.cursor, edge.keys, jnp.int32(edge.tokens.shape[1]), state.verifier)
  flight, message = edge_round(params.draft, edge, drafter=drafter)

  def ask(exchange: tuple[Verdict | None, PyTree]) -> tuple[Verdict, PyTree]:
    after, reply = cloud_round(params.target, cloud.replace(verifier=exchange[1]), message, verifier=verifier)
    return reply, after.verifier

  if drafter.may_settle:
    unasked = reply_unasked(message, jax.eval_shape(ask, (None, cloud.verifier))[0])
    reply, verifier_state = run_if(needs_exchange(edge.cursor, message), ask, (unasked, cloud.verifier))
  else:
    reply, verifier_state = ask((None, cloud.verifier))
  return DecodeState(edge_commit(params.draft, flight, reply, drafter=drafter), verifier_state)


def lead_rounds(lead: int, drafter: Drafter) -> int:
  """Rounds by which the verifier alone brings every row to ``lead`` tokens; token 0 is there already.

  Raises:
    ValueError: if ``lead`` is negative, or the drafter cannot follow without drafting.
  """
  if lead < 0:
    raise ValueError(f"Must have lead of at least 0, we instead got {lead}")
  if lead > 1 and drafter.following is None:
    raise ValueError(f"Must have a drafter that can follow (Drafter.following) for a lead of {lead} tokens, it has none")
  return max(lead - 1, 0)


@functools.partial(jax.jit, static_argnames=("drafter", "verifier", "max_len", "loop_fn", "lead"))
def _run(params, key, condition, end_token, *, drafter, verifier, max_len, loop_fn, lead=0) -> DecodeResult:
  state = start(params, key, condition, drafter=drafter, verifier=verifier, max_len=max_len, end_token=end_token)
  if lead:
    following = functools.partial(decode_round, params, drafter=drafter.following, verifier=verifier)
    state = jax.lax.fori_loop(0, lead, lambda _, s: following(s), state)
  body = functools.partial(decode_round, params, drafter=drafter, verifier=verifier)
  return result(loop_fn(lambda s: jnp.any(s.edge.cursor.live), body, state).edge, drafter)


def speculate(
  params: SpecParams,
  key: Key,
  condition: PyTree,
  *,
  drafter: Drafter,
  verifier: Verifier,
  max_len: int,
  end_token: int | tuple[int, ...] | None = None,
  loop_fn: WhileLoopFn = jax.lax.while_loop,
  lead: int = 0,
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
    end_token: a row ends behind this token, or any of several; its later slots stay 0 and ``lengths`` tells. None: no
      such token.
    loop_fn: `jax.lax.while_loop`; `host_while_loop` runs the same compiled rounds from Python.
    lead: the verifier alone draws the first ``lead`` tokens of every row, static; the drafter only reads them. Needs a
      drafter with `Drafter.following`.
  Returns:
    `DecodeResult`.
  Raises:
    ValueError: if ``max_len`` is not positive, the key has the wrong type or shape, or the drafter cannot follow a lead.

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
  end = end_array(end_token)
  kwargs = dict(drafter=drafter, verifier=verifier, max_len=max_len, lead=lead_rounds(min(lead, max_len), drafter))
  if loop_fn is host_while_loop:
    return _run_on_host(params, key, condition, end, **kwargs)
  return _run(params, key, condition, end, **kwargs, loop_fn=loop_fn)


def autoregress(
  params: SpecParams,
  key: Key,
  condition: PyTree,
  *,
  verifier: Verifier,
  max_len: int,
  end_token: int | tuple[int, ...] | None = None,
) -> DecodeResult:
  """Plain decoding, one token per pass: the same loop without a drafter.

  Where no token ends a row, the number of rounds is constant. Arguments as in `speculate`; ``params.draft`` is not read.
  """
  params = SpecParams((), params.target)
  loop_fn = jax.lax.while_loop if _has_end(end_token) else fixed_length_loop(max_len - 1)
  kwargs = dict(max_len=max_len, end_token=end_token, loop_fn=loop_fn)
  return speculate(params, key, condition, drafter=NO_DRAFTER, verifier=verifier, **kwargs)


def _has_end(end_token: int | tuple[int, ...] | None) -> bool:
  return end_token is not None and end_token != ()


def end_array(end_token: int | tuple[int, ...] | None) -> Array:
  """The tokens that end a row, as a cursor holds them: ``[]`` or ``[E]`` int32."""
  return jnp.asarray(end_token if _has_end(end_token) else -1, jnp.int32)


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


_start = jax.jit(start, static_argnames=("drafter", "verifier", "max_len"))
_round = jax.jit(decode_round, static_argnames=("drafter", "verifier"), donate_argnames=("state",))


def iterate(
  params: SpecParams,
  key: Key,
  condition: PyTree,
  *,
  drafter: Drafter,
  verifier: Verifier,
  max_len: int,
  end_token: int | tuple[int, ...] | None = None,
  lead: int = 0,
):
  """Yields the `EdgeState` after the prefill and after every round, as `speculate` would pass through them.

  The buffers of a yielded state are reused by the next round: read what you need before asking for more.
  """
  end = end_array(end_token)
  state = _start(params, key, condition, drafter=drafter, verifier=verifier, max_len=max_len, end_token=end)
  yield state.edge
  for _ in range(lead_rounds(min(lead, max_len), drafter)):
    state = _round(params, state, drafter=drafter.following, verifier=verifier)
    yield state.edge
  while bool(jnp.any(state.edge.cursor.live)):
    state = _round(params, state, drafter=drafter, verifier=verifier)
    yield state.edge


def _run_on_host(params, key, condition, end_token, *, drafter, verifier, max_len, lead) -> DecodeResult:
  state = _start(params, key, condition, drafter=drafter, verifier=verifier, max_len=max_len, end_token=end_token)
  for _ in range(lead):
    state = _round(params, state, drafter=drafter.following, verifier=verifier)
  body = functools.partial(_round, params, drafter=drafter, verifier=verifier)
  return result(host_while_loop(lambda s: jnp.any(s.edge.cursor.live), body, state).edge, drafter)


def accepted_by_round(outcome: DecodeResult) -> Array:
  """Tokens committed by each round ``[B, N]`` (column r is round r; column 0 the prefill): the heat map's data."""
  rows, max_len = outcome.commit_round.shape
  ones = (outcome.origin != int(Origin.EMPTY)).astype(jnp.int32)
  row = jnp.arange(rows)[:, None]
  return jnp.zeros((rows, max_len), jnp.int32).at[row, outcome.commit_round].add(ones)
