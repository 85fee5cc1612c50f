"""What drafters that continue the target's features carry between rounds (EAGLE, arXiv 2401.15077).

The pair of the token at position p is (token at p, target's feature at p - 1) and stands at place p - 1 of the drafter's
cache. Places up to that of the newest token hold the target's own features. What a round committed waits as pairs that
the next round absorbs in one pass; the newest one gives the law behind it.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxspec import trees
from jaxspec.models.conditions import Pairs
from jaxspec.types import Array, Cache, Cursor, Draft, ModelFns, Params, Verdict


class PairState(NamedTuple):
  """The cache holds the pairs of every committed token except the pending ones."""

  cache: Cache
  pending: Pairs  # [B, L + 1] tokens and [B, L + 1, D] features, valid ones first; the newest token is the last valid
  num_pending: Array  # [B] int32, at least 1
  prefix_len: Array  # [] int32 places before the first image token


class Absorbed(NamedTuple):
  """The newest committed place."""

  logits: Array  # [B, V] the drafter's law of the next token
  feature: Array  # [B, 1, D] its prediction of the target's feature there
  place: Array  # [B] int32 place of the newest token's pair


def start(head: ModelFns, params: Params, condition, prefill: Verdict, *, longest: int, slots: int) -> PairState:
  """State after the prefill.

  Args:
    longest: most tokens ``L`` of a draft that one round can keep.
    slots: cache slots behind the condition.
  Raises:
    ValueError: if the verifier returns no features.
  """
  features = prefill.feedback  # [B, P, D]
  if not isinstance(features, jax.Array) or features.ndim != 3:
    raise ValueError(f"Must have features [B, P, D] as the verifier's feedback, we instead got {features!r}")
  rows, places = features.shape[0], head.prefix_len(condition)
  cache = head.init_cache(rows, places + slots)
  if places:
    inputs = Pairs(jnp.zeros((rows, places), jnp.int32), features[:, :places])
    positions = jnp.arange(places)[None]
    _, cache = head.apply(params, inputs, cache, positions=positions, logits_at=jnp.zeros((1,), jnp.int32))
  pending = Pairs(
    jnp.pad(prefill.next_token[:, None], ((0, 0), (0, longest))),
    jnp.pad(features[:, -1:], ((0, 0), (0, longest), (0, 0))),
  )
  return PairState(cache, pending, jnp.ones((rows,), jnp.int32), jnp.int32(places))


def absorb(head: ModelFns, params: Params, state: PairState, cursor: Cursor) -> tuple[Absorbed, Cache]:
  """Reads the pending pairs in one pass."""
  place = state.prefix_len + cursor.length - 1
  last = state.num_pending - 1
  positions = (place - last)[:, None] + jnp.arange(state.pending.tokens.shape[1])[None]
  output, cache = head.apply(params, state.pending, state.cache, positions=positions, logits_at=last)
  feature = jnp.take_along_axis(output.features, last[:, None, None], axis=1)
  return Absorbed(output.logits[:, 0], feature, place), cache


def hold(state: PairState, draft: Draft, verdict: Verdict) -> PairState:
  """Keeps what the round commits for the next one."""
  longest = state.pending.tokens.shape[1] - 1
  kept = _fit(trees.kept_tokens(draft, verdict), longest)
  tokens = jnp.concatenate([kept, verdict.next_token[:, None]], axis=1)  # [B, L + 1]
  behind = jnp.arange(longest + 1)[None] >= verdict.num_accepted[:, None]
  tokens = jnp.where(behind, verdict.next_token[:, None], tokens)
  # Each kept token continues the feature of the one before it, the next token that of the last kept one.
  features = verdict.feedback
  if verdict.path is not None:
    features = trees.path_features(features, _fit(verdict.path, longest))
  return state._replace(pending=Pairs(tokens, features), num_pending=verdict.num_accepted + 1)


def _fit(values: Array, length: int) -> Array:
  """Cuts or pads ``[B, L]`` to ``length`` columns; no tree has a longer path."""
  values = values[:, :length]
  return jnp.pad(values, ((0, 0), (0, length - values.shape[1])))
