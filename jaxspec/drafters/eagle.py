"""EAGLE-2: a one-layer network that continues the target's features and drafts a dynamic tree (arXiv 2406.16858).

One round:

1. absorb: one pass over the pairs (token, feature of the position before it) of what the last round committed; the newest
   one gives the law at the root;
2. ``depth`` passes over beams of ``top_k`` nodes, whose features are the drafter's own predictions (`drafters/tree.py`);
3. the best ``total`` candidates go to the verifier, which returns the target's features at all of them.

The pair of the token at position p stands at place p - 1. Places up to that of the newest token hold the target's own
features; the slots behind them are the beams' and are overwritten in the next round.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxspec import trees
from jaxspec.drafters import tree
from jaxspec.models.conditions import Pairs
from jaxspec.models.sampling import ModelParams, Warp
from jaxspec.types import Array, Cache, Cursor, Draft, Drafter, Key, ModelFns, PyTree, Verdict


class EagleState(NamedTuple):
  """The cache holds the pairs of every committed token except the pending ones, which the next round absorbs."""

  cache: Cache
  pending: Pairs  # [B, L + 1] tokens and [B, L + 1, D] features, valid ones first; the newest token is the last valid
  num_pending: Array  # [B] int32, at least 1
  prefix_len: Array  # [] int32 places before the first image token


@functools.cache
def eagle(head: ModelFns, *, total: int, top_k: int, depth: int, warp: Warp) -> Drafter:
  """Drafter of trees with ``total`` nodes.

  The verifier must return features (``target_model(..., feedback_fn=target_features)``) and take trees
  (``tree_rule(max_path=depth + 1)``).

  Args:
    head: the drafter network (`eagle_fns`), or its `guided` form behind a guided target.
    total: nodes of a tree, the draft window ``K``.
    top_k: width of a beam, and the continuations of each of its nodes.
    depth: beams per round; trees have ``depth + 1`` levels.
    warp: logit processing of the scores; changes the speed, never the law.
  Raises:
    ValueError: for sizes that are not positive, or more nodes than there are candidates.
  """
  if min(total, top_k, depth) < 1:
    raise ValueError(f"Must have total, top_k and depth of at least 1, we instead got {total}, {top_k}, {depth}")
  if total > (candidates := top_k + depth * top_k**2):
    raise ValueError(f"Must have total of at most the {candidates} candidates of a round, we instead got {total}")
  longest = min(depth + 1, total)

  def init(params: ModelParams, condition: PyTree, max_len: int, prefill: Verdict) -> EagleState:
    features = prefill.feedback  # [B, P, D]
    if not isinstance(features, jax.Array) or features.ndim != 3:
      raise ValueError(f"Must have features [B, P, D] as the verifier's feedback, we instead got {features!r}")
    rows, places = features.shape[0], head.prefix_len(condition)
    cache = head.init_cache(rows, places + max_len + max(longest, depth * top_k) + 1)
    if places:
      inputs = Pairs(jnp.zeros((rows, places), jnp.int32), features[:, :places])
      positions = jnp.arange(places)[None]
      _, cache = head.apply(params.model, inputs, cache, positions=positions, logits_at=jnp.zeros((1,), jnp.int32))
    pending = Pairs(
      jnp.pad(prefill.next_token[:, None], ((0, 0), (0, longest))),
      jnp.pad(features[:, -1:], ((0, 0), (0, longest), (0, 0))),
    )
    return EagleState(cache, pending, jnp.ones((rows,), jnp.int32), jnp.int32(places))

  def propose(params: ModelParams, keys: Key, state: EagleState, cursor: Cursor) -> tuple[Draft, EagleState]:
    del keys  # candidates are deterministic
    newest = state.prefix_len + cursor.length - 1  # [B] place of the newest token's pair
    last = state.num_pending - 1
    positions = (newest - last)[:, None] + jnp.arange(longest + 1)[None]
    output, cache = head.apply(params.model, state.pending, state.cache, positions=positions, logits_at=last)
    feature = jnp.take_along_axis(output.features, last[:, None, None], axis=1)  # [B, 1, D]

    levels = [tree.first_level(warp(output.logits[:, 0], params.sampling), top_k)]
    beams = [tree.next_beam(levels[0], None, top_k)]
    features = jnp.broadcast_to(feature, (feature.shape[0], top_k, feature.shape[2]))  # of the beam's parents
    for index in range(depth):
      beam = beams[-1]
      positions = jnp.broadcast_to((newest + 1 + index)[:, None], beam.tokens.shape)
      output, cache = head.apply(
        params.model, Pairs(beam.tokens, features), cache, positions=positions, mask=beam.mask,
        slot=newest + 1 + index * top_k,
      )  # fmt: skip
      levels.append(tree.next_level(warp(output.logits, params.sampling), beam))
      beams.append(tree.next_beam(levels[-1], beam, top_k))
      features = jnp.take_along_axis(output.features, beams[-1].parents[..., None], axis=1)

    grown = tree.prune(levels, beams, total)
    zeros = jnp.zeros_like(grown.num_levels)
    draft = Draft(grown.tokens, (), grown.num_levels, zeros, jnp.ones(zeros.shape, bool), parents=grown.parents)
    return draft, state._replace(cache=cache)

  def commit(params: ModelParams, state: EagleState, cursor: Cursor, draft: Draft, verdict: Verdict) -> EagleState:
    kept = _fit(trees.kept_tokens(draft, verdict), longest)
    path = _fit(verdict.path, longest)
    tokens = jnp.concatenate([kept, verdict.next_token[:, None]], axis=1)  # [B, L + 1]
    behind = jnp.arange(longest + 1)[None] >= verdict.num_accepted[:, None]
    tokens = jnp.where(behind, verdict.next_token[:, None], tokens)
    # Each kept token continues the feature of the node before it, the next token that of the last kept one.
    pending = Pairs(tokens, trees.path_features(verdict.feedback, path))
    return state._replace(pending=pending, num_pending=verdict.num_accepted + 1)

  return Drafter(init, propose, commit, window=total, calls_per_round=depth + 1)


def _fit(values: Array, length: int) -> Array:
  """Cuts or pads ``[B, L]`` to ``length`` columns; no tree has a longer path."""
  values = values[:, :length]
  return jnp.pad(values, ((0, 0), (0, length - values.shape[1])))
