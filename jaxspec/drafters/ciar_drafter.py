"""A drafter that accepts certain tokens locally (CIAR, arXiv 2603.25463, Algorithm 1).

The draft side is the edge, the target side the cloud. One round of a row:

1. *Run.* The edge draws the next token from its own distribution and scores its uncertainty U. While the gate accepts U, the
   token is accepted locally and the run continues, for ``max_run`` tokens at most.
2. *Window.* The first rejected token begins a window of up to ``window`` drafts. The gate does not apply to these drafts;
   with ``early_close`` the window ends before the first certain token. The row then needs verification.
3. *Verdict.* The cloud accepts some drafts of the window and adds one token.

A run that ends at ``max_run`` or at the end of the row is committed without an exchange. Token 0 is the edge's if it is
certain, else that of the cloud's prefill.

The cloud reads the locally accepted tokens in the next exchange. The drafter therefore carries all committed tokens and the
number that the cloud has read, and sends both with a draft (`PendingTokens`). With interval features, tokens of the edge
(all, only those of windows, or only local ones) have a vector that the cloud adds to their embedding.

Random numbers are used as in `small_model`: a gate that accepts nothing gives the tokens of speculative decoding with the
same keys. The method is lossy: locally accepted tokens follow the edge's distribution.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxspec.core import commits, rng
from jaxspec.core.control_flow import run_if
from jaxspec.core.payloads import PendingTokens
from jaxspec.core.token_axes import at_position
from jaxspec.core.types import (
  Array,
  Cache,
  Cursor,
  Draft,
  Drafter,
  FirstToken,
  Intervals,
  Key,
  ModelFns,
  ModelOutput,
  PyTree,
  Verdict,
)
from jaxspec.drafters.ciar_draws import DenseDraw, WindowDraw
from jaxspec.drafters.last_two import feed_last_two
from jaxspec.intervals.gate import Gate, Place
from jaxspec.intervals.heads import combined_logits
from jaxspec.intervals.scores import ScoreFn
from jaxspec.models.heads.interval_features import INJECT, IntervalFeaturesFns, as_sent
from jaxspec.sampling.logit_processing import Warp


class GatedParams(NamedTuple):
  """The edge's parameters."""

  model: Any  # `ModelParams`; of scales and denoising steps the side of their network
  gate: PyTree  # parameters of the gate: tau, or `ConformalParams`
  draw: PyTree = ()  # parameters of the draw: `TopKParams` of a `SparseDraw`
  features: PyTree = ()  # weights of the interval features
  score: PyTree = ()  # tables of the score


class GatedReport(NamedTuple):
  """`DecodeResult.report` of this drafter."""

  scores: Array  # [B, N] float32, uncertainty at every scored position, NaN elsewhere
  sent: Array  # [B] int32, tokens that the edge sent: windows and pending tokens
  gate: PyTree  # the gate's last state


class CiarState(NamedTuple):
  """The cache holds every committed token except the last two."""

  cache: Cache
  previous: Array  # [B] the token before the last
  prefix_len: Array  # [] int32
  gate: PyTree  # leaves [B]
  tokens: Array  # [B, N] int32, committed tokens
  read: Array  # [B] int32, leading tokens that the target has read
  report: GatedReport
  features: PyTree = ()  # [B, N, D] interval features by position, 0 for a token without them; () if unused
  open: PyTree = ()  # `_Round` of rows whose round goes on, without cache, scores and features; zeros in other rows


class _Heard(NamedTuple):
  """Output of the edge network at one position of every row."""

  intervals: Intervals  # [B, H, V]
  features: Array  # [B, D]


class _Round(NamedTuple):
  """Carry of a round; ``active`` rows go on."""

  offset: Array  # [B] tokens that were drawn; 0 before the round
  active: Array  # [B]
  needs_verify: Array  # [B] whether the window has begun, so that the row needs verification
  local: Array  # [B] tokens accepted locally
  drafted: Array  # [B] tokens in the window
  calls: Array  # [B] passes
  token: Array  # [B] newest token
  cache: Cache
  tokens: Array  # [B, R + K]
  proposal: PyTree  # [B, K, ...]
  scores: PyTree  # [B, N]
  features: PyTree  # [B, N, D]
  gate: PyTree  # [B]
  gates: PyTree  # [B, R + K + 1, ...] the gate before each position


@dataclasses.dataclass(frozen=True)
class CiarDrafter(Drafter):
  """Drafter that accepts certain tokens locally; its verifier is `jaxspec.verifiers.ciar_target.CiarVerifier`.

  Attributes:
    model: the edge network; without an Inter-Head its radii count as 0.
    score_fn: uncertainty of a position, before all logit processing.
    gate: threshold policy.
    most_drafts: of an exchange, K.
    max_run: most tokens accepted locally in one round, R; it bounds the waiting time of other rows in a batch.
    warp: static part of the logit processing, the same as the target's.
    combination: combination of several heads.
    draw: draw of the tokens of a window. Locally accepted tokens are drawn from the full distribution, with the same pick.
    early_close: end a window before its first certain token.
    features: interval features, sent by position as `PendingTokens.features`, ``[B, N, D]``.
    inject: tokens with interval features, one of `INJECT`.
  Raises:
    ValueError: for sizes that are not positive, an unknown ``inject``, or one that needs missing ``features``.
  """

  model: ModelFns
  score_fn: ScoreFn
  gate: Gate
  most_drafts: int
  max_run: int = 16
  warp: Warp = Warp()
  combination: str = "ensemble"
  draw: WindowDraw = DenseDraw()
  early_close: bool = False
  features: IntervalFeaturesFns | None = None
  inject: str = "none"

  def __post_init__(self):
    if min(self.most_drafts, self.max_run) < 1:
      sizes = f"{self.most_drafts} and {self.max_run}"
      raise ValueError(f"Must have most_drafts and max_run of at least 1, we instead got {sizes}")
    if self.inject not in INJECT:
      raise ValueError(f"Must have inject in {', '.join(INJECT)}, we instead got {self.inject!r}")
    if self.inject != "none" and self.features is None:
      wanted = f"an edge with interval features to inject {self.inject}, or inject none"
      raise ValueError(f"Must have {wanted}, we instead got an edge without")

  @property
  def carries_local(self):
    return self.inject in ("accepted", "both")

  @property
  def carries_window(self):
    return self.inject in ("window", "both")

  @property
  def block(self):
    return self.max_run + self.most_drafts

  @property
  def own_draw(self):
    return self.draw if isinstance(self.draw, DenseDraw) else DenseDraw()

  @property
  def window(self) -> int:
    return self.block

  @property
  def calls_per_round(self) -> int:
    return self.block

  may_accept_locally = True
  keeps_rounds_open = True

  def init(
    self, params: GatedParams, keys: Key, condition: PyTree, max_len: int, prefill: Verdict
  ) -> tuple[CiarState, FirstToken]:
    prefix_len = self.model.prefix_len(condition)
    rows = condition.batch_size
    cache = self.model.init_cache(rows, prefix_len + max_len + self.block)
    last = jnp.full((1,), prefix_len - 1, jnp.int32)
    positions = jnp.arange(prefix_len)[None]
    output, cache = self.model.apply(params.model.model, condition, cache, positions=positions, logits_at=last)
    zeros = jnp.zeros((rows,), jnp.int32)
    tokens = jnp.zeros((rows, max_len), jnp.int32).at[:, 0].set(prefill.next_tokens[:, 0])
    report = GatedReport(jnp.full((rows, max_len), jnp.nan, jnp.float32), zeros, ())
    buffer = () if self.features is None or self.inject == "none" else jnp.zeros((rows, max_len, self.features.width))
    gate = self.gate.init(params.gate, rows, prefill.feedback)
    state = CiarState(cache, zeros, jnp.int32(prefix_len), gate, tokens, zeros, report, buffer)

    heard = _heard(output, jnp.broadcast_to(last, (rows,)))
    score, certain, logits = self.judge(params, keys, state.gate, heard, jnp.int32(0), zeros)
    own, _ = self.own_draw((), logits, keys, jnp.int32(0))
    token = jnp.where(certain, own, prefill.next_tokens[:, 0])
    state = state._replace(open=self._no_round(params, keys, logits, gate))
    decided = state._replace(
      gate=self.gate.update(params.gate, state.gate, ~certain),
      tokens=tokens.at[:, 0].set(token),
      report=report._replace(scores=report.scores.at[:, 0].set(score)),
      features=self.with_features(params, buffer, heard, own, zeros, certain & self.carries_local),
    )
    return state, FirstToken(token, certain, decided)

  def _no_round(self, params: GatedParams, keys: Key, logits: Array, gate: PyTree) -> _Round:
    """`CiarState.open` without open rounds; of ``logits [B, V]`` only the shape is read."""
    rows = keys.shape[0]
    zeros, none = jnp.zeros((rows,), jnp.int32), jnp.zeros((rows,), bool)
    repeated = lambda num: lambda leaf: jnp.zeros((rows, num, *leaf.shape[1:]), leaf.dtype)
    token, proposal = jax.eval_shape(lambda: self.draw(params.draw, logits, keys, zeros))
    return _Round(
      offset=zeros,
      active=none,
      needs_verify=none,
      local=zeros,
      drafted=zeros,
      calls=zeros,
      token=jnp.zeros(token.shape, token.dtype),
      cache=(),
      tokens=jnp.zeros((rows, self.block), jnp.int32),
      proposal=jax.tree.map(repeated(self.most_drafts), proposal),
      scores=(),
      features=(),
      gate=jax.tree.map(jnp.zeros_like, gate),
      gates=jax.tree.map(repeated(self.block + 1), gate),
    )

  def judge(self, params: GatedParams, keys: Key, gate_state: PyTree, heard: _Heard, offset: Array, position: Array):
    """Uncertainty ``[B]``, whether the gate accepts it ``[B]``, and the processed logits ``[B, V]`` of ``position [B]``."""
    score = self.score_fn(heard.intervals, heard.features, rng.score_keys(keys, offset), params.score)
    logits = self.warp(combined_logits(heard.intervals.centre, self.combination), params.model.sampling, position)
    return score, self.gate.accept(params.gate, gate_state, score, Place(keys, offset, position)), logits

  def with_features(self, params: GatedParams, buffer: PyTree, heard: _Heard, token: Array, position: Array, carries: Array):
    """The buffer with the features of ``token [B]`` at ``position [B]``, or zeros in rows with ``carries [B]`` False."""
    if self.features is None or self.inject == "none":
      return buffer
    vector = as_sent(self.features.apply(params.features, heard.intervals, heard.features, token))
    row = jnp.arange(token.shape[0])
    return buffer.at[row, position].set(jnp.where(carries[:, None], vector, 0.0), mode="drop")

  def read(self, params: GatedParams, state: CiarState, cursor: Cursor) -> CiarState:
    _, _, cache = feed_last_two(self.model, params.model.model, state.cache, state.previous, cursor, state.prefix_len)
    return state._replace(cache=cache)

  def draft(self, params: GatedParams, keys: Key, state: CiarState, cursor: Cursor) -> tuple[Draft, CiarState, PyTree]:
    rows = keys.shape[0]
    row = jnp.arange(rows)
    max_len = state.tokens.shape[1]
    zeros = jnp.zeros((rows,), jnp.int32)
    own_rounds = jnp.ndim(cursor.round) > 0
    # Otherwise all rows end their round here, and a draft may be repeated without a commit.
    opened: _Round = state.open if own_rounds else jax.tree.map(jnp.zeros_like, state.open)
    unsent = zeros, jax.tree.map(lambda leaf: jnp.zeros_like(leaf[:, 0]), opened.proposal)

    def decide(carry: _Round, heard: _Heard) -> _Round:
      """Draws the token of this position in every active row and decides which rows continue."""
      offset = carry.offset
      position = cursor.length + offset
      score, certain, logits = self.judge(params, keys, carry.gate, heard, offset, position)
      is_local = carry.active & ~carry.needs_verify & certain
      begins = carry.active & ~carry.needs_verify & ~certain
      goes_on = carry.active & carry.needs_verify & ~(certain & self.early_close)
      # The last position of a row is for the target's own token.
      drafted = (begins | goes_on) & (position < max_len - 1)
      own, _ = self.own_draw((), logits, keys, offset)
      # Most tokens are local, and making a proposal takes longer than drawing a token.
      draw = lambda _, logits, offset: self.draw(params.draw, logits, keys, offset)
      sent, proposal = run_if(jnp.any(drafted), draw, unsent, logits, offset)
      token = jnp.where(is_local, own, jnp.where(drafted, sent, carry.token))
      num_local, num_drafted = carry.local + is_local, carry.drafted + drafted
      ends = commits.is_end_token(cursor, token)
      more_local = (num_local < self.max_run) & (position < max_len - 1)
      more_drafts = (num_drafted < self.most_drafts) & (position < max_len - 2)
      at_window = jnp.where(drafted, carry.drafted, self.most_drafts)  # beyond the end: dropped
      written = jnp.where(is_local | drafted, position, max_len)  # beyond the end: dropped
      carries = (is_local & self.carries_local) | (drafted & self.carries_window)
      after = _select(carry.active, self.gate.update(params.gate, carry.gate, begins), carry.gate)
      return carry._replace(
        offset=offset + carry.active,
        active=((is_local & more_local) | (drafted & more_drafts)) & ~ends,
        needs_verify=carry.needs_verify | begins,
        local=num_local,
        drafted=num_drafted,
        calls=carry.calls + carry.active,
        token=token,
        tokens=carry.tokens.at[row, jnp.where(is_local | drafted, offset, self.block)].set(token, mode="drop"),
        proposal=jax.tree.map(lambda buffer, new: buffer.at[row, at_window].set(new, mode="drop"), carry.proposal, proposal),
        scores=carry.scores.at[row, jnp.where(carry.active, position, max_len)].set(score, mode="drop"),
        features=self.with_features(params, carry.features, heard, token, written, carries),
        gate=after,
        gates=jax.tree.map(lambda buffer, new: buffer.at[row, offset + 1].set(new, mode="drop"), carry.gates, after),
      )

    edge = self.model, params.model.model

    def read_one(carry: _Round) -> _Round:
      positions = (state.prefix_len + cursor.length + carry.offset - 1)[:, None]
      output, cache = edge[0].apply(edge[1], carry.token[:, None], carry.cache, positions=positions)
      return decide(carry._replace(cache=cache), _heard(output, zeros))

    def read_two(carry: _Round) -> _Round:
      before = at_position(carry.tokens, jnp.maximum(carry.offset - 2, 0))
      before = jnp.where(carry.offset > 1, before, jnp.where(carry.offset > 0, cursor.last, state.previous))
      place = cursor._replace(last=carry.token, length=cursor.length + carry.offset)
      output, index, cache = feed_last_two(*edge, carry.cache, before, place, state.prefix_len)
      return decide(carry._replace(cache=cache), _heard(output, index))

    def goes_on(carry: _Round) -> Array:
      """Whether the edge takes another step; with rounds of their own, it stops when a third of the rows wait.

      The target's pass for few rows costs less than that for all (`CiarVerifier.most_rows`). With fewer rows in a pass there
      are more passes, with more of them most rows wait.
      """
      goes_on = jnp.any(carry.active)
      if not own_rounds:
        return goes_on
      waiting = cursor.live & ~carry.active & carry.needs_verify
      return goes_on & (3 * jnp.sum(waiting) < jnp.sum(cursor.live))

    carry = opened._replace(
      active=cursor.live,
      calls=jnp.where(cursor.live, opened.calls, 1),  # finished rows draw nothing; the first pass counts for them too
      token=jnp.where(opened.offset > 0, opened.token, cursor.last),
      cache=state.cache,
      scores=state.report.scores,
      features=state.features,
      gate=_select(opened.offset > 0, opened.gate, state.gate),
      gates=jax.tree.map(lambda buffer, gate: buffer.at[:, 0].set(gate), opened.gates, state.gate),
    )
    if own_rounds:  # all passes are alike, so that a row's numbers do not depend on the step with which a draft began
      end = jax.lax.while_loop(goes_on, read_two, carry)
    else:
      end = jax.lax.while_loop(goes_on, read_one, read_two(carry))
    done = ~end.active
    of_done = lambda values: jnp.where(done, values, 0)
    found = Draft.chain(
      end.tokens,
      end.proposal,
      of_done(end.local + end.drafted),
      of_done(end.calls),
      num_local=of_done(end.local),
      needs_verify=end.needs_verify & done,
      payload=PendingTokens(state.tokens, state.read, end.features),
    )
    report = state.report._replace(scores=end.scores)
    opened = end._replace(cache=(), scores=(), features=()) if own_rounds else state.open
    return found, state._replace(cache=end.cache, report=report, features=end.features, open=opened), end.gates

  def commit(
    self, params: GatedParams, state: CiarState, cursor: Cursor, draft: Draft, gates: PyTree, verdict: Verdict
  ) -> CiarState:
    live, calling, local = cursor.live, draft.needs_verify, draft.num_local
    gain = jnp.where(live, commits.num_committed(draft, verdict), 0)
    block_tokens = commits.committed_block(draft, verdict)
    row, max_len = jnp.arange(live.shape[0]), state.tokens.shape[1]
    position = commits.block_positions(cursor, draft, verdict, max_len)
    newest_read = cursor.length + gain - 1  # after an exchange the target has read all but the newest token
    in_window = draft.num_drafted - local
    sent = jnp.where(live & calling, cursor.length - state.read + local + in_window, 0)
    buffer = state.features
    if self.inject != "none":  # the target's own token has no features, whatever was drafted at its position
      own = jnp.where(live & calling, cursor.length + verdict.num_accepted, max_len)
      buffer = buffer.at[row, own].set(0.0, mode="drop")
    gate_state = state.gate
    if draft.tokens.shape[1]:  # else the target drew alone, without the gate
      # The gate was updated for every drawn token, also for an uncertain token without room to draw it. A bonus token is one
      # more update.
      moved = jnp.minimum(gain, local + jnp.maximum(in_window, 1))
      kept = jax.tree.map(lambda values: at_position(values, moved), gates)
      kept = _select(gain > moved, self.gate.update(params.gate, kept, jnp.zeros(gain.shape, bool)), kept)
      gate_state = _select(live, kept, state.gate)
    opened = state.open
    if jnp.ndim(cursor.round):
      opened = _select(commits.ends_round(draft) | ~live, jax.tree.map(jnp.zeros_like, opened), opened)
    return state._replace(
      previous=commits.token_before_newest(cursor, draft, verdict, state.previous),
      gate=gate_state,
      tokens=state.tokens.at[row[:, None], position].set(block_tokens, mode="drop"),
      read=jnp.where(live & calling, newest_read, state.read),
      report=state.report._replace(sent=state.report.sent + sent),
      open=opened,
      features=buffer,
    )

  def report(self, state: CiarState) -> GatedReport:
    return state.report._replace(gate=state.gate)


def _heard(output: ModelOutput, index: Array) -> _Heard:
  """The output at its only position with logits, with the features at ``index [B]``."""
  intervals = output.intervals
  if intervals is None:
    centre = output.need_logits()[:, :, None]
    intervals = Intervals(centre, jnp.zeros_like(centre))
  features = at_position(output.features, index)
  return _Heard(jax.tree.map(lambda leaf: leaf[:, 0], intervals), features)


def _select(keep: Array, new: PyTree, old: PyTree) -> PyTree:
  return jax.tree.map(lambda a, b: jnp.where(keep.reshape(-1, *[1] * (a.ndim - 1)), a, b), new, old)
