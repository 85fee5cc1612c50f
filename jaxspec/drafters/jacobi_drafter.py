"""Speculative Jacobi decoding: drafts from the target's previous pass (arXiv 2410.01699).

1. A pass over ``[last, K drafts]`` gives the target's distributions at K + 1 positions.
2. The next round draws its drafts from the distributions after the rejected (or bonus) position. The decoder is exact,
   because a fresh draw follows its proposal; an old token would not follow the new distribution.
3. Positions without a distribution get an initial draft (`WindowInit`).

``coupled`` reuses an old draft with probability min(1, new / old) and else draws from the residual. The token follows the
new distribution and agrees with the old draft as often as possible, so that fewer inputs of the next pass change (arXiv
2510.24211, 2603.18599). ``gumbel`` draws ``argmax(log p + noise)`` instead, with noise that a position keeps until it is
committed (the Gumbel coupling of arXiv 2510.24211).

Why old drafts may be kept. Let the past of position j be all tokens at the positions before j, of all passes. The rows that
position j is drawn from are functions of its past. Given the past, the draft follows the newest row: a coupling is a Markov
chain of these distributions, and Gumbel noise is independent of the past. The test of position j is made once, and its
result depends on the past and the draft. So all rules of `jaxspec.rules` see a draft of its proposal.

In block verification (`jaxspec.rules.block_rule`) the drafts behind the last accepted one also decide about it. If i drafts
are accepted, a draft at j > i + 1 no longer follows its proposal q but ``[q - p_{j-1} p]+``, with the p_i of
`jaxspec.sampling.block_acceptance` and the row p of this pass, which is the next proposal. Coupled drafts take this as their
old distribution (``block``). Gumbel noise has no such distribution after a test.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp

from jaxspec.core import commits, rng
from jaxspec.core.token_space import LegalFn
from jaxspec.core.types import Array, Cursor, Draft, Drafter, Key, PyTree, Verdict
from jaxspec.drafters.window_init import WindowInit, initial_drafts
from jaxspec.sampling.block_acceptance import block_acceptance
from jaxspec.sampling.logit_processing import inverse_cdf, probabilities, sample
from jaxspec.sampling.residual import at, lossless_weights, usable_weights

RECYCLING = ("fresh", "coupled", "gumbel")

# Half of a cell of uniform numbers: the smallest exponential is not 0.
_HALF_CELL = 2.0**-24


class JacobiState(NamedTuple):
  """Distributions of the last pass for the next window, and the history for initial drafts."""

  logits: Array  # [B, K, V] of the positions ``length + j``; the first num_recycled are valid
  num_recycled: Array  # [B] int32
  old_tokens: Array  # [B, K] int32 drafts of the last round at the same positions; the last recycled position has none
  old_logits: Array  # [B, K, V] of their distribution
  tokens: Array  # [B, N] int32 committed tokens, or [B, 0] if no initial draft needs them
  token_logits: Array  # [B, N, V] target logits at the positions of these tokens, or [B, 0, V]
  noise: PyTree = ()  # [B] keys of the Gumbel noise; () without


@dataclasses.dataclass(frozen=True)
class JacobiDrafter(Drafter):
  """Drafter without a network; needs a verifier with ``feedback_fn=target_logits``.

  Attributes:
    window: drafts ``K`` per pass; a window of W tokens in the official code holds W - 1 drafts.
    vocab_size: ``V``.
    grid: tokens per row of the image; read by initial drafts from a neighbour.
    initial: drafts of positions without a distribution.
    recycle: ``fresh`` (the published method), ``coupled`` (maximal coupling with the previous drafts), or ``gumbel`` (the
      same noise in every pass).
    legal: legal ids at each index; initial drafts are legal, like the target's distributions.
    block: whether the rule tests the window together (`jaxspec.rules.block_rule`).
  Raises:
    ValueError: for a setting out of range.
  """

  window: int
  vocab_size: int
  grid: int = 1
  initial: WindowInit = WindowInit()
  recycle: str = "fresh"
  legal: LegalFn | None = None
  block: bool = False

  def __post_init__(self):
    if self.window < 1:
      raise ValueError(f"Must have a draft window of at least 1, we instead got {self.window}")
    if self.recycle not in RECYCLING:
      raise ValueError(f"Must have recycle in {', '.join(RECYCLING)}, we instead got {self.recycle!r}")
    if self.block and self.recycle == "gumbel":
      raise ValueError("Must have recycle fresh or coupled with block verification, we instead got gumbel: not exact")

  @property
  def keeps_tokens(self):
    return self.initial.source != "uniform" and self.initial.draw == "repeat"

  @property
  def keeps_logits(self):
    return self.initial.source != "uniform" and self.initial.draw != "repeat"

  calls_per_round = 0

  def init(self, params: PyTree, keys: Key, condition: PyTree, max_len: int, prefill: Verdict) -> tuple[JacobiState, None]:
    rows = condition.batch_size
    tokens = jnp.zeros((rows, max_len if self.keeps_tokens else 0), jnp.int32)
    token_logits = jnp.zeros((rows, max_len if self.keeps_logits else 0, self.vocab_size), jnp.float32)
    noise = keys if self.recycle == "gumbel" else ()
    return empty_windows(rows, self.window, self.vocab_size)._replace(
      tokens=tokens, token_logits=token_logits, noise=noise
    ), None

  def read(self, params: PyTree, state: JacobiState, cursor: Cursor) -> JacobiState:
    if not self.keeps_tokens:
      return state
    row = jnp.arange(cursor.last.shape[0])
    return state._replace(tokens=state.tokens.at[row, cursor.length - 1].set(cursor.last, mode="drop"))

  def draft(self, params: PyTree, keys: Key, state: JacobiState, cursor: Cursor) -> tuple[Draft, JacobiState, tuple]:
    state = whole = self.read(params, state, cursor)
    state = self._first_of(state)
    uniform = rng.uniforms(keys, 2 * self.window)
    draw, keep = uniform[:, : self.window], uniform[:, self.window :]
    index = jnp.arange(self.window)[None]  # [1, K]
    recycled = index < state.num_recycled[:, None]

    position = cursor.length[:, None] + index
    if self.recycle == "gumbel":
      tokens = _perturbed_argmax(state.logits, rng.position_uniforms(state.noise, position, self.vocab_size))
    else:
      tokens = recycled_drafts(state, draw, keep if self.recycle == "coupled" else None)

    # The newest known position replaces an unknown neighbour.
    known = (cursor.length + state.num_recycled - 1)[:, None]
    source = jnp.minimum(position - self.initial.offset(self.grid), known)
    fresh, fresh_logits = initial_drafts(
      self.initial,
      has_source=self.initial.has_source(position, self.grid),
      source_token=_look_up(state.tokens, tokens, source, cursor.length) if self.keeps_tokens else tokens,
      source_logits=_look_up(state.token_logits, state.logits, source, cursor.length) if self.keeps_logits else None,
      uniform=draw,
      vocab_size=self.vocab_size,
      legal=None if self.legal is None else self.legal(position),
    )
    tokens = jnp.where(recycled, tokens, fresh)
    proposal = jnp.where(recycled[..., None], state.logits, fresh_logits)
    return Draft.chain(tokens, proposal, self.window, 0), whole, ()

  def commit(
    self, params: PyTree, state: JacobiState, cursor: Cursor, draft: Draft, trace: tuple, verdict: Verdict
  ) -> JacobiState:
    judged, accepted = draft.tokens.shape[1], verdict.num_accepted[:, None]
    if self.keeps_tokens or self.keeps_logits:
      row, offset = jnp.arange(accepted.shape[0])[:, None], jnp.arange(judged + 1)[None]
      size = max(state.tokens.shape[1], state.token_logits.shape[1])
      position = jnp.where(offset <= accepted, cursor.length[:, None] + offset, size)  # size is dropped
      if self.keeps_tokens:
        state = state._replace(tokens=state.tokens.at[row, position[:, :-1]].set(draft.tokens, mode="drop"))
      else:
        state = state._replace(token_logits=state.token_logits.at[row, position].set(verdict.feedback, mode="drop"))
    return self.recycle_pass(state, draft, verdict)

  def recycle_pass(self, state: JacobiState, draft: Draft, verdict: Verdict) -> JacobiState:
    """The state with the distributions that a pass has left for the positions behind its committed tokens."""
    judged = draft.tokens.shape[1]  # the window, or 0 where the target drew alone
    gain = commits.num_committed(draft, verdict)
    index = gain[:, None] + jnp.arange(self.window)[None]  # row of the pass that judged the new position j
    logits, row = verdict.feedback, jnp.arange(index.shape[0])[:, None]  # [B, K + 1, V]
    recycled = jnp.clip(judged + 1 - gain, 0, self.window)
    put = lambda buffer, values: values if buffer.shape == values.shape else buffer.at[:, : self.window].set(values)
    left = logits[row, jnp.minimum(index, judged)]
    state = state._replace(logits=put(state.logits, left), num_recycled=recycled)
    if judged == 0:
      return state
    old = jnp.minimum(index, judged - 1)
    old_logits = draft.proposal[row, old]
    if self.block and self.recycle == "coupled":
      reach = block_acceptance(draft, logits)[row, old][..., None]
      q = probabilities(old_logits)
      old_logits = jnp.log(usable_weights(jnp.maximum(q - reach * probabilities(left), 0.0), q))
    return state._replace(
      old_tokens=put(state.old_tokens, draft.tokens[row, old]), old_logits=put(state.old_logits, old_logits)
    )

  def _first_of(self, state: JacobiState) -> JacobiState:
    """The part of the state that a window shorter than the one of `init` reads (`jaxspec.drafters.auto_length`)."""
    cut = lambda leaf: leaf[:, : self.window]
    return state._replace(
      logits=cut(state.logits), old_tokens=cut(state.old_tokens), old_logits=cut(state.old_logits),
      num_recycled=jnp.minimum(state.num_recycled, self.window),
    )  # fmt: skip


def empty_windows(rows: int, window: int, vocab_size: int) -> JacobiState:
  """The state before a pass, without a history of tokens."""
  logits, none = jnp.zeros((rows, window, vocab_size), jnp.float32), jnp.zeros((rows, 0), jnp.int32)
  recycled, drafted = jnp.zeros((rows,), jnp.int32), jnp.zeros((rows, window), jnp.int32)
  return JacobiState(logits, recycled, drafted, logits, none, logits[:, :0])


def recycled_drafts(state: JacobiState, draw: Array, keep: Array | None) -> Array:
  """Tokens ``[B, K]`` of the recycled distributions; those of other positions are arbitrary.

  Args:
    draw: ``[B, K]`` uniforms of the draws, and ``keep`` those of the coupling with old drafts; None: draws are independent.
  """
  tokens = sample(state.logits, draw)
  if keep is None:
    return tokens
  has_old = jnp.arange(draw.shape[1])[None] < state.num_recycled[:, None] - 1
  return jnp.where(has_old, _couple(state, draw, keep), tokens)


def _look_up(history: Array, window: Array, position: Array, length: Array) -> Array:
  """Entries at ``position [B, K]``: of ``history [B, N, ...]`` below ``length [B]``, then of ``window [B, K, ...]``."""
  row = jnp.arange(position.shape[0])[:, None]
  before = history[row, jnp.clip(position, 0, history.shape[1] - 1)]
  within = window[row, jnp.clip(position - length[:, None], 0, window.shape[1] - 1)]
  inside = (position >= length[:, None]).reshape(*position.shape, *(1,) * (within.ndim - 2))
  return jnp.where(inside, within, before)


def _couple(state: JacobiState, draw: Array, keep: Array) -> Array:
  """Tokens ``[B, K]`` that follow ``state.logits`` and agree with ``state.old_tokens`` as often as possible."""
  tokens, p, q = state.old_tokens, probabilities(state.logits), probabilities(state.old_logits)
  accepted = keep * at(q, tokens) < at(p, tokens)
  return jnp.where(accepted, tokens, inverse_cdf(usable_weights(lossless_weights(tokens, p, q), p), draw))


def _perturbed_argmax(logits: Array, uniform: Array) -> Array:
  """Tokens ``[B, K]`` that follow ``logits [B, K, V]``: the arg-max with Gumbel noise of ``uniform [B, K, V]``."""
  exponential = -jnp.log1p(-(uniform + _HALF_CELL))
  return jnp.argmax(logits - jnp.log(exponential), axis=-1).astype(jnp.int32)
