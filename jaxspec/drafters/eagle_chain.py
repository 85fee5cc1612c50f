"""EAGLE with a chain: a one-layer network that continues the target's features, one sampled token at a time.

The first system of arXiv 2401.15077. Where a pass over a tree costs the target much more than one over a few tokens, a
sampled chain is the better bargain: its tokens are drawn from the drafter's law, so that the lossless rule keeps each of
them with probability 1 - TV; candidates of a tree are fixed, and kept with their probability under the target only.

One round absorbs the pairs of what the last round committed in one pass, which gives the law of the first draft, and runs
``window - 1`` further passes over the drafter's own features.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from jaxspec import rng
from jaxspec.drafters import feature_pairs
from jaxspec.drafters.feature_pairs import PairState
from jaxspec.models.conditions import Pairs
from jaxspec.models.sampling import ModelParams, Warp, sample
from jaxspec.types import Cursor, Draft, Drafter, Key, ModelFns, PyTree, Verdict


@functools.cache
def eagle_chain(head: ModelFns, *, window: int, warp: Warp) -> Drafter:
  """Drafter that samples ``window`` tokens from a feature-level network.

  The verifier must return features (``target_model(..., feedback_fn=target_features)``); any rule for chains may judge.

  Args:
    head: the drafter network (`eagle_fns`), or its `guided` form behind a guided target.
    window: drafts per round ``K``.
    warp: logit processing of the drafter's law, the same as the target's.
  Raises:
    ValueError: if ``window`` is not positive.
  """
  if window < 1:
    raise ValueError(f"Must have a draft window of at least 1, we instead got {window}")

  def init(params: ModelParams, condition: PyTree, max_len: int, prefill: Verdict) -> PairState:
    return feature_pairs.start(head, params.model, condition, prefill, longest=window, slots=max_len + window + 1)

  def propose(params: ModelParams, keys: Key, state: PairState, cursor: Cursor) -> tuple[Draft, PairState]:
    uniform = rng.uniforms(keys, window)  # [B, K]

    def draw(logits, index):
      logits = warp(logits, params.sampling)
      return sample(logits, jax.lax.dynamic_index_in_dim(uniform, index, axis=1, keepdims=False)), logits

    newest, cache = feature_pairs.absorb(head, params.model, state, cursor)
    token, logits = draw(newest.logits, 0)

    def step(carry, index):
      cache, token, feature = carry
      positions = (newest.place + index)[:, None]
      output, cache = head.apply(params.model, Pairs(token[:, None], feature), cache, positions=positions)
      token, logits = draw(output.logits[:, 0], index)
      return (cache, token, output.features), (token, logits)

    carry = (cache, token, newest.feature)
    (cache, _, _), (tokens, laws) = jax.lax.scan(step, carry, jnp.arange(1, window, dtype=jnp.int32))
    tokens = jnp.concatenate([token[None], tokens]).swapaxes(0, 1)  # [B, K]
    laws = jnp.concatenate([logits[None], laws]).swapaxes(0, 1)  # [B, K, V]
    rows = tokens.shape[0]
    full, zeros = jnp.full((rows,), window, jnp.int32), jnp.zeros((rows,), jnp.int32)
    return Draft(tokens, laws, full, zeros, jnp.ones((rows,), bool)), state._replace(cache=cache)

  def commit(params: ModelParams, state: PairState, cursor: Cursor, draft: Draft, verdict: Verdict) -> PairState:
    return feature_pairs.hold(state, draft, verdict)

  return Drafter(init, propose, commit, window, calls_per_round=window)
