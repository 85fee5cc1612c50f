"""Speculative Jacobi decoding: the target's own previous pass drafts the next one (arXiv 2410.01699).

1. A pass over ``[last, K drafts]`` yields the target's law at K + 1 places.
2. Laws behind the rejected (or bonus) place are not thrown away: the next round draws its drafts from them. A fresh draw
   of a law with that same law as proposal keeps the decoder exact; an old token under a new law would not be.
3. Places that no pass has seen get an initial draft (`WindowInit`).

``coupled`` keeps an old draft with probability min(1, new / old) and else draws from the residual: the token still
follows the new law, but agrees with the old one as often as possible, so that fewer rows of the next pass change.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxspec import rng
from jaxspec.drafters.window_init import WindowInit, initial_drafts
from jaxspec.models.sampling import inverse_cdf, probabilities, sample
from jaxspec.types import Array, Cursor, Draft, Drafter, Key, PyTree, Verdict
from jaxspec.verifiers.chain import at, lossless_weights, usable_weights

RECYCLING = ("fresh", "coupled")


class JacobiState(NamedTuple):
  """The window that the last pass left behind, and the history that initial drafts look at."""

  laws: Array  # [B, K, V] logits of the places ``length + j``; the first num_recycled are real
  num_recycled: Array  # [B] int32
  old_tokens: Array  # [B, K] drafts of the last round at the same places; the last recycled place has none
  old_laws: Array  # [B, K, V]
  tokens: Array  # [B, N] committed tokens, or [B, 0] if no initial draft needs them
  token_laws: Array  # [B, N, V] their laws, or [B, 0, V]


@functools.cache
def jacobi(
  *, window: int, vocab_size: int, grid: int = 1, initial: WindowInit = WindowInit(), recycle: str = "fresh"
) -> Drafter:
  """Drafter without a network; needs a verifier with ``feedback_fn=target_laws``.

  Args:
    window: drafts ``K`` per pass; the official windows of W tokens hold W - 1 drafts.
    vocab_size: ``V``.
    grid: tokens per row of the picture; read by initial drafts with a neighbour.
    initial: drafts of unseen places.
    recycle: ``fresh`` (the published method) or ``coupled`` (maximal coupling with the previous drafts).
  Raises:
    ValueError: for a setting out of range.
  """
  if window < 1:
    raise ValueError(f"Must have a draft window of at least 1, we instead got {window}")
  if recycle not in RECYCLING:
    raise ValueError(f"Must have recycle in {', '.join(RECYCLING)}, we instead got {recycle!r}")
  keeps_tokens = initial.source != "uniform" and initial.draw == "repeat"
  keeps_laws = initial.source != "uniform" and initial.draw != "repeat"

  def init(params: PyTree, condition: PyTree, max_len: int, prefill: Verdict) -> JacobiState:
    rows = jax.tree.leaves(condition)[0].shape[0]
    laws = jnp.zeros((rows, window, vocab_size), jnp.float32)
    places = jnp.zeros((rows, window), jnp.int32)
    tokens = jnp.zeros((rows, max_len if keeps_tokens else 0), jnp.int32)
    token_laws = jnp.zeros((rows, max_len if keeps_laws else 0, vocab_size), jnp.float32)
    return JacobiState(laws, jnp.zeros((rows,), jnp.int32), places, laws, tokens, token_laws)

  def propose(params: PyTree, keys: Key, state: JacobiState, cursor: Cursor) -> tuple[Draft, JacobiState]:
    rows = cursor.last.shape[0]
    uniform = rng.uniforms(keys, 2 * window)
    draw, keep = uniform[:, :window], uniform[:, window:]
    index = jnp.arange(window)[None]  # [1, K]
    recycled = index < state.num_recycled[:, None]

    tokens = sample(state.laws, draw)
    if recycle == "coupled":
      has_old = index < state.num_recycled[:, None] - 1
      tokens = jnp.where(has_old, _couple(state, draw, keep), tokens)

    if keeps_tokens:
      row = jnp.arange(rows)
      state = state._replace(tokens=state.tokens.at[row, cursor.length - 1].set(cursor.last, mode="drop"))
    # A neighbour that is not known yet is replaced by the newest known place.
    place = cursor.length[:, None] + index
    known = (cursor.length + state.num_recycled - 1)[:, None]
    source = jnp.minimum(place - initial.offset(grid), known)
    fresh, fresh_laws = initial_drafts(
      initial,
      has_source=initial.has_source(place, grid),
      source_token=_look_up(state.tokens, tokens, source, cursor.length) if keeps_tokens else tokens,
      source_law=_look_up(state.token_laws, state.laws, source, cursor.length) if keeps_laws else None,
      uniform=draw,
      vocab_size=vocab_size,
    )
    full = jnp.full((rows,), window, jnp.int32)
    draft = Draft(
      jnp.where(recycled, tokens, fresh),
      jnp.where(recycled[..., None], state.laws, fresh_laws),
      num_drafted=full,
      num_settled=jnp.zeros_like(full),
      needs_verify=jnp.ones((rows,), bool),
    )
    return draft, state

  def commit(params: PyTree, state: JacobiState, cursor: Cursor, draft: Draft, verdict: Verdict) -> JacobiState:
    accepted = verdict.num_accepted[:, None]
    index = accepted + 1 + jnp.arange(window)[None]  # row of the pass that judged the new place j
    laws = verdict.feedback  # [B, K + 1, V]
    row = jnp.arange(index.shape[0])[:, None]
    old = jnp.minimum(index, window - 1)
    if keeps_tokens or keeps_laws:
      offset = jnp.arange(window + 1)[None]
      size = max(state.tokens.shape[1], state.token_laws.shape[1])
      slot = jnp.where(offset <= accepted, cursor.length[:, None] + offset, size)  # size is dropped
      if keeps_tokens:
        state = state._replace(tokens=state.tokens.at[row, slot[:, :-1]].set(draft.tokens, mode="drop"))
      else:
        state = state._replace(token_laws=state.token_laws.at[row, slot].set(laws, mode="drop"))
    return state._replace(
      laws=laws[row, jnp.minimum(index, window)],
      num_recycled=window - verdict.num_accepted,
      old_tokens=draft.tokens[row, old],
      old_laws=draft.proposal[row, old],
    )

  return Drafter(init, propose, commit, window, calls_per_round=0)


def _look_up(history: Array, window: Array, place: Array, length: Array) -> Array:
  """``history [B, N, ...]`` at places below ``length``, ``window [B, K, ...]`` from there on; ``place [B, K]``."""
  row = jnp.arange(place.shape[0])[:, None]
  before = history[row, jnp.clip(place, 0, history.shape[1] - 1)]
  within = window[row, jnp.clip(place - length[:, None], 0, window.shape[1] - 1)]
  inside = (place >= length[:, None]).reshape(*place.shape, *(1,) * (within.ndim - 2))
  return jnp.where(inside, within, before)


def _couple(state: JacobiState, draw: Array, keep: Array) -> Array:
  """Tokens of law ``state.laws`` that agree with ``state.old_tokens`` as often as possible."""
  tokens, p, q = state.old_tokens, probabilities(state.laws), probabilities(state.old_laws)
  kept = keep * at(q, tokens) < at(p, tokens)
  return jnp.where(kept, tokens, inverse_cdf(usable_weights(lossless_weights(tokens, p, q), p), draw))
