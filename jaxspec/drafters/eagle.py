"""EAGLE-2: a one-layer network that continues the target's features and drafts a dynamic tree (arXiv 2406.16858).

One round:

1. absorb: one pass over what the last round committed gives the law at the root (`drafters/feature_pairs.py`);
2. ``depth`` passes over beams of ``top_k`` nodes, whose features are the drafter's own predictions (`drafters/tree.py`);
3. the best ``total`` candidates go to the verifier, which returns the target's features at all of them.

The slots behind the places of committed tokens are the beams' and are overwritten in the next round.
"""

from __future__ import annotations

import functools

import jax.numpy as jnp

from jaxspec.drafters import feature_pairs, tree
from jaxspec.drafters.feature_pairs import PairState
from jaxspec.models.conditions import Pairs
from jaxspec.models.sampling import ModelParams, Warp
from jaxspec.types import Cursor, Draft, Drafter, Key, ModelFns, PyTree, Verdict


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

  def init(params: ModelParams, condition: PyTree, max_len: int, prefill: Verdict) -> PairState:
    slots = max_len + max(longest, depth * top_k) + 1
    return feature_pairs.start(head, params.model, condition, prefill, longest=longest, slots=slots)

  def propose(params: ModelParams, keys: Key, state: PairState, cursor: Cursor) -> tuple[Draft, PairState]:
    del keys  # candidates are deterministic
    newest, cache = feature_pairs.absorb(head, params.model, state, cursor)
    levels = [tree.first_level(warp(newest.logits, params.sampling), top_k)]
    beams = [tree.next_beam(levels[0], None, top_k)]
    feature = newest.feature
    features = jnp.broadcast_to(feature, (feature.shape[0], top_k, feature.shape[2]))  # of the beam's parents
    for index in range(depth):
      beam = beams[-1]
      positions = jnp.broadcast_to((newest.place + 1 + index)[:, None], beam.tokens.shape)
      output, cache = head.apply(
        params.model, Pairs(beam.tokens, features), cache, positions=positions, mask=beam.mask,
        slot=newest.place + 1 + index * top_k,
      )  # fmt: skip
      levels.append(tree.next_level(warp(output.logits, params.sampling), beam))
      beams.append(tree.next_beam(levels[-1], beam, top_k))
      features = jnp.take_along_axis(output.features, beams[-1].parents[..., None], axis=1)

    grown = tree.prune(levels, beams, total)
    zeros = jnp.zeros_like(grown.num_levels)
    draft = Draft(grown.tokens, (), grown.num_levels, zeros, jnp.ones(zeros.shape, bool), parents=grown.parents)
    return draft, state._replace(cache=cache)

  def commit(params: ModelParams, state: PairState, cursor: Cursor, draft: Draft, verdict: Verdict) -> PairState:
    return feature_pairs.hold(state, draft, verdict)

  return Drafter(init, propose, commit, window=total, calls_per_round=depth + 1)
