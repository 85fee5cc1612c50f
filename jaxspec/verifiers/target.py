"""The target network as a verifier: it scores the whole draft in one pass, then an acceptance rule decides.

A draft tree is scored like a chain, with depths as positions and the ancestor mask instead of the causal mask. Its nodes
take consecutive cache slots. The entries of the accepted path are then moved together, so that the cache is the same as
after a chain.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from jaxspec import trees
from jaxspec.drafts import empty_draft
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


def no_feedback(output: ModelOutput, logits: Array) -> tuple:
  """No feedback, the default: an empty tuple."""
  return ()


def target_features(output: ModelOutput, logits: Array) -> Array:
  """The target's features ``[B, K + 1, D]`` at ``[last, draft ...]``; from the prefill ``[B, P, D]``."""
  return output.features


def target_logits(output: ModelOutput, logits: Array) -> Array:
  """The processed logits ``[B, K + 1, V]`` after ``[last, draft ...]``; from the prefill those of token 0 ``[B, 1, V]``."""
  return logits


class TargetState(NamedTuple):
  """The cache holds every committed token except the last."""

  cache: Cache
  prefix_len: Array  # [] int32, or [B] where every row has its own


@functools.cache
def target_model(model: ModelFns, accept_fn: AcceptFn, *, warp: Warp, feedback_fn: FeedbackFn = no_feedback) -> Verifier:
  """Verifier that scores ``[last, draft ...]`` with ``model`` and applies ``accept_fn`` to the processed logits.

  Args:
    model: the target.
    accept_fn: the acceptance rule.
    warp: static part of the logit processing.
    feedback_fn: what the drafter gets back: `no_feedback`, `target_features` or `target_logits`.
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
    logits = warp(output.logits, params.sampling, jnp.zeros((1, 1), jnp.int32))  # [B, 1, V]
    # Token 0 comes from a verdict about an empty draft, so that a rule reports about this token as about all others.
    prefill = accept_fn(params.rule, keys, empty_draft(jnp.zeros((rows,), jnp.int32)), logits)
    return prefill._replace(feedback=feedback_fn(output, logits)), TargetState(cache, jnp.int32(prefix_len))

  def verify(
    params: ModelParams, keys: Key, state: TargetState, cursor: Cursor, draft: Draft
  ) -> tuple[Verdict, TargetState]:
    inputs = jnp.concatenate([cursor.last[:, None], draft.tokens], axis=1)  # [B, K + 1]
    start = state.prefix_len + cursor.length - 1
    offsets, mask = trees.layout(draft)
    output, cache = model.apply(params.model, inputs, state.cache, positions=start[:, None] + offsets, mask=mask)
    logits = warp(output.logits, params.sampling, cursor.length[:, None] + offsets)
    verdict = accept_fn(params.rule, keys, draft, logits)
    if draft.parents is not None:
      if model.compact is None:
        raise ValueError("Must have a model that can compact its cache to verify trees, we instead got None")
      cache = model.compact(cache, start + 1, verdict.path)
    return verdict._replace(feedback=feedback_fn(output, logits)), state._replace(cache=cache)

  return Verifier(init, verify)
