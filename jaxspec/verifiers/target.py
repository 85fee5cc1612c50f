"""The target network as a verifier: score the whole draft in one pass, then let a rule decide.

A draft tree is scored like a chain, with depths for positions and its ancestor mask for causality. Its nodes take
consecutive cache slots; the entries of the accepted path are then moved together, so that afterwards the cache cannot be
told from that of a chain.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from jaxspec import trees
from jaxspec.models.sampling import ModelParams, Warp
from jaxspec.types import (
  AcceptFn,
  Array,
  Cache,
  Cursor,
  Draft,
  Key,
  ModelFns,
  ModelOutput,
  PyTree,
  Verdict,
  Verifier,
)

# From the output of a pass and the processed logits to `Verdict.feedback`.
FeedbackFn = Callable[[ModelOutput, Array], PyTree]


def no_feedback(output: ModelOutput, law: Array) -> tuple:
  """Nothing: the default, and what costs nothing."""
  return ()


def target_features(output: ModelOutput, law: Array) -> Array:
  """The target's features ``[B, K + 1, D]`` at ``[last, draft ...]``; after the prefill ``[B, P, D]``."""
  return output.features


def target_laws(output: ModelOutput, law: Array) -> Array:
  """The processed logits ``[B, K + 1, V]`` behind ``[last, draft ...]``; after the prefill that of token 0 ``[B, 1, V]``."""
  return law


class TargetState(NamedTuple):
  """The cache holds every committed token except the last."""

  cache: Cache
  prefix_len: Array  # [] int32


@functools.cache
def target_model(
  model: ModelFns, accept_fn: AcceptFn, *, warp: Warp, feedback_fn: FeedbackFn = no_feedback
) -> Verifier:
  """Verifier that scores ``[last, draft ...]`` with ``model`` and applies ``accept_fn`` to the processed logits.

  ``feedback_fn`` chooses what the drafter gets back: `no_feedback`, `target_features` or `target_laws`.
  """

  def init(params: ModelParams, keys: Key, condition: PyTree, max_len: int, window: int) -> tuple[Verdict, TargetState]:
    prefix_len = model.prefix_len(condition)
    rows = keys.shape[0]
    cache = model.init_cache(rows, prefix_len + max_len + window)
    output, cache = model.apply(
      params.model,
      condition,
      cache,
      positions=jnp.arange(prefix_len)[None],
      logits_at=jnp.full((1,), prefix_len - 1),
    )
    law = warp(output.logits, params.sampling)  # [B, 1, V]
    # Token 0 is the verdict about an empty draft, so that whatever a rule reports, it reports about this token too.
    zeros = jnp.zeros((rows,), jnp.int32)
    nothing = Draft(jnp.zeros((rows, 0), jnp.int32), (), zeros, zeros, jnp.ones((rows,), bool))
    prefill = accept_fn(params.rule, keys, nothing, law)
    return prefill._replace(feedback=feedback_fn(output, law)), TargetState(cache, jnp.int32(prefix_len))

  def verify(
    params: ModelParams, keys: Key, state: TargetState, cursor: Cursor, draft: Draft
  ) -> tuple[Verdict, TargetState]:
    inputs = jnp.concatenate([cursor.last[:, None], draft.tokens], axis=1)  # [B, K + 1]
    start = state.prefix_len + cursor.length - 1
    offsets, mask = trees.layout(draft)
    output, cache = model.apply(params.model, inputs, state.cache, positions=start[:, None] + offsets, mask=mask)
    law = warp(output.logits, params.sampling)
    verdict = accept_fn(params.rule, keys, draft, law)
    if draft.parents is not None:
      if model.compact is None:
        raise ValueError("Must have a model that can compact its cache to verify trees, we instead got None")
      cache = model.compact(cache, start + 1, verdict.path)
    return verdict._replace(feedback=feedback_fn(output, law)), state._replace(cache=cache)

  return Verifier(init, verify)
