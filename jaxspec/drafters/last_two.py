"""The first pass of a round of a drafter whose cache holds every committed token except the last two.

After a fully accepted draft the newest draft was never fed; one pass over two tokens streams the weights once.
"""

from __future__ import annotations

import jax.numpy as jnp

from jaxspec.token_axes import over_tokens, token_at
from jaxspec.types import Array, Cache, Cursor, Draft, ModelFns, ModelOutput, Params, Verdict


def feed_last_two(
  model: ModelFns, params: Params, cache: Cache, previous: Array, cursor: Cursor, prefix_len: Array
) -> tuple[ModelOutput, Array, Cache]:
  """Feeds the token before the last, ``previous [B]`` (or ``[B, C]``), and the last one.

  Returns:
    The output, its logits ``[B, 1, V]`` those behind the last token; the index ``[B]`` of the last token among the inputs;
    and the cache.
  """
  # A row of one token has no previous token: then feed [last, anything] and read the first output.
  single = cursor.length < 2
  first = jnp.where(over_tokens(single, previous), cursor.last, previous)
  inputs = jnp.stack([first, cursor.last], axis=1)  # [B, 2] or [B, 2, C]
  start = prefix_len + jnp.maximum(cursor.length - 2, 0)
  index = jnp.where(single, 0, 1).astype(jnp.int32)
  output, cache = model.apply(
    params, inputs, cache, positions=start[:, None] + jnp.arange(2)[None], logits_at=index
  )
  return output, index, cache


def token_before_last(cursor: Cursor, draft: Draft, verdict: Verdict) -> Array:
  """``[B]`` or ``[B, C]``, the token before the last one of a row after a verdict about a chain."""
  if draft.tokens.shape[1] == 0:
    return cursor.last
  behind = jnp.where(draft.needs_verify, verdict.num_accepted, draft.num_settled - 1)  # drafts before the new last token
  newest = token_at(draft.tokens, jnp.maximum(behind - 1, 0))
  return jnp.where(over_tokens(behind > 0, newest), newest, cursor.last)
