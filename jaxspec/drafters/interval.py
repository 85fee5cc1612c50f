"""A device that verifies itself and asks the cloud only where it is not certain (CIAR, arXiv 2603.25463, Algorithm 1).

One round of a row:

1. *Run.* Draw the next token from the device's own law and score its uncertainty U. While the gate says that U is small
   enough the token is final, and the device goes on, for ``max_run`` tokens at most.
2. *Window.* The first token whose U is too large begins a window of up to ``window`` drafts, which are not gated (with
   ``early_close`` the window ends before the first certain one). Then the row needs verification.
3. The verdict keeps some of the window and adds one token.

A run that was stopped by ``max_run``, or by the end of the row, is committed without any exchange. The first ``prefix``
tokens come from the cloud. Token 0 is the device's own where it is certain of it, else that of the cloud's prefill.

With interval features every token that the device made (or only those of windows, or only settled ones) comes with a vector
that the cloud adds to its embedding; they wait, by place, until the cloud reads the token.

The draws of a round are those of `small_model`: with a gate that never opens and equal keys, tokens are those of ordinary
speculative decoding. The method as a whole is lossy; what was settled follows the device.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxspec import rng
from jaxspec.drafters.draws import DenseDraw, WindowDraw
from jaxspec.drafters.last_two import feed_last_two, token_before_last
from jaxspec.intervals.gate import Gate
from jaxspec.intervals.heads import combined_logits
from jaxspec.intervals.scores import ScoreFn
from jaxspec.models.interval_features import INJECT, IntervalFeaturesFns, as_sent
from jaxspec.models.sampling import ModelParams, Warp
from jaxspec.types import Array, Cache, Cursor, Draft, Drafter, Intervals, Key, ModelFns, ModelOutput, PyTree, Verdict


class GatedParams(NamedTuple):
  """The device's parameters."""

  model: ModelParams
  gate: PyTree  # of the gate: tau, or `ConformalParams`
  prefix: Array  # [] or [B] int32, leading tokens that the cloud draws
  draw: PyTree = ()  # of the draw: `TopKParams` of a `SparseDraw`
  features: PyTree = ()  # of the interval features


class GatedReport(NamedTuple):
  """`DecodeResult.report` of this drafter."""

  scores: Array  # [B, N] float32, uncertainty at every place that was scored, NaN elsewhere
  sent: Array  # [B] int32, tokens that went up: all that was not read (a token of the cloud's own too) and windows
  gate: PyTree  # the gate's last state


class IntervalState(NamedTuple):
  """The cache holds every committed token except the last two."""

  cache: Cache
  previous: Array  # [B] the token before the last
  prefix_len: Array  # [] int32
  gate: PyTree  # leaves [B]
  unsent: Array  # [B] int32, committed tokens that the cloud has not read, the last one included
  report: GatedReport
  inject: PyTree = ()  # [B, N, D] interval features by place, 0 where a token has none; () without
  opening: tuple = ()  # between `init` and `open`: what the device says about token 0


class _Heard(NamedTuple):
  """What the network says at one place of every row."""

  intervals: Intervals  # [B, H, V]
  features: Array  # [B, D]


class _Round(NamedTuple):
  """Carry of a round; ``active`` rows go on."""

  step: Array  # []
  active: Array  # [B]
  asked: Array  # [B] the window has begun
  settled: Array  # [B]
  drafted: Array  # [B] tokens in the window
  calls: Array  # [B] passes
  token: Array  # [B] newest token
  cache: Cache
  tokens: Array  # [B, R + K]
  law: PyTree  # [B, K, ...]
  scores: Array  # [B, N]
  inject: PyTree  # [B, N, D]
  gate: PyTree  # [B]
  trace: PyTree  # [B, R + K + 1, ...] the gate before each place


class _Trace(NamedTuple):
  """Small state before each place; stays on the device."""

  gate: PyTree  # [B, R + K + 1, ...]
  judged: Array  # [B] the gate was consulted in this round


@functools.cache
def interval_gated(
  model: ModelFns,
  score_fn: ScoreFn,
  gate: Gate,
  *,
  window: int,
  max_run: int = 16,
  warp: Warp = Warp(),
  combination: str = "ensemble",
  draw: WindowDraw = DenseDraw(),
  early_close: bool = False,
  features: IntervalFeaturesFns | None = None,
  inject: str = "none",
) -> Drafter:
  """Drafter that settles certain tokens; goes with `jaxspec.gated_target`.

  Args:
    model: the device; without an Inter-Head its radii count as 0.
    score_fn: uncertainty of a place, before all logit processing.
    gate: threshold policy.
    window: most drafts of an exchange, K.
    max_run: most tokens settled in one round, R. Rows of a batch wait for each other for so long at most.
    warp: static part of the logit processing, the verifier's.
    combination: of several heads.
    draw: how tokens of a window are drawn. Settled ones are drawn likewise, but never from a quantized law.
    early_close: end a window before its first certain token.
    features: interval features; `Draft.aux` then holds them by place, ``[B, N, D]``.
    inject: which tokens come with them, one of `INJECT`.
  Raises:
    ValueError: for sizes that are not positive, or for tokens that are to come with features that the device lacks.
  """
  if min(window, max_run) < 1:
    raise ValueError(f"Must have window and max_run of at least 1, we instead got {window} and {max_run}")
  if inject not in INJECT:
    raise ValueError(f"Must have inject in {', '.join(INJECT)}, we instead got {inject!r}")
  if inject != "none" and features is None:
    raise ValueError(f"Must have a device with interval features to inject {inject}, we instead got one without")
  carries_settled, carries_window = inject in ("accepted", "both"), inject in ("window", "both")
  block = max_run + window
  own_draw = draw if isinstance(draw, DenseDraw) else DenseDraw()

  def init(params: GatedParams, condition: PyTree, max_len: int, prefill: Verdict) -> IntervalState:
    prefix_len = model.prefix_len(condition)
    rows = jax.tree.leaves(condition)[0].shape[0]
    cache = model.init_cache(rows, prefix_len + max_len + block)
    last = jnp.full((1,), prefix_len - 1, jnp.int32)
    output, cache = model.apply(
      params.model.model, condition, cache, positions=jnp.arange(prefix_len)[None], logits_at=last
    )
    zeros = jnp.zeros((rows,), jnp.int32)
    gate_state = gate.init(params.gate, rows)
    report = GatedReport(jnp.full((rows, max_len), jnp.nan, jnp.float32), zeros, ())
    opening = (_heard(output, jnp.broadcast_to(last, (rows,))),)
    buffer = () if inject == "none" else jnp.zeros((rows, max_len, features.width), jnp.float32)
    return IntervalState(cache, zeros, jnp.int32(prefix_len), gate_state, zeros + 1, report, buffer, opening)

  def judge(params: GatedParams, keys: Key, gate_state: PyTree, heard: _Heard, offset: Array):
    """Uncertainty, whether the gate lets it pass, and the processed law of one place."""
    score = score_fn(heard.intervals, heard.features, rng.score_keys(keys, offset))
    logits = warp(combined_logits(heard.intervals.centre, combination), params.model.sampling)
    return score, gate.accept(params.gate, gate_state, score), logits

  def with_features(params: GatedParams, buffer: PyTree, heard: _Heard, token: Array, place: Array, carries: Array):
    """The buffer with the features of ``token [B]`` at ``place [B]``, in rows whose token ``carries [B]`` some."""
    if inject == "none":
      return buffer
    vector = as_sent(features.apply(params.features, heard.intervals, heard.features, token))
    row = jnp.arange(token.shape[0])
    return buffer.at[row, place].set(jnp.where(carries[:, None], vector, 0.0), mode="drop")

  def open_row(params: GatedParams, keys: Key, state: IntervalState, prefill: Verdict) -> tuple[Array, Array, IntervalState]:
    (heard,) = state.opening
    offset = jnp.int32(0)
    score, certain, logits = judge(params, keys, state.gate, heard, offset)
    own = jnp.broadcast_to(params.prefix == 0, certain.shape)
    alone = own & certain
    token, _ = own_draw((), logits, keys, offset)
    gate_state = _select(own, gate.update(params.gate, state.gate, ~certain), state.gate)
    scores = state.report.scores.at[:, 0].set(jnp.where(own, score, jnp.nan))
    buffer = with_features(params, state.inject, heard, token, jnp.zeros_like(token), alone & carries_settled)
    state = state._replace(gate=gate_state, report=state.report._replace(scores=scores), inject=buffer, opening=())
    return jnp.where(alone, token, prefill.next_token), alone, state

  def propose(params: GatedParams, keys: Key, state: IntervalState, cursor: Cursor) -> tuple[Draft, IntervalState]:
    rows = keys.shape[0]
    row = jnp.arange(rows)
    max_len = state.report.scores.shape[1]
    from_cloud = cursor.length < params.prefix

    def decide(carry: _Round, heard: _Heard) -> _Round:
      """Draws the token of this place in every active row, and says which rows go on."""
      offset = carry.step
      place = cursor.length + offset
      score, certain, logits = judge(params, keys, carry.gate, heard, offset)
      settles = carry.active & ~carry.asked & certain
      begins = carry.active & ~carry.asked & ~certain
      goes_on = carry.active & carry.asked & ~(certain & early_close)
      # One place of what is left of a row belongs to the verifier's own token.
      drafts = (begins | goes_on) & (place < max_len - 1)
      own, _ = own_draw((), logits, keys, offset)
      sent, law = draw(params.draw, logits, keys, offset)
      token = jnp.where(settles, own, jnp.where(drafts, sent, carry.token))
      settled, drafted = carry.settled + settles, carry.drafted + drafts
      ends = jnp.any(token[:, None] == jnp.atleast_1d(cursor.end)[None], axis=1)
      more_settled = (settled < max_run) & (place < max_len - 1)
      more_drafts = (drafted < window) & (place < max_len - 2)
      at_window = jnp.where(drafts, carry.drafted, window)  # beyond the end: dropped
      written = jnp.where(settles | drafts, place, max_len)  # beyond the end: dropped
      carries = (settles & carries_settled) | (drafts & carries_window)
      after = _select(carry.active, gate.update(params.gate, carry.gate, begins), carry.gate)
      return carry._replace(
        step=offset + 1,
        active=((settles & more_settled) | (drafts & more_drafts)) & ~ends,
        asked=carry.asked | begins,
        settled=settled,
        drafted=drafted,
        calls=carry.calls + carry.active,
        token=token,
        tokens=carry.tokens.at[row, jnp.where(settles | drafts, offset, block)].set(token, mode="drop"),
        law=jax.tree.map(lambda buffer, new: buffer.at[row, at_window].set(new, mode="drop"), carry.law, law),
        scores=carry.scores.at[row, jnp.where(carry.active, place, max_len)].set(score, mode="drop"),
        inject=with_features(params, carry.inject, heard, token, written, carries),
        gate=after,
        trace=jax.tree.map(lambda buffer, new: buffer.at[:, offset + 1].set(new), carry.trace, after),
      )

    def step(carry: _Round) -> _Round:
      positions = (state.prefix_len + cursor.length + carry.step - 1)[:, None]
      output, cache = model.apply(params.model.model, carry.token[:, None], carry.cache, positions=positions)
      return decide(carry._replace(cache=cache), _heard(output, jnp.zeros((rows,), jnp.int32)))

    output, index, cache = feed_last_two(model, params.model.model, state.cache, state.previous, cursor, state.prefix_len)
    heard = _heard(output, index)
    shape_of_law = jax.eval_shape(lambda: draw(params.draw, heard.intervals.centre[:, 0], keys, jnp.int32(0))[1])
    zeros = jnp.zeros((rows,), jnp.int32)
    carry = _Round(
      step=jnp.int32(0),
      active=cursor.live & ~from_cloud,
      asked=jnp.zeros((rows,), bool),
      settled=zeros,
      drafted=zeros,
      calls=(~(cursor.live & ~from_cloud)).astype(jnp.int32),  # rows that draw nothing only read
      token=cursor.last,
      cache=cache,
      tokens=jnp.zeros((rows, block), jnp.int32),
      law=jax.tree.map(lambda leaf: jnp.zeros((rows, window, *leaf.shape[1:]), leaf.dtype), shape_of_law),
      scores=state.report.scores,
      inject=state.inject,
      gate=state.gate,
      trace=jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[:, None], (rows, block + 1, *leaf.shape[1:])), state.gate),
    )
    end = jax.lax.while_loop(lambda c: jnp.any(c.active), step, decide(carry, heard))
    draft = Draft(
      end.tokens,
      end.law,
      num_drafted=end.settled + end.drafted,
      num_settled=end.settled,
      needs_verify=from_cloud | end.asked,
      trace=_Trace(end.trace, ~from_cloud),
      aux=end.inject,
      num_calls=end.calls,
    )
    report = state.report._replace(scores=end.scores)
    return draft, state._replace(cache=end.cache, report=report, inject=end.inject)

  def commit(params: GatedParams, state: IntervalState, cursor: Cursor, draft: Draft, verdict: Verdict) -> IntervalState:
    live, asked = cursor.live, draft.needs_verify
    gained = jnp.where(asked, verdict.num_accepted + 1, draft.num_settled)
    # The gate was moved for every drawn token, and for the one that asked even if there was no room to draw it; a bonus
    # token is one more.
    moved = jnp.minimum(gained, draft.num_settled + jnp.maximum(draft.num_drafted - draft.num_settled, 1))
    pick = lambda buffer: jnp.take_along_axis(buffer, moved.reshape(-1, *[1] * (buffer.ndim - 1)), axis=1)[:, 0]
    kept = jax.tree.map(pick, draft.trace.gate)
    kept = _select(gained > moved, gate.update(params.gate, kept, jnp.zeros(gained.shape, bool)), kept)
    gate_state = _select(live & draft.trace.judged, kept, state.gate)
    in_window = draft.num_drafted - draft.num_settled
    sent = jnp.where(live & asked, state.unsent + draft.num_settled + in_window, 0)
    unsent = jnp.where(asked, 1, state.unsent + draft.num_settled)
    buffer = state.inject
    if inject != "none":  # the verdict's own token has no features, whatever was drafted there
      own = jnp.where(live & asked, cursor.length + verdict.num_accepted, buffer.shape[1])
      buffer = buffer.at[jnp.arange(live.shape[0]), own].set(0.0, mode="drop")
    return state._replace(
      inject=buffer,
      previous=jnp.where(live, token_before_last(cursor, draft, verdict), state.previous),
      gate=gate_state,
      unsent=jnp.where(live, unsent, state.unsent),
      report=state.report._replace(sent=state.report.sent + sent),
    )

  def report(state: IntervalState) -> GatedReport:
    return state.report._replace(gate=state.gate)

  return Drafter(
    init, propose, commit, block, calls_per_round=block, report=report, may_settle=True, open=open_row
  )


def _heard(output: ModelOutput, index: Array) -> _Heard:
  """The only place of an output with one law, whose features stand at ``index [B]``."""
  intervals = output.intervals
  if intervals is None:
    centre = output.logits[:, :, None]
    intervals = Intervals(centre, jnp.zeros_like(centre))
  features = jnp.take_along_axis(output.features, index[:, None, None], axis=1)[:, 0]
  return _Heard(jax.tree.map(lambda leaf: leaf[:, 0], intervals), features)


def _select(keep: Array, new: PyTree, old: PyTree) -> PyTree:
  return jax.tree.map(lambda a, b: jnp.where(keep.reshape(-1, *[1] * (a.ndim - 1)), a, b), new, old)
