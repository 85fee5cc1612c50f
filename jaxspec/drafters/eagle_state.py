"""State between rounds of drafters on the target's features (EAGLE, arXiv 2401.15077).

The pair of the token at position p is (token at p, target's feature at p - 1). It takes position p - 1 of the drafter's
cache. Pairs of committed tokens hold the target's features. The pairs of the tokens that a round commits are pending: the
next round reads them in one pass, and the newest pair gives the distribution of the next token.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxspec.core import commits, trees
from jaxspec.core.token_axes import at_position
from jaxspec.core.types import Array, Cache, Cursor, Draft, ModelFns, Params, Verdict
from jaxspec.models.conditions import Pairs


class EagleState(NamedTuple):
  """The cache holds the pairs of every committed token except the pending ones."""

  cache: Cache
  pending: Pairs  # [B, L + 1] tokens and [B, L + 1, D] features, valid ones first; the newest token is the last valid
  num_pending: Array  # [B] int32, at least 1
  prefix_len: Array  # [] int32 positions before the pair of token 0, of the last features of the condition


class Absorbed(NamedTuple):
  """Output of the drafter at the pair of the newest committed token."""

  logits: Array  # [B, V] the drafter's logits of the next token
  feature: Array  # [B, 1, D] the drafter's prediction of the target's feature there
  position: Array  # [B] int32 position of this pair


def start(head: ModelFns, params: Params, condition, prefill: Verdict, *, longest: int, slots: int) -> EagleState:
  """State after the prefill.

  Args:
    longest: most drafted tokens ``L`` that one round can accept.
    slots: cache slots after the condition.
  Raises:
    ValueError: if the verifier returns no features.
  """
  features = commits.features_of(prefill)  # [B, P, D]
  rows, prefix_len = features.shape[0], head.prefix_len(condition)
  cache = head.init_cache(rows, prefix_len + slots)
  if prefix_len:
    inputs = Pairs(jnp.zeros((rows, prefix_len), jnp.int32), features[:, -prefix_len - 1 : -1])
    positions = jnp.arange(prefix_len)[None]
    _, cache = head.apply(params, inputs, cache, positions=positions, logits_at=jnp.zeros((1,), jnp.int32))
  pending = Pairs(
    jnp.pad(prefill.next_tokens[:, :1], ((0, 0), (0, longest))),
    jnp.pad(features[:, -1:], ((0, 0), (0, longest), (0, 0))),
  )
  return EagleState(cache, pending, jnp.ones((rows,), jnp.int32), jnp.int32(prefix_len))


def absorb(head: ModelFns, params: Params, state: EagleState, cursor: Cursor) -> tuple[Absorbed, Cache]:
  """Reads the pending pairs in one pass."""
  position = state.prefix_len + cursor.length - 1
  last = state.num_pending - 1
  positions = (position - last)[:, None] + jnp.arange(state.pending.tokens.shape[1])[None]
  output, cache = head.apply(params, state.pending, state.cache, positions=positions, logits_at=last)
  feature = at_position(output.features, last)[:, None]
  return Absorbed(output.need_logits()[:, 0], feature, position), cache


def hold(state: EagleState, draft: Draft, verdict: Verdict) -> EagleState:
  """Stores the pairs of the round's committed tokens as pending for the next round."""
  size, gain = state.pending.tokens.shape[1], commits.num_committed(draft, verdict)
  block = commits.committed_block(draft, verdict)  # [B, L + 1]
  last = jnp.maximum(gain - 1, 0)[:, None]
  tokens = jnp.where(jnp.arange(size)[None] >= last, jnp.take_along_axis(block, last, axis=1), _fit(block, size))
  # The pair of an accepted token has the feature of the token before it; that of the next token, of the last accepted one.
  features = verdict.feedback
  if draft.is_tree:
    features = trees.path_features(features, _fit(verdict.path, size - 1))
  held = Pairs(tokens, _fit(features, size)), gain
  old = state.pending, state.num_pending  # a row that commits nothing reads them again
  pick = lambda new, old: jnp.where((gain > 0).reshape(-1, *[1] * (new.ndim - 1)), new, old)
  pending, number = jax.tree.map(pick, held, old)
  return state._replace(pending=pending, num_pending=number)


def _fit(values: Array, length: int) -> Array:
  """Truncates or pads ``[B, L, ...]`` to ``length`` columns, the longest path of a tree."""
  values = values[:, :length]
  return jnp.pad(values, ((0, 0), (0, length - values.shape[1]), *((0, 0),) * (values.ndim - 2)))
