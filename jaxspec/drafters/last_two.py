"""The first pass of a round, for a drafter whose cache holds every committed token except the last two.

After full acceptance the drafter has not read its newest draft. One pass over two tokens reads the weights only once.
"""

from __future__ import annotations

import jax.numpy as jnp

from jaxspec.core.token_axes import over_tokens
from jaxspec.core.types import Array, Cache, Cursor, ModelFns, ModelOutput, Params


def feed_last_two(
  model: ModelFns, params: Params, cache: Cache, previous: Array, cursor: Cursor, prefix_len: Array
) -> tuple[ModelOutput, Array, Cache]:
  """Feeds the token before the last, ``previous [B]`` (or ``[B, C]``), and the last one.

  Returns:
    The output, with logits ``[B, 1, V]`` after the last token; the index ``[B]`` int32 of the last token among the inputs;
    and the cache.
  """
  # A row of one token has no previous token: then feed [last, anything] and read the first output.
  single = cursor.length < 2
  first = jnp.where(over_tokens(single, previous), cursor.last, previous)
  inputs = jnp.stack([first, cursor.last], axis=1)  # [B, 2] or [B, 2, C]
  start = prefix_len + jnp.maximum(cursor.length - 2, 0)
  index = jnp.where(single, 0, 1).astype(jnp.int32)
  output, cache = model.apply(params, inputs, cache, positions=start[:, None] + jnp.arange(2)[None], logits_at=index)
  return output, index, cache
