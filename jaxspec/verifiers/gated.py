"""The target as a verifier of drafters that settle tokens by themselves (CIAR, arXiv 2603.25463, Algorithm 1).

When it is asked, its cache may be behind by any number of settled tokens. One round:

1. while a row is behind by more than one pass holds beside a window: a pass over the oldest tokens it has not read;
2. one pass over ``[unread tokens ..., window ...]``, their interval features added to the embeddings, if the draft has any;
   the laws behind the last settled token and every window token are picked out of it, row by row;
3. the rule judges the window. Settled tokens are counted as kept.

Passes have a few static widths, and the narrowest that fits is taken: a row with a prefix from the cloud reads one token.
Afterwards the cache holds every committed token except the last, as behind any other verifier.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from jaxspec.models.sampling import ModelParams, Warp
from jaxspec.skipping import run_if
from jaxspec.types import AcceptFn, Array, Cursor, Draft, Key, ModelFns, PyTree, Verdict, Verifier
from jaxspec.verifiers.target import TargetState, target_model


@functools.cache
def gated_target(
  model: ModelFns, accept_fn: AcceptFn, *, warp: Warp, window: int, widths: tuple[int, ...] = (1, 8, 16)
) -> Verifier:
  """Verifier of `jaxspec.interval_gated` drafters.

  Args:
    model: the target.
    accept_fn: rule for chains; it sees the window of a draft only.
    warp: static part of the logit processing.
    window: most tokens to be verified in one round, the drafter's.
    widths: widths of passes, ascending; the last one holds more than a window. On a CPU take widths where the cost of a
      pass steps up.
  Raises:
    ValueError: for widths that are not ascending or do not hold a window.
  """
  if not widths or widths[-1] < window + 1 or any(a >= b for a, b in zip(widths, widths[1:])) or widths[0] < 1:
    raise ValueError(f"Must have ascending widths, the last above the window of {window}, we instead got {widths}")
  widest = widths[-1]
  most_unread = widest - window - 1  # that fit into the pass of the window

  def init(params: ModelParams, keys: Key, condition: PyTree, max_len: int, block: int) -> tuple[Verdict, TargetState]:
    # The prefill is that of any target; the cache must also hold a pass that begins at the last place of a row.
    return target_model(model, accept_fn, warp=warp).init(params, keys, condition, max_len, max(block, widest))

  def verify(
    params: ModelParams, keys: Key, state: TargetState, cursor: Cursor, draft: Draft
  ) -> tuple[Verdict, TargetState]:
    if draft.backlog is None:
      raise ValueError("Must have a drafter that may settle tokens, we instead got a draft without a backlog")
    asked = cursor.live & draft.needs_verify
    num_window = draft.num_drafted - draft.num_settled  # [B]
    first = cursor.length + draft.num_settled  # place of the first window token
    places = _by_place(draft, cursor, widest)
    # Interval features of the device, by place; zeros beyond the last place of a row.
    beyond = places.shape[1] - draft.backlog.tokens.shape[1]
    features = jax.tree.map(lambda leaf: jnp.pad(leaf, ((0, 0), (0, beyond), (0, 0))), draft.aux)

    def read_pass(cache, read: Array, width: int, **at):
      index = read[:, None] + jnp.arange(width)[None]
      inputs = jnp.take_along_axis(places, index, axis=1)
      inject = jnp.take_along_axis(features, index[..., None], axis=1) if jax.tree.leaves(features) else None
      return model.apply(params.model, inputs, cache, positions=state.prefix_len + index, inject=inject, **at)

    def is_far_behind(read: Array) -> Array:
      return asked & (first - 1 - read > most_unread)

    def catch_up(carry):
      cache, read = carry
      # The laws inside of a backlog are not wanted.
      _, cache = read_pass(cache, read, widest, logits_at=jnp.zeros((1,), jnp.int32))
      step = jnp.minimum(widest, first - 1 - read)
      return cache, read + jnp.where(is_far_behind(read), step, 0)

    cache, read = jax.lax.while_loop(
      lambda carry: jnp.any(is_far_behind(carry[1])), catch_up, (state.cache, draft.backlog.read)
    )
    unread = jnp.where(asked, first - 1 - read, 0)  # [B] before the token whose law judges the window

    def judge_pass(width: int, carry):
      output, cache = read_pass(carry[1], read, width)
      index = jnp.clip(unread[:, None] + jnp.arange(window + 1)[None], 0, width - 1)
      return jnp.take_along_axis(output.logits, index[..., None], axis=1), cache  # [B, window + 1, V]

    needed = jnp.max(jnp.where(asked, unread + num_window + 1, 1))
    shapes = jax.eval_shape(functools.partial(judge_pass, widest), (None, cache))[0]
    carry = (jnp.zeros(shapes.shape, shapes.dtype), cache)
    for narrower, width in zip((0, *widths), widths):
      fits = (needed > narrower) & (needed <= width)
      carry = run_if(fits, functools.partial(judge_pass, width), carry)
    logits, cache = carry
    verdict = accept_fn(params.rule, keys, _window_of(draft, window, num_window), warp(logits, params.sampling))
    if jax.tree.leaves(verdict.metrics):
      raise ValueError("Must have a rule that reports nothing about tokens behind a gate, we instead got an audited one")
    kept = draft.num_settled + jnp.where(draft.needs_verify, verdict.num_accepted, 0)
    return verdict._replace(num_accepted=kept), state._replace(cache=cache)

  return Verifier(init, verify)


def num_catch_ups(unread: int, window: int, widest: int) -> int:
  """Passes before that of the window, with ``unread`` tokens before the one whose law judges it."""
  return max(0, -(-(unread - (widest - window - 1)) // widest))


def _by_place(draft: Draft, cursor: Cursor, beyond: int) -> Array:
  """Committed and drafted tokens by place, ``[B, N + K + beyond]``; 0 where there is none."""
  tokens, rows = draft.tokens, draft.tokens.shape[0]
  places = jnp.pad(draft.backlog.tokens, ((0, 0), (0, tokens.shape[1] + beyond)))
  at = cursor.length[:, None] + jnp.arange(tokens.shape[1])[None]
  return places.at[jnp.arange(rows)[:, None], at].set(tokens)


def _window_of(draft: Draft, window: int, num_window: Array) -> Draft:
  """What a rule judges: the tokens behind the settled ones."""
  index = draft.num_settled[:, None] + jnp.arange(window)[None]
  index = jnp.minimum(index, draft.tokens.shape[1] - 1)
  return draft._replace(
    tokens=jnp.take_along_axis(draft.tokens, index, axis=1),
    num_drafted=num_window,
    num_settled=jnp.zeros_like(num_window),
    backlog=None,
  )
