"""A small network that drafts a chain of tokens, one forward pass each."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxspec import rng
from jaxspec.drafters.last_two import feed_last_two, token_before_last
from jaxspec.drafters.none import empty_draft
from jaxspec.models.sampling import ModelParams, Warp, sample
from jaxspec.types import Array, Cache, Cursor, Draft, Drafter, Key, ModelFns, PyTree, Verdict


class SmallModelState(NamedTuple):
  """The cache holds every committed token except the last two."""

  cache: Cache
  previous: Array  # [B] the token before the last
  prefix_len: Array  # [] int32


@functools.cache
def small_model(model: ModelFns, *, window: int, warp: Warp) -> Drafter:
  """Drafter that samples ``window`` tokens from ``model``.

  Raises:
    ValueError: if ``window`` is not positive.
  """
  if window < 1:
    raise ValueError(f"Must have a draft window of at least 1, we instead got {window}")

  def init(params: ModelParams, condition: PyTree, max_len: int, prefill: Verdict) -> SmallModelState:
    prefix_len = model.prefix_len(condition)
    rows = jax.tree.leaves(condition)[0].shape[0]
    cache = model.init_cache(rows, prefix_len + max_len + window)
    positions = jnp.arange(prefix_len)[None]
    _, cache = model.apply(params.model, condition, cache, positions=positions, logits_at=jnp.zeros((1,), jnp.int32))
    return SmallModelState(cache, jnp.zeros((rows,), jnp.int32), jnp.int32(prefix_len))

  def propose(params: ModelParams, keys: Key, state: SmallModelState, cursor: Cursor) -> tuple[Draft, SmallModelState]:
    uniform = rng.uniforms(keys, window)  # [B, K]

    def draw(output, index):
      logits = warp(output.logits[:, 0], params.sampling)
      return sample(logits, jax.lax.dynamic_index_in_dim(uniform, index, axis=1, keepdims=False)), logits

    output, _, cache = feed_last_two(model, params.model, state.cache, state.previous, cursor, state.prefix_len)
    token, logits = draw(output, 0)

    def step(carry, index):
      cache, token = carry
      positions = (state.prefix_len + cursor.length - 1 + index)[:, None]
      output, cache = model.apply(params.model, token[:, None], cache, positions=positions)
      token, logits = draw(output, index)
      return (cache, token), (token, logits)

    (cache, _), (tokens, laws) = jax.lax.scan(step, (cache, token), jnp.arange(1, window, dtype=jnp.int32))
    tokens = jnp.concatenate([token[None], tokens]).swapaxes(0, 1)  # [B, K]
    laws = jnp.concatenate([logits[None], laws]).swapaxes(0, 1)  # [B, K, V]
    rows = tokens.shape[0]
    draft = Draft(
      tokens,
      laws,
      num_drafted=jnp.full((rows,), window, jnp.int32),
      num_settled=jnp.zeros((rows,), jnp.int32),
      needs_verify=jnp.ones((rows,), bool),
    )
    return draft, state._replace(cache=cache)

  def commit(
    params: ModelParams, state: SmallModelState, cursor: Cursor, draft: Draft, verdict: Verdict
  ) -> SmallModelState:
    previous = token_before_last(cursor, draft, verdict)
    return state._replace(previous=jnp.where(cursor.live, previous, state.previous))

  def follow(params: ModelParams, keys: Key, state: SmallModelState, cursor: Cursor) -> tuple[Draft, SmallModelState]:
    _, _, cache = feed_last_two(model, params.model, state.cache, state.previous, cursor, state.prefix_len)
    return empty_draft(cursor.last), state._replace(cache=cache)

  following = Drafter(init, follow, commit, window=0, calls_per_round=1)
  return Drafter(init, propose, commit, window, calls_per_round=window, following=following)
