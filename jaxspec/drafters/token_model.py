"""A small network that drafts a chain of vector tokens, one forward pass and one run of its head each.

The noise of a draft is drawn from keys that go to the verifier with it (`Draft.aux`), so that the target can run its own
chains on the same noise: the trajectory alignment of continuous speculative decoding (arXiv 2411.11925, section 4.2). The
keys are those of this round, so noise that a decision has depended on is never used again.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxspec.diffusion import chain
from jaxspec.drafters.last_two import feed_last_two, token_before_last
from jaxspec.drafters.none import empty_draft
from jaxspec.models.sampling import ModelParams
from jaxspec.models.token_fns import TokenFns
from jaxspec.types import Array, Cache, Cursor, Draft, Drafter, Key, PyTree, Verdict
from jaxspec.verifiers.token_rule import TokenRule


class TokenModelState(NamedTuple):
  """The cache holds every committed token except the last two."""

  cache: Cache
  previous: Array  # [B, C] float32, the token before the last
  prefix_len: Array  # [] int32


@functools.cache
def token_model(fns: TokenFns, rule: TokenRule, *, window: int) -> Drafter:
  """Drafter that samples ``window`` vector tokens.

  Args:
    fns: the draft network and its chain; as many steps as the target's.
    rule: the rule of the verifier; it says what of a drafted chain must be remembered (`TokenRule.describe`).
  Raises:
    ValueError: if ``window`` is not positive.
  """
  if window < 1:
    raise ValueError(f"Must have a draft window of at least 1, we instead got {window}")
  network = fns.network

  def init(params: ModelParams, condition: PyTree, max_len: int, prefill: Verdict) -> TokenModelState:
    prefix_len = network.prefix_len(condition)
    rows = jax.tree.leaves(condition)[0].shape[0]
    cache = network.init_cache(rows, prefix_len + max_len + window)
    positions = jnp.arange(prefix_len)[None]
    _, cache = network.apply(params.model, condition, cache, positions=positions, logits_at=jnp.zeros((1,), jnp.int32))
    return TokenModelState(cache, jnp.zeros((rows, fns.token_dim)), jnp.int32(prefix_len))

  def propose(params: ModelParams, keys: Key, state: TokenModelState, cursor: Cursor) -> tuple[Draft, TokenModelState]:
    rows = keys.shape[0]
    temperature = params.sampling.temperature

    def draw(z: Array, offset: Array) -> tuple[Array, PyTree]:
      law_fn = fns.law(params.model, z, (cursor.length + offset)[:, None])
      noise = chain.token_noise(keys, offset[None, None], fns.num_steps, fns.token_dim)
      drawn = chain.run(law_fn, noise, temperature, noisy_end=fns.noisy_end, record=True)
      return drawn.token[:, 0], rule.describe(drawn, noise, temperature)

    output, _, cache = feed_last_two(network, params.model, state.cache, state.previous, cursor, state.prefix_len)
    first, description = draw(output.features, jnp.int32(0))

    def step(carry, offset):
      cache, token = carry
      positions = (state.prefix_len + cursor.length - 1 + offset)[:, None]
      output, cache = network.apply(params.model, token[:, None], cache, positions=positions)
      token, description = draw(output.features, offset)
      return (cache, token), (token, description)

    offsets = jnp.arange(1, window, dtype=jnp.int32)
    (cache, _), rest = jax.lax.scan(step, (cache, first), offsets)
    together = lambda a, b: jnp.concatenate([a[None], b]).swapaxes(0, 1)  # [B, K, ...]
    tokens, proposal = jax.tree.map(together, (first, description), rest)
    draft = Draft(
      tokens,
      proposal,
      num_drafted=jnp.full((rows,), window, jnp.int32),
      num_settled=jnp.zeros((rows,), jnp.int32),
      needs_verify=jnp.ones((rows,), bool),
      aux=jax.random.key_data(keys),
    )
    return draft, state._replace(cache=cache)

  def follow(params: ModelParams, keys: Key, state: TokenModelState, cursor: Cursor) -> tuple[Draft, TokenModelState]:
    _, _, cache = feed_last_two(network, params.model, state.cache, state.previous, cursor, state.prefix_len)
    return empty_draft(cursor.last), state._replace(cache=cache)

  def commit(
    params: ModelParams, state: TokenModelState, cursor: Cursor, draft: Draft, verdict: Verdict
  ) -> TokenModelState:
    previous = token_before_last(cursor, draft, verdict)
    return state._replace(previous=jnp.where(cursor.live[:, None], previous, state.previous))

  following = Drafter(init, follow, commit, window=0, calls_per_round=1)
  return Drafter(init, propose, commit, window, calls_per_round=window, following=following)
