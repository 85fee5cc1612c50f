"""Sparse quantize-and-sample drafting under a bit budget (Bhattacharjee et al. 2025, arXiv 2510.09942; K-SQS and C-SQS).

One round of a row, from the accepted context:

1. For n = 1, 2, ...: run the draft network for q_n; keep a support; quantize it to the integer law qhat_n; look up its price
   b_n. If ``b_1 + .. + b_n`` exceeds the budget B, or n exceeds the window, stop before position n.
2. Draw the draft from qhat_n itself, never from q_n: that is why the round is lossless for every support, denominator and
   threshold. Move the sparsifier's state, checkpoint it, feed the draft back.

The number of drafts L is so decided online, for each row, and is 0 where the first law is too expensive; the verifier then
samples one token from its own law. The pass that finds the end of the round consumes the newest draft, so the cache holds
all drafts, and the sparsifier knows the law at every place where the round can end: rolling back its state is a gather.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxspec import rng
from jaxspec.codecs.codec import SparseCodec
from jaxspec.codecs.sparse_law import SparseLaw, draw
from jaxspec.models.sampling import ModelParams, Warp, probabilities
from jaxspec.types import Array, Cache, Cursor, Draft, Drafter, Key, ModelFns, PyTree, Verdict

# What happens where not even one law fits into the budget.
ON_EMPTY = ("cloud_token", "shrink_support")


class CompressedParams(NamedTuple):
  """The drafting side's parameters."""

  model: ModelParams
  sparsifier: PyTree  # `TopKParams` or `ConformalParams`
  budget: Array  # [] or [B] float32, bits of one round


class CompressedStats(NamedTuple):
  """What was spent and dropped so far, ``[B]``; token 0, which no round commits, is not part of it."""

  formula_bits: Array  # float32, price of all drafted tokens
  empty_rounds: Array  # int32, rounds without a draft
  dropped: Array  # float32, mass outside of the support, summed over committed tokens
  fed: Array  # float32, the same sum as the controller saw it
  support: Array  # int32, sizes of supports, summed over drafted tokens


class CompressedState(NamedTuple):
  """The cache holds every committed token except the last."""

  cache: Cache
  prefix_len: Array  # [] int32
  max_len: Array  # [] int32
  sparsifier: PyTree  # leaves [B]
  stats: CompressedStats


class CompressedTrace(NamedTuple):
  """The drafter's memory of one round, for its roll-back and its counts."""

  sparsifier: PyTree  # state before each position, leaves [B, K + 2]
  dropped: Array  # [B, K + 1] float32
  fed: Array  # [B, K + 1] float32
  bits: Array  # [B, K + 1] float32


class CompressedReport(NamedTuple):
  """`DecodeResult.report` of this drafter."""

  stats: CompressedStats
  sparsifier: PyTree  # final state: for C-SQS the `Threshold`


class _Round(NamedTuple):
  """Carry of the loop over positions."""

  place: Array  # []
  active: Array  # [B]
  token: Array  # [B] newest token
  spent: Array  # [B] bits
  num_drafted: Array  # [B]
  cache: Cache
  sparsifier: PyTree
  tokens: Array  # [B, K]
  law: SparseLaw  # [B, K, ...]
  trace: CompressedTrace


@functools.cache
def compressed(
  model: ModelFns,
  codec: SparseCodec,
  *,
  window: int = 16,
  warp: Warp = Warp(),
  on_empty: str = "cloud_token",
) -> Drafter:
  """Drafter of at most ``window`` tokens from quantized sparse laws, as many as the budget pays for.

  Args:
    model: the draft network, over ``codec.vocab`` tokens.
    codec: from `topk_lattice` or `conformal_lattice`.
    window: most drafts of a round. The published scheme has no such limit: at low temperature 320 drafts fit into its
      budget of 5000 bits, far more than are ever accepted.
    warp: static part of the logit processing, the same as the verifier's.
    on_empty: where the first law is too expensive: ``cloud_token`` sends an empty round; ``shrink_support`` keeps as many
      tokens of it as the budget pays for (no effect with coding ``trimmed``, whose price follows the counts).
  Raises:
    ValueError: for a setting out of range.
  """
  if window < 1:
    raise ValueError(f"Must have a draft window of at least 1, we instead got {window}")
  if on_empty not in ON_EMPTY:
    raise ValueError(f"Must have on_empty in {', '.join(ON_EMPTY)}, we instead got {on_empty!r}")
  sparsifier = codec.sparsifier

  def init(params: CompressedParams, condition: PyTree, max_len: int, prefill: Verdict) -> CompressedState:
    prefix_len = model.prefix_len(condition)
    rows = jax.tree.leaves(condition)[0].shape[0]
    cache = model.init_cache(rows, prefix_len + max_len + window)
    positions = jnp.arange(prefix_len)[None]
    weights = params.model.model
    _, cache = model.apply(weights, condition, cache, positions=positions, logits_at=jnp.zeros((1,), jnp.int32))
    real, whole = jnp.zeros((rows,)), jnp.zeros((rows,), jnp.int32)
    stats = CompressedStats(real, whole, real, real, whole)
    state = sparsifier.init(params.sparsifier, rows)
    return CompressedState(cache, jnp.int32(prefix_len), jnp.int32(max_len), state, stats)

  def propose(params: CompressedParams, keys: Key, state: CompressedState, cursor: Cursor) -> tuple[Draft, CompressedState]:
    rows = keys.shape[0]
    budget = jnp.broadcast_to(params.budget, (rows,))
    # One place of what is left of a row belongs to the verifier's own token.
    most = jnp.minimum(window, state.max_len - cursor.length - 1)

    def select(q: Array, threshold: PyTree, place: Array):
      cap = jnp.full((rows,), codec.max_support, jnp.int32)
      support = sparsifier.support(params.sparsifier, threshold, q, cap)
      if on_empty == "shrink_support" and codec.coding != "trimmed":
        fits = codec.affordable(support.size, budget)
        cap = jnp.where((place == 0) & (fits > 0), fits, cap)
        support = sparsifier.support(params.sparsifier, threshold, q, cap)
      law = codec.law(support)
      return support, law, codec.price(support, law)

    def step(carry: _Round) -> _Round:
      place = carry.place
      positions = (state.prefix_len + cursor.length - 1 + place)[:, None]
      output, cache = model.apply(params.model.model, carry.token[:, None], carry.cache, positions=positions)
      q = probabilities(warp(output.logits[:, 0], params.model.sampling))
      support, law, price = select(q, carry.sparsifier, place)
      drafts = carry.active & (carry.spent + price <= budget) & (place < most)
      entry = draw(law, rng.integer(keys, place, law.total))
      token = jnp.where(drafts, jnp.take_along_axis(law.ids, entry[:, None], axis=1)[:, 0], 0)
      after = sparsifier.update(params.sparsifier, carry.sparsifier, support)
      # Past the window (the pass that only consumes the newest draft) nothing is written.
      put = lambda buffer, value: buffer.at[:, place].set(_where(drafts, value, 0), mode="drop")
      note = lambda buffer, value, at: buffer.at[:, at].set(value)
      trace = carry.trace
      trace = CompressedTrace(
        jax.tree.map(lambda buffer, value: note(buffer, value, place + 1), trace.sparsifier, after),
        note(trace.dropped, support.dropped, place),
        note(trace.fed, sparsifier.error(support), place),
        note(trace.bits, price, place),
      )
      return _Round(
        place + 1,
        drafts & ~_is_end(cursor, token[:, None])[:, 0],
        jnp.where(drafts, token, carry.token),
        carry.spent + jnp.where(drafts, price, 0.0),
        carry.num_drafted + drafts.astype(jnp.int32),
        cache,
        after,
        put(carry.tokens, token),
        jax.tree.map(put, carry.law, law),
        trace,
      )

    real, whole = jnp.zeros((rows, window + 1)), jnp.zeros((rows, window), jnp.int32)
    tokens_of = jnp.zeros((rows, window, codec.max_support), jnp.int32)
    states = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[:, None], (rows, window + 2)), state.sparsifier)
    carry = _Round(
      jnp.int32(0),
      cursor.live,
      cursor.last,
      real[:, 0],
      whole[:, 0],
      state.cache,
      state.sparsifier,
      whole,
      SparseLaw(tokens_of, tokens_of, whole, whole),
      CompressedTrace(states, real, real, real),
    )
    # Every row needs the pass behind its last draft, at most window + 1 of them.
    end = jax.lax.while_loop(lambda c: jnp.any(c.active) & (c.place <= window), step, carry)
    drafted_end = jnp.any(_is_end(cursor, end.tokens) & (jnp.arange(window)[None] < end.num_drafted[:, None]), axis=1)
    draft = Draft(
      end.tokens,
      end.law,
      num_drafted=end.num_drafted,
      num_settled=jnp.zeros((rows,), jnp.int32),
      needs_verify=jnp.ones((rows,), bool),
      trace=end.trace,
      num_calls=end.num_drafted + 1 - drafted_end,
    )
    return draft, state._replace(cache=end.cache)

  def commit(
    params: CompressedParams, state: CompressedState, cursor: Cursor, draft: Draft, verdict: Verdict
  ) -> CompressedState:
    trace, live = draft.trace, cursor.live
    place = sparsifier.rollback_place(verdict.num_accepted, draft.num_drafted)
    gather = lambda buffer: jnp.take_along_axis(buffer, place[:, None], axis=1)[:, 0]
    moved = jax.tree.map(lambda buffer, old: jnp.where(live, gather(buffer), old), trace.sparsifier, state.sparsifier)
    one = live.astype(jnp.int32)
    column = jnp.arange(window + 1)[None]
    over_committed = lambda x: jnp.sum(jnp.where(column <= verdict.num_accepted[:, None], x, 0.0), axis=1)
    over_drafted = lambda x: jnp.sum(jnp.where(column < draft.num_drafted[:, None], x, 0.0), axis=1)
    stats = state.stats
    stats = CompressedStats(
      stats.formula_bits + one * over_drafted(trace.bits),
      stats.empty_rounds + one * (draft.num_drafted == 0),
      stats.dropped + one * over_committed(trace.dropped),
      stats.fed + one * over_committed(trace.fed),
      stats.support + one * jnp.sum(draft.proposal.size, axis=1),
    )
    return state._replace(sparsifier=moved, stats=stats)

  def report(state: CompressedState) -> CompressedReport:
    return CompressedReport(state.stats, state.sparsifier)

  return Drafter(init, propose, commit, window, calls_per_round=window + 1, report=report)


def _is_end(cursor: Cursor, tokens: Array) -> Array:
  """``[B, T]`` bool: the tokens that end their row."""
  return jnp.any(tokens[..., None] == jnp.atleast_1d(cursor.end)[None, None], axis=-1)


def _where(keep: Array, value: Array, other) -> Array:
  return jnp.where(keep.reshape(-1, *[1] * (value.ndim - 1)), value, other)
