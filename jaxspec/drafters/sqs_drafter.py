"""Sparse quantize-and-sample drafting under a bit budget (Bhattacharjee et al. 2025, arXiv 2510.09942; K-SQS and C-SQS).

One round of a row, from its committed tokens:

1. For n = 1, 2, ...: run the draft network for q_n; choose a support; quantize it to the integer distribution qhat_n; look
   up its price b_n. If ``b_1 + .. + b_n`` exceeds the budget B, or n exceeds the window, stop before position n.
2. Draw the draft from qhat_n itself, never from q_n. The round is therefore lossless for every support, denominator and
   threshold. Move the sparsifier's state, record it, and feed the draft back.

The number of drafts L is decided online for each row. It is 0 if the first distribution is too expensive; the target then
draws one token alone. With `SqsDrafter.chooses_length` a round also ends after a length that is chosen before it, from the
verdicts of the row's earlier rounds and a table of times (`jaxspec.drafters.draft_lengths`). The last pass of a round reads
the newest draft, so the cache holds all drafts. The sparsifier has seen the distribution at every position where the round
can end, so rolling back its state is a gather.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxspec.codecs.codec import SparseCodec
from jaxspec.codecs.sparse_distribution import SparseDistribution, draw
from jaxspec.core import commits, rng
from jaxspec.core.token_axes import at_position
from jaxspec.core.types import Array, Cache, Cursor, Draft, Drafter, Key, ModelFns, PyTree, Verdict
from jaxspec.drafters import draft_lengths, length_choice
from jaxspec.drafters.length_choice import LengthState
from jaxspec.sampling.logit_processing import ModelParams, Warp, probabilities

# Behaviour of a round if its first distribution exceeds the budget.
ON_EMPTY = ("cloud_token", "shrink_support")


class SqsParams(NamedTuple):
  """The draft side's parameters."""

  model: ModelParams
  sparsifier: PyTree  # `TopKParams` or `ConformalParams`
  budget: Array  # [] or [B] float32, bits of one round
  times: PyTree = ()  # [M] or [B, M] int32, of rounds of 0 to ``window`` drafts, if lengths are chosen; only ratios matter


class SqsStats(NamedTuple):
  """Cumulative costs and dropped mass, ``[B]``, without token 0, because no round commits it."""

  formula_bits: Array  # float32, price of all drafted tokens
  empty_rounds: Array  # int32, rounds without a draft
  dropped: Array  # float32, mass outside of the support, summed over committed tokens
  fed: Array  # float32, the controller's error, summed over committed tokens
  support: Array  # int32, sizes of supports, summed over drafted tokens


class SqsState(NamedTuple):
  """The cache holds every committed token except the last."""

  cache: Cache
  prefix_len: Array  # [] int32
  max_len: Array  # [] int32
  sparsifier: PyTree  # leaves [B]
  stats: SqsStats
  choice: LengthState | tuple  # leaves [B, ...]; () for fixed lengths


class SqsTrace(NamedTuple):
  """Record of one round, for the roll-back and the counters in `commit`."""

  sparsifier: PyTree  # state before each position, leaves [B, K + 2]
  dropped: Array  # [B, K + 1] float32
  fed: Array  # [B, K + 1] float32
  bits: Array  # [B, K + 1] float32


class SqsReport(NamedTuple):
  """`DecodeResult.report` of this drafter."""

  stats: SqsStats
  sparsifier: PyTree  # final state: for C-SQS the `Threshold`
  rounds: PyTree = ()  # [B, M] int32, rounds of each length, if lengths are chosen


class _Round(NamedTuple):
  """Carry of the loop over positions."""

  position: Array  # []
  active: Array  # [B]
  token: Array  # [B] newest token
  spent: Array  # [B] bits of the round so far
  num_drafted: Array  # [B]
  cache: Cache
  sparsifier: PyTree
  tokens: Array  # [B, K]
  distribution: SparseDistribution  # [B, K, ...]
  trace: SqsTrace


@dataclasses.dataclass(frozen=True)
class SqsDrafter(Drafter):
  """Drafter that draws from quantized sparse distributions, up to ``window`` and the bit budget.

  Attributes:
    model: the draft network, over ``codec.vocab`` tokens.
    codec: from `topk_lattice` or `conformal_lattice`.
    window: most drafts of a round. The published scheme has no such limit: at low temperature 320 drafts fit into its budget
      of 5000 bits, far more than the target accepts.
    warp: static part of the logit processing, the same as the target's.
    on_empty: action if the first distribution exceeds the budget: ``cloud_token`` drafts nothing, so the target draws one
      token; ``shrink_support`` truncates the support to the budget (without effect for the coding ``trimmed``, whose price
      depends on the counts).
    chooses_length: whether the most drafts of a round are chosen before it; else they are ``window``.
    bonus: whether the target adds a token after full acceptance; the choice reads it.
    block: whether the rule tests the drafts of a round together (`jaxspec.rules.block_rule`). Drafts behind an end token
      then decide about it too; else none are drafted.
  Raises:
    ValueError: for a setting out of range.
  """

  model: ModelFns
  codec: SparseCodec
  window: int = 16
  warp: Warp = Warp()
  on_empty: str = "cloud_token"
  chooses_length: bool = False
  bonus: bool = True
  block: bool = False

  def __post_init__(self):
    if self.window < 1:
      raise ValueError(f"Must have a draft window of at least 1, we instead got {self.window}")
    if self.on_empty not in ON_EMPTY:
      raise ValueError(f"Must have on_empty in {', '.join(ON_EMPTY)}, we instead got {self.on_empty!r}")

  @property
  def sparsifier(self):
    return self.codec.sparsifier

  @property
  def calls_per_round(self) -> int:
    return self.window + 1

  def init(self, params: SqsParams, keys: Key, condition: PyTree, max_len: int, prefill: Verdict) -> tuple[SqsState, None]:
    prefix_len = self.model.prefix_len(condition)
    rows = condition.batch_size
    cache = self.model.init_cache(rows, prefix_len + max_len + self.window)
    positions = jnp.arange(prefix_len)[None]
    weights = params.model.model
    _, cache = self.model.apply(weights, condition, cache, positions=positions, logits_at=jnp.zeros((1,), jnp.int32))
    real, whole = jnp.zeros((rows,)), jnp.zeros((rows,), jnp.int32)
    stats = SqsStats(real, whole, real, real, whole)
    state = self.sparsifier.init(params.sparsifier, rows)
    choice = draft_lengths.start(params.times, rows, self.window, max_len) if self.chooses_length else ()
    return SqsState(cache, jnp.int32(prefix_len), jnp.int32(max_len), state, stats, choice), None

  def read(self, params: SqsParams, state: SqsState, cursor: Cursor) -> SqsState:
    positions = (state.prefix_len + cursor.length - 1)[:, None]
    _, cache = self.model.apply(params.model.model, cursor.last[:, None], state.cache, positions=positions)
    return state._replace(cache=cache)

  def draft(self, params: SqsParams, keys: Key, state: SqsState, cursor: Cursor) -> tuple[Draft, SqsState, SqsTrace]:
    rows = keys.shape[0]
    budget = jnp.broadcast_to(params.budget, (rows,))
    # The last position of a row is for the target's own token.
    most = jnp.minimum(self.window, state.max_len - cursor.length - 1)
    if isinstance(state.choice, LengthState):
      length, choice = draft_lengths.choose(state.choice, params.times, cursor.live, bonus=self.bonus)
      most, state = jnp.minimum(most, length), state._replace(choice=choice)

    def select(q: Array, threshold: PyTree, position: Array):
      cap = jnp.full((rows,), self.codec.max_support, jnp.int32)
      support = self.sparsifier.support(params.sparsifier, threshold, q, cap)
      if self.on_empty == "shrink_support" and self.codec.coding != "trimmed":
        fits = self.codec.affordable(support.size, budget)
        cap = jnp.where((position == 0) & (fits > 0), fits, cap)
        support = self.sparsifier.support(params.sparsifier, threshold, q, cap)
      distribution = self.codec.distribution(support)
      return support, distribution, self.codec.price(support, distribution)

    def step(carry: _Round) -> _Round:
      position = carry.position
      positions = (state.prefix_len + cursor.length - 1 + position)[:, None]
      output, cache = self.model.apply(params.model.model, carry.token[:, None], carry.cache, positions=positions)
      q = probabilities(self.warp(output.need_logits()[:, 0], params.model.sampling, cursor.length + position))
      support, distribution, price = select(q, carry.sparsifier, position)
      drafted = carry.active & (carry.spent + price <= budget) & (position < most)
      entry = draw(distribution, rng.integer(keys, position, distribution.total))
      token = jnp.where(drafted, at_position(distribution.ids, entry), 0)
      after = self.sparsifier.update(params.sparsifier, carry.sparsifier, support)
      # The pass beyond the window only reads the newest draft and writes nothing.
      put = lambda buffer, value: buffer.at[:, position].set(_where(drafted, value, 0), mode="drop")
      note = lambda buffer, value, at: buffer.at[:, at].set(value)
      trace = carry.trace
      trace = SqsTrace(
        jax.tree.map(lambda buffer, value: note(buffer, value, position + 1), trace.sparsifier, after),
        note(trace.dropped, support.dropped, position),
        note(trace.fed, self.sparsifier.error(support), position),
        note(trace.bits, price, position),
      )
      return _Round(
        position + 1,
        drafted & ~self._stops_at(cursor, token),
        jnp.where(drafted, token, carry.token),
        carry.spent + jnp.where(drafted, price, 0.0),
        carry.num_drafted + drafted.astype(jnp.int32),
        cache,
        after,
        put(carry.tokens, token),
        jax.tree.map(put, carry.distribution, distribution),
        trace,
      )

    real, whole = jnp.zeros((rows, self.window + 1)), jnp.zeros((rows, self.window), jnp.int32)
    tokens_of = jnp.zeros((rows, self.window, self.codec.max_support), jnp.int32)
    states = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[:, None], (rows, self.window + 2)), state.sparsifier)
    carry = _Round(
      jnp.int32(0),
      cursor.live,
      cursor.last,
      real[:, 0],
      whole[:, 0],
      state.cache,
      state.sparsifier,
      whole,
      SparseDistribution(tokens_of, tokens_of, whole, whole),
      SqsTrace(states, real, real, real),
    )
    # Every row needs one more pass after its last draft: at most window + 1 passes.
    end = jax.lax.while_loop(lambda c: jnp.any(c.active) & (c.position <= self.window), step, carry)
    inside = jnp.arange(self.window)[None] < end.num_drafted[:, None]
    drafted_end = jnp.any(self._stops_at(cursor, end.tokens) & inside, axis=1)
    found = Draft.chain(end.tokens, end.distribution, end.num_drafted, end.num_drafted + 1 - drafted_end)
    return found, state._replace(cache=end.cache), end.trace

  def _stops_at(self, cursor: Cursor, tokens: Array) -> Array:
    """Whether a round ends after each of ``tokens``, as an end token."""
    return jnp.zeros(tokens.shape, bool) if self.block else commits.is_end_token(cursor, tokens)

  def commit(
    self,
    params: SqsParams,
    state: SqsState,
    cursor: Cursor,
    draft: Draft,
    trace: SqsTrace,
    verdict: Verdict,
  ) -> SqsState:
    if draft.tokens.shape[1] == 0:  # the target drew alone; there is no distribution to count
      return state
    live = cursor.live
    committed = commits.num_committed(draft, verdict)
    position = self.sparsifier.rollback_position(committed, verdict.num_accepted, draft.num_drafted)
    moved = lambda buffer, old: jnp.where(live, at_position(buffer, position), old)
    moved = jax.tree.map(moved, trace.sparsifier, state.sparsifier)
    one = live.astype(jnp.int32)
    column = jnp.arange(self.window + 1)[None]
    over_committed = lambda x: jnp.sum(jnp.where(column < committed[:, None], x, 0.0), axis=1)
    over_drafted = lambda x: jnp.sum(jnp.where(column < draft.num_drafted[:, None], x, 0.0), axis=1)
    stats = state.stats
    stats = SqsStats(
      stats.formula_bits + one * over_drafted(trace.bits),
      stats.empty_rounds + one * (draft.num_drafted == 0),
      stats.dropped + one * over_committed(trace.dropped),
      stats.fed + one * over_committed(trace.fed),
      stats.support + one * jnp.sum(draft.proposal.size, axis=1),
    )
    choice = state.choice
    if isinstance(choice, LengthState):
      outcome = length_choice.outcome(cursor, draft, verdict, state.max_len)
      choice = draft_lengths.ended(choice, params.times, outcome)
    return state._replace(sparsifier=moved, stats=stats, choice=choice)

  def report(self, state: SqsState) -> SqsReport:
    rounds = state.choice.rounds[:, 0] if isinstance(state.choice, LengthState) else ()
    return SqsReport(state.stats, state.sparsifier, rounds)


def _where(keep: Array, value: Array, other) -> Array:
  return jnp.where(keep.reshape(-1, *[1] * (value.ndim - 1)), value, other)
