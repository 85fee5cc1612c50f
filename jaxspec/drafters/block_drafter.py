"""Drafts of one pass: a head gives the distributions of a whole block at once (`jaxspec.models.heads.block_head`).

1. The features at the tokens that the last round committed are pending. A round first reads them: their keys and values go
   to the head's cache. This pass has no attention and no logits.
2. One pass over the newest token and masks gives one row of logits for each draft.
3. Draft j is drawn from its own row q_j, so the drafts are independent given the committed tokens, and the proposal of a
   chain is ``q_1(x_1) ... q_K(x_K)``. The rows that are drawn from are the rows that are reported: one array in float32.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp

from jaxspec.core import commits, rng
from jaxspec.core.token_axes import over_tokens
from jaxspec.core.types import Array, Cache, Cursor, Draft, Drafter, Key, ModelFns, PyTree, Verdict
from jaxspec.models.conditions import Context
from jaxspec.models.heads.block_head import MASK
from jaxspec.sampling.logit_processing import ModelParams, Warp, sample


class BlockState(NamedTuple):
  """The cache holds the context of every committed token except the newest and those of ``pending``."""

  cache: Cache
  pending: Array  # [B, K + 1, F] features, valid ones first; the last valid one is that of the token before the newest
  num_pending: Array  # [B] int32; 0 after the prefill, whose features are read at once
  prefix_len: Array  # [] int32 positions before token 0


@dataclasses.dataclass(frozen=True)
class BlockDrafter(Drafter):
  """Drafter that samples ``window`` tokens from the rows of one pass.

  The verifier must return features of the head's levels (``target_model(..., feedback_fn=target_features)``, with
  `jaxspec.models.feature_levels.with_levels`); any rule for chains is valid.

  Attributes:
    head: the head (`block_head_fns`), or its `guided` form if the target is guided.
    window: drafts per round ``K``.
    warp: logit processing of the drafter's distributions, the same as the target's.
  Raises:
    ValueError: if ``window`` is not positive.
  """

  head: ModelFns
  window: int
  warp: Warp
  calls_per_round = 1

  def __post_init__(self):
    if self.window < 1:
      raise ValueError(f"Must have a draft window of at least 1, we instead got {self.window}")

  def init(
    self, params: ModelParams, keys: Key, condition: PyTree, max_len: int, prefill: Verdict
  ) -> tuple[BlockState, None]:
    features = commits.features_of(prefill)  # [B, P, F]
    rows, prefix_len = features.shape[0], self.head.prefix_len(condition)
    cache = self.head.init_cache(rows, prefix_len + max_len + self.window + 1)
    known = Context(features[:, features.shape[1] - prefix_len :])
    _, cache = self.head.apply(params.model, known, cache, positions=jnp.arange(prefix_len)[None])
    pending = jnp.zeros((rows, self.window + 1, features.shape[2]), features.dtype)
    return BlockState(cache, pending, jnp.zeros((rows,), jnp.int32), jnp.int32(prefix_len)), None

  def read(self, params: ModelParams, state: BlockState, cursor: Cursor) -> BlockState:
    start = state.prefix_len + cursor.length - 1 - state.num_pending
    positions = start[:, None] + jnp.arange(state.pending.shape[1])[None]
    _, cache = self.head.apply(params.model, Context(state.pending), state.cache, positions=positions)
    return state._replace(cache=cache)

  def draft(self, params: ModelParams, keys: Key, state: BlockState, cursor: Cursor) -> tuple[Draft, BlockState, tuple]:
    state, offsets = self.read(params, state, cursor), jnp.arange(self.window)[None]
    inputs = jnp.where(offsets == 0, cursor.last[:, None], MASK)  # [B, K]
    positions = (state.prefix_len + cursor.length - 1)[:, None] + offsets
    output, cache = self.head.apply(params.model, inputs, state.cache, positions=positions)
    logits = self.warp(output.need_logits(), params.sampling, cursor.length[:, None] + offsets)  # [B, K, V]
    tokens = sample(logits, rng.uniforms(keys, self.window))
    return Draft.chain(tokens, logits, self.window, self.calls_per_round), state._replace(cache=cache), ()

  def commit(
    self, params: ModelParams, state: BlockState, cursor: Cursor, draft: Draft, trace: tuple, verdict: Verdict
  ) -> BlockState:
    # Features at [last, draft ...]. The newest token has none yet, so the first ``gain`` are those of all others.
    gain, size = commits.num_committed(draft, verdict), state.pending.shape[1]
    features = commits.features_of(verdict)[:, :size]
    features = jnp.pad(features, ((0, 0), (0, size - features.shape[1]), (0, 0)))
    held = gain > 0  # a row that commits nothing reads the old ones again
    pending = jnp.where(over_tokens(held, features), features, state.pending)
    return state._replace(pending=pending, num_pending=jnp.where(held, gain, state.num_pending))
