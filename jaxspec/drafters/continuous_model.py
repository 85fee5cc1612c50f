"""A small network that drafts a chain of continuous tokens: one forward pass and one run of its head per token.

A draft includes the keys of its noise (`DraftedChains`). The target can then run its own chains on the same noise: the
trajectory alignment of continuous speculative decoding (arXiv 2411.11925, section 4.2). Keys belong to one round, so noise
is never reused after a decision has depended on it.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxspec.core import commits
from jaxspec.core.types import Array, Cache, Cursor, Draft, Drafter, Key, PyTree, Verdict
from jaxspec.diffusion import chain
from jaxspec.diffusion.token_chains import DraftedChains, TokenRule
from jaxspec.drafters.last_two import feed_last_two
from jaxspec.models.continuous_fns import ContinuousFns
from jaxspec.sampling.logit_processing import ModelParams


class ContinuousModelState(NamedTuple):
  """The cache holds every committed token except the last two."""

  cache: Cache
  previous: Array  # [B, C] float32, the token before the last
  prefix_len: Array  # [] int32


@dataclasses.dataclass(frozen=True)
class ContinuousModelDrafter(Drafter):
  """Drafter that samples ``window`` continuous tokens.

  Attributes:
    fns: the draft network and its chains, with as many steps as the target's.
    rule: the target's acceptance rule; its `TokenRule.describe` selects the sent part of a drafted chain.
    window: drafts per round ``K``.
  Raises:
    ValueError: if ``window`` is not positive.
  """

  fns: ContinuousFns
  rule: TokenRule
  window: int

  def __post_init__(self):
    if self.window < 1:
      raise ValueError(f"Must have a draft window of at least 1, we instead got {self.window}")

  @property
  def network(self):
    return self.fns.network

  @property
  def calls_per_round(self) -> int:
    return self.window

  def init(
    self, params: ModelParams, keys: Key, condition: PyTree, max_len: int, prefill: Verdict
  ) -> tuple[ContinuousModelState, None]:
    prefix_len = self.network.prefix_len(condition)
    rows = condition.batch_size
    cache = self.network.init_cache(rows, prefix_len + max_len + self.window)
    positions = jnp.arange(prefix_len)[None]
    _, cache = self.network.apply(params.model, condition, cache, positions=positions, logits_at=jnp.zeros((1,), jnp.int32))
    return ContinuousModelState(cache, jnp.zeros((rows, self.fns.token_dim)), jnp.int32(prefix_len)), None

  def read(self, params: ModelParams, state: ContinuousModelState, cursor: Cursor) -> ContinuousModelState:
    _, _, cache = feed_last_two(self.network, params.model, state.cache, state.previous, cursor, state.prefix_len)
    return state._replace(cache=cache)

  def draft(
    self, params: ModelParams, keys: Key, state: ContinuousModelState, cursor: Cursor
  ) -> tuple[Draft, ContinuousModelState, tuple]:
    temperature = params.sampling.temperature

    def draw(z: Array, offset: Array) -> tuple[Array, PyTree]:
      distribution_fn = self.fns.distribution(params.model, z, (cursor.length + offset)[:, None])
      noise = chain.token_noise(keys, offset[None, None], self.fns.num_steps, self.fns.token_dim)
      drawn = chain.run(distribution_fn, noise, temperature, noisy_end=self.fns.noisy_end, record=True)
      return drawn.token[:, 0], self.rule.describe(drawn, noise, temperature)

    output, _, cache = feed_last_two(self.network, params.model, state.cache, state.previous, cursor, state.prefix_len)
    first, description = draw(output.features, jnp.int32(0))

    def step(carry, offset):
      cache, token = carry
      positions = (state.prefix_len + cursor.length - 1 + offset)[:, None]
      output, cache = self.network.apply(params.model, token[:, None], cache, positions=positions)
      token, description = draw(output.features, offset)
      return (cache, token), (token, description)

    offsets = jnp.arange(1, self.window, dtype=jnp.int32)
    (cache, _), rest = jax.lax.scan(step, (cache, first), offsets)
    together = lambda a, b: jnp.concatenate([a[None], b]).swapaxes(0, 1)  # [B, K, ...]
    tokens, chains = jax.tree.map(together, (first, description), rest)
    proposal = DraftedChains(chains, jax.random.key_data(keys))
    return Draft.chain(tokens, proposal, self.window, self.calls_per_round), state._replace(cache=cache), ()

  def commit(
    self, params: ModelParams, state: ContinuousModelState, cursor: Cursor, draft: Draft, trace: tuple, verdict: Verdict
  ) -> ContinuousModelState:
    previous = commits.token_before_newest(cursor, draft, verdict, state.previous)
    cache = commits.replaced_in_cache(self.network, params.model, state.cache, cursor, state.prefix_len, draft, verdict)
    return state._replace(cache=cache, previous=previous)
