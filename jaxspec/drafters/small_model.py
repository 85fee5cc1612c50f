"""A small network that drafts a chain of tokens, one forward pass each."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxspec.core import commits, rng
from jaxspec.core.types import Array, Cache, Cursor, Draft, Drafter, Key, ModelFns, PyTree, Verdict
from jaxspec.drafters.last_two import feed_last_two
from jaxspec.sampling.logit_processing import ModelParams, Warp, sample


class SmallModelState(NamedTuple):
  """The cache holds every committed token except the last two."""

  cache: Cache
  previous: Array  # [B] the token before the last
  prefix_len: Array  # [] int32


@dataclasses.dataclass(frozen=True)
class SmallModelDrafter(Drafter):
  """Drafter that samples ``window`` tokens from ``model``.

  Attributes:
    model: the draft network.
    window: drafts per round ``K``.
    warp: static part of the logit processing, the same as the target's.
  Raises:
    ValueError: if ``window`` is not positive.
  """

  model: ModelFns
  window: int
  warp: Warp

  def __post_init__(self):
    if self.window < 1:
      raise ValueError(f"Must have a draft window of at least 1, we instead got {self.window}")

  @property
  def calls_per_round(self) -> int:
    return self.window

  def init(
    self, params: ModelParams, keys: Key, condition: PyTree, max_len: int, prefill: Verdict
  ) -> tuple[SmallModelState, None]:
    prefix_len = self.model.prefix_len(condition)
    rows = condition.batch_size
    cache = self.model.init_cache(rows, prefix_len + max_len + self.window)
    positions = jnp.arange(prefix_len)[None]
    _, cache = self.model.apply(params.model, condition, cache, positions=positions, logits_at=jnp.zeros((1,), jnp.int32))
    return SmallModelState(cache, jnp.zeros((rows,), jnp.int32), jnp.int32(prefix_len)), None

  def read(self, params: ModelParams, state: SmallModelState, cursor: Cursor) -> SmallModelState:
    _, _, cache = feed_last_two(self.model, params.model, state.cache, state.previous, cursor, state.prefix_len)
    return state._replace(cache=cache)

  def draft(
    self, params: ModelParams, keys: Key, state: SmallModelState, cursor: Cursor
  ) -> tuple[Draft, SmallModelState, tuple]:
    uniform = rng.uniforms(keys, self.window)  # [B, K]

    def draw(output, index):
      logits = self.warp(output.logits[:, 0], params.sampling, cursor.length + index)
      return sample(logits, jax.lax.dynamic_index_in_dim(uniform, index, axis=1, keepdims=False)), logits

    output, _, cache = feed_last_two(self.model, params.model, state.cache, state.previous, cursor, state.prefix_len)
    token, logits = draw(output, 0)

    def step(carry, index):
      cache, token = carry
      positions = (state.prefix_len + cursor.length - 1 + index)[:, None]
      output, cache = self.model.apply(params.model, token[:, None], cache, positions=positions)
      token, logits = draw(output, index)
      return (cache, token), (token, logits)

    (cache, _), (tokens, rest) = jax.lax.scan(step, (cache, token), jnp.arange(1, self.window, dtype=jnp.int32))
    tokens = jnp.concatenate([token[None], tokens]).swapaxes(0, 1)  # [B, K]
    proposal = jnp.concatenate([logits[None], rest]).swapaxes(0, 1)  # [B, K, V]
    return Draft.chain(tokens, proposal, self.window, self.calls_per_round), state._replace(cache=cache), ()

  def commit(
    self, params: ModelParams, state: SmallModelState, cursor: Cursor, draft: Draft, trace: tuple, verdict: Verdict
  ) -> SmallModelState:
    previous = commits.token_before_newest(cursor, draft, verdict, state.previous)
    return state._replace(previous=previous)
