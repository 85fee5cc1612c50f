"""A drafter of scales that accepts certain scales locally: CIAR (arXiv 2603.25463) for VAR.

One round, with all rows at the same scale:

1. The edge draws the next scale and scores the uncertainty of each position. U of the scale is their mean, or a quantile.
2. The scale is certain in a row if U is at most the threshold and no window is open. If it is certain in every row, it is
   committed without an exchange.
3. Otherwise the edge draws up to ``window - 1`` further scales. The leading certain scales of a row are local. The first
   uncertain scale begins a window of up to ``window`` scales, which the cloud judges independently of U. Rows without an
   uncertain scale need no verification.

A round commits the same number of scales in all rows. If another row limits this number, a row continues its window in the
next round. The local and the verified scales of a row therefore do not depend on other rows.

The paper does not define U of a scale, the window or the rule; they are choices of this project.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp

from jaxspec.core import commits, rng
from jaxspec.core.control_flow import run_if
from jaxspec.core.payloads import PendingTokens, as_token
from jaxspec.core.token_axes import num_leading
from jaxspec.core.types import Array, Cursor, Draft, Drafter, FirstToken, Intervals, Key, Verdict
from jaxspec.drafters.ciar_drafter import GatedParams, GatedReport
from jaxspec.intervals.scores import ScoreFn
from jaxspec.models.conditions import ClassLabels
from jaxspec.sampling.logit_processing import sample
from jaxspec.sampling.scale_network import ScaleNetwork, ScaleReader


class CiarScalesState(NamedTuple):
  """The edge has read scale 0, and every scale below the length of the rows but one."""

  reader: ScaleReader
  keys: Key  # [B], numbers of scales
  tokens: Array  # [B, N, C] int32, committed scales
  until: Array  # [B] int32, end of an open window; 0: none is open
  read: Array  # [B] int32, number of leading scales that the cloud has read
  report: GatedReport


class _Drawn(NamedTuple):
  """The scales of a round."""

  reader: ScaleReader
  tokens: tuple[Array, ...]  # [B, S] int32
  logits: tuple[Array, ...]  # [B, S, V]
  scores: tuple[Array, ...]  # [B]


class _Trace(NamedTuple):
  begin: Array  # [B], start of the window of the round
  until: Array  # [B], end of the window


def pooled(scores: Array, quantile: float | None) -> Array:
  """U of scales ``[B]`` from scores of their positions ``[B, S]``: the mean, or a quantile."""
  return jnp.mean(scores, axis=1) if quantile is None else jnp.quantile(scores, quantile, axis=1)


@dataclasses.dataclass(frozen=True)
class CiarScaleDrafter(Drafter):
  """Drafter of scales that accepts certain ones locally; its verifier is `jaxspec.verifiers.scale_target`.

  Its parameters are `GatedParams` of a `jaxspec.sampling.scale_network.ScaleSide` and of a threshold ``[]``.

  Attributes:
    network: the edge, with the cloud's tokenizer; without an Inter-Head its radii count as 0.
    score_fn: uncertainty of a position, before truncation and temperature.
    most_drafts: of an exchange; 0: the cloud draws every uncertain scale itself.
    quantile: of the positions, in [0, 1]; None for their mean.
    length: of the rows, once it is known (`at`); ``max_len`` then is that of a row.
  Raises:
    ValueError: if ``most_drafts`` is negative.
  """

  network: ScaleNetwork
  score_fn: ScoreFn
  most_drafts: int
  quantile: float | None = None
  length: int | None = None
  max_len: int = 0

  may_accept_locally = True

  def __post_init__(self):
    if self.most_drafts < 0:
      raise ValueError(f"Must have a draft window of at least 0, we instead got {self.most_drafts}")

  @property
  def window(self) -> int:
    most = self.most_drafts if self.length is None else min(self.most_drafts, self.max_len - 1 - self.length)
    return max(most, 1)

  @property
  def calls_per_round(self) -> int:
    return self.window

  @property
  def sizes(self) -> tuple[int, ...]:
    """Tokens of each map."""
    return self.network.sizes

  @property
  def width(self) -> int:
    """Tokens of the largest map."""
    return max(self.sizes)

  @property
  def at_length(self) -> int:
    """The length of the rows; a ValueError where it is not known."""
    return commits.known_length(self.length)

  def at(self, length: int, max_len: int) -> CiarScaleDrafter:
    return dataclasses.replace(self, length=length, max_len=max_len)

  def hear(self, params: GatedParams, keys: Key, reader: ScaleReader, maps: list[Array], first: int, index: int):
    """Draws scale ``index``; returns its tokens, their logits, U, and the reader."""
    (heard,), reader = self.network.hear(params.model, reader, maps, first=first, end=index + 1, logits_from=index)
    size, own = self.sizes[index], rng.of_token(keys, index)
    logits = self.network.logits(params.model, heard, index)
    tokens = sample(logits, rng.uniforms(own, size))
    places = Intervals(*(leaf.reshape(-1, *leaf.shape[2:]) for leaf in (heard.centre, heard.radius)))
    # One key for all positions of a scale, so that a random score is the same for all of them.
    each = jnp.repeat(rng.score_keys(own, 0), size)
    scores = self.score_fn(places, jnp.zeros((each.shape[0], 0)), each, params.score).reshape(-1, size)
    return tokens, logits, pooled(scores, self.quantile), reader

  def init(
    self, params: GatedParams, keys: Key, condition: ClassLabels, max_len: int, prefill: Verdict
  ) -> tuple[CiarScalesState, FirstToken]:
    rows = condition.batch_size
    zeros = jnp.zeros((rows,), jnp.int32)
    tokens, _, score, reader = self.hear(params, keys, self.network.start(params.model, condition), [], 0, 0)
    certain = score <= params.gate
    buffer = jnp.full((rows, max_len, self.width), -1, jnp.int32)
    report = GatedReport(jnp.full((rows, max_len), jnp.nan, jnp.float32), zeros, ())
    state = CiarScalesState(reader, keys, buffer.at[:, 0].set(prefill.next_tokens[:, 0]), zeros, zeros, report)
    first = jnp.where(certain[:, None], as_token(tokens, self.width), prefill.next_tokens[:, 0])
    decided = state._replace(
      tokens=buffer.at[:, 0].set(first), report=report._replace(scores=report.scores.at[:, 0].set(score))
    )
    return state, FirstToken(first, certain, decided)

  def _known(self, state: CiarScalesState, end: int) -> list[Array]:
    return [state.tokens[:, index, : self.sizes[index]] for index in range(max(self.at_length - 2, 0), end)]

  def read(self, params: GatedParams, state: CiarScalesState, cursor: Cursor) -> CiarScalesState:
    length = self.at_length
    maps = self._known(state, length - 1) if length > 1 else []
    _, reader = self.network.hear(params.model, state.reader, maps, first=length - 1, end=length)
    return state._replace(reader=reader)

  def draft(
    self, params: GatedParams, keys: Key, state: CiarScalesState, cursor: Cursor
  ) -> tuple[Draft, CiarScalesState, _Trace]:
    del keys  # those of a round
    length, num, last = self.at_length, self.window, self.max_len - 1
    num_judged = min(self.most_drafts, last - length)  # the last scale is local or the cloud's
    rows = cursor.length.shape[0]
    maps, first = self._known(state, length), max(length - 2, 0) + 1
    tokens, logits, score, reader = self.hear(params, state.keys, state.reader, maps, first, length)
    is_open = length < state.until
    more = jnp.any(cursor.live & ((score > params.gate) | is_open))

    def draw_more(drawn: _Drawn) -> _Drawn:
      reader, tokens, logits, scores = drawn.reader, list(drawn.tokens[:1]), list(drawn.logits[:1]), list(drawn.scores[:1])
      for index in range(length + 1, length + num):
        *new, reader = self.hear(params, state.keys, reader, [tokens[-1]], index, index)
        for known, value in zip((tokens, logits, scores), new):
          known.append(value)
      return _Drawn(reader, tuple(tokens), tuple(logits), tuple(scores))

    rest = self.sizes[length + 1 : length + num]
    nothing = lambda dtype, *tail: tuple(jnp.zeros((rows, size, *tail), dtype) for size in rest)
    unknown = (jnp.full((rows,), jnp.nan, score.dtype),) * len(rest)
    no_logits = nothing(logits.dtype, logits.shape[-1])
    drawn = _Drawn(reader, (tokens, *nothing(tokens.dtype)), (logits, *no_logits), (score, *unknown))
    drawn = run_if(more, draw_more, drawn) if rest else drawn
    scores = jnp.stack(drawn.scores, axis=1)  # NaN without a draw, which is not certain
    in_window = length + jnp.arange(num)[None] < state.until[:, None]
    certain = (scores <= params.gate) & ~in_window
    local = num_leading(certain)
    count = jnp.where(more, num, 1)
    needs_verify = local < count
    begin = length + local
    until = jnp.where(is_open, state.until, jnp.minimum(begin + self.most_drafts, last))
    drafted = jnp.where(needs_verify, jnp.minimum(until, length + num_judged) - length, local)
    scored = state.report.scores.at[:, length : length + num].set(scores)
    payload = PendingTokens(state.tokens, state.read)
    found = Draft.chain(
      jnp.stack([as_token(one, self.width) for one in drawn.tokens], axis=1), drawn.logits[:num_judged],
      jnp.maximum(drafted, local), jnp.broadcast_to(count, (rows,)), num_local=local, needs_verify=needs_verify,
      payload=payload,
    )  # fmt: skip
    state = state._replace(reader=drawn.reader, report=state.report._replace(scores=scored))
    return found, state, _Trace(begin, until)

  def commit(
    self,
    params: GatedParams,
    state: CiarScalesState,
    cursor: Cursor,
    draft: Draft,
    trace: _Trace | tuple,
    verdict: Verdict,
  ) -> CiarScalesState:
    live, needs_verify, max_len = cursor.live, draft.needs_verify, state.tokens.shape[1]
    gain = jnp.where(live, commits.num_committed(draft, verdict), 0)
    block = commits.committed_block(draft, verdict)
    row, position = jnp.arange(live.shape[0])[:, None], commits.block_positions(cursor, draft, verdict, max_len)
    length, until = cursor.length + gain, state.until
    if isinstance(trace, _Trace):  # else the cloud drew alone
      stopped = (
        needs_verify & commits.drafted_next(cursor, draft, verdict)[:, 0] & (length > trace.begin) & (length < trace.until)
      )
      until = jnp.where(live, jnp.where(stopped, trace.until, 0), until)
    sent = jnp.where(live & needs_verify, cursor.length - state.read + draft.num_drafted, 0)
    return state._replace(
      tokens=state.tokens.at[row, position].set(block, mode="drop"),
      until=until,
      read=jnp.where(live & needs_verify, length - 1, state.read),
      report=state.report._replace(sent=state.report.sent + sent),
    )

  def report(self, state: CiarScalesState) -> GatedReport:
    return state.report
