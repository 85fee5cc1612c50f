"""The target network as a verifier: score the whole draft in one pass, then let a rule decide."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax.numpy as jnp

from jaxspec import rng
from jaxspec.models.sampling import ModelParams, Warp, sample
from jaxspec.types import AcceptFn, Array, Cache, Cursor, Draft, Key, ModelFns, PyTree, Verdict, Verifier


class TargetState(NamedTuple):
  """The cache holds every committed token except the last."""

  cache: Cache
  prefix_len: Array  # [] int32


@functools.cache
def target_model(model: ModelFns, accept_fn: AcceptFn, *, warp: Warp) -> Verifier:
  """Verifier that scores ``[last, draft ...]`` with ``model`` and applies ``accept_fn`` to the processed logits."""

  def init(params: ModelParams, keys: Key, condition: PyTree, max_len: int, window: int):
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
    logits = warp(output.logits[:, 0], params.sampling)
    return sample(logits, rng.final_uniform(keys)), TargetState(cache, jnp.int32(prefix_len))

  def verify(
    params: ModelParams, keys: Key, state: TargetState, cursor: Cursor, draft: Draft
  ) -> tuple[Verdict, TargetState]:
    window = draft.tokens.shape[1]
    inputs = jnp.concatenate([cursor.last[:, None], draft.tokens], axis=1)  # [B, K + 1]
    start = state.prefix_len + cursor.length - 1
    positions = start[:, None] + jnp.arange(window + 1)[None]
    output, cache = model.apply(params.model, inputs, state.cache, positions=positions)
    verdict = accept_fn(params.rule, keys, draft, warp(output.logits, params.sampling))
    return verdict, state._replace(cache=cache)

  return Verifier(init, verify)
