"""What language models share: their inputs, the law they return, and the pure functions around their module.

A text stands in the slots of the cache as ``[padding, prompt, generated tokens]``: `align_right` moves the padding of
every row to its beginning, so all rows generate at the same slot, and the padding of a row is hidden from its other
positions. Positions of the text (rotary angles, learned positions, windows) count from the first token of the row.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import flax.linen as nn
import jax.numpy as jnp

from jaxspec.models import kv_cache
from jaxspec.models.attention import attention_mask
from jaxspec.models.conditions import Prefixed, Prompt, align_right
from jaxspec.types import Array, Key, ModelFns, ModelOutput, Params, PyTree


class TextInputs(NamedTuple):
  """Tokens of one pass and where they stand."""

  ids: Array  # [B, T] int32
  slots: Array  # [B or 1, T] positions, the padding of the row counted
  places: Array  # [B or 1, T] positions in the text; 0 on padding
  start: Array  # [B or 1] slot of the first input
  key_mask: Array  # [B or 1, S] bool, False on padding
  mask: Array  # [B or 1, T, S] bool, what every input looks at
  causal: bool  # a whole text from its start


def read_inputs(
  inputs: PyTree, cache: kv_cache.KVCache | None, positions: Array | None, mask: Array | None, slot: Array | None
) -> TextInputs:
  """Reads what `jaxspec.types.ApplyFn` was given.

  Args:
    inputs: ids ``[B, T]``, a `Prompt`, or a `Prefixed` prompt without a cache. Outputs of a prompt stand in the order of
      `align_right`.
    positions: ``[B or 1, T]``, None for a whole text.
  """
  causal = positions is None and mask is None and cache is None
  prompt = inputs.condition if isinstance(inputs, Prefixed) else inputs if isinstance(inputs, Prompt) else None
  ids, valid = inputs, None
  if prompt is not None:
    ids, valid = align_right(prompt)
  if isinstance(inputs, Prefixed):
    ids = jnp.concatenate([ids, inputs.tokens], axis=1)
  batch, length = ids.shape
  key_mask = jnp.ones((1, length), bool) if cache is None else cache.key_mask
  if valid is not None:
    rest = jnp.ones((batch, key_mask.shape[1] - valid.shape[1]), bool)
    key_mask = jnp.concatenate([valid, rest], axis=1)
  slots = jnp.arange(length)[None] if positions is None else positions
  start = slots[:, 0] if slot is None else slot
  padding = jnp.sum(~key_mask, axis=1, keepdims=True, dtype=slots.dtype)  # [B or 1, 1]
  places = jnp.maximum(slots - padding, 0)
  return TextInputs(ids, slots, places, start, key_mask, attention_mask(slots, start, mask, key_mask), causal)


def wanted(features: Array, logits_at: Array | None) -> Array:
  """The features ``[B, T or 1, D]`` whose logits are asked for."""
  if logits_at is None:
    return features
  index = jnp.broadcast_to(logits_at[:, None, None], (features.shape[0], 1, 1))
  return jnp.take_along_axis(features, index, axis=1)


def heads_of(x: Array, num_heads: int) -> Array:
  """``[B, T, H * size]`` to ``[B, T, H, size]``."""
  return x.reshape(*x.shape[:-1], num_heads, x.shape[-1] // num_heads)


def fold_heads(x: Array) -> Array:
  """``[B, T, H, size]`` to ``[B * H, T, size]``, the layout of the cache."""
  batch, length, heads, size = x.shape
  return x.swapaxes(1, 2).reshape(batch * heads, length, size)


def extend_cache(
  cache: tuple[Array, Array] | None, k: Array, v: Array, start: Array
) -> tuple[Array, Array, tuple[Array, Array] | None]:
  """Writes folded keys and values behind the cached ones; returns what to attend to, and the cache."""
  if cache is None:
    return k, v, None
  k, v = kv_cache.write(cache[0], k, start), kv_cache.write(cache[1], v, start)
  return kv_cache.read(k), kv_cache.read(v), (k, v)


def language_fns(module: nn.Module, *, num_layers: int, kv_heads: int, head_dim: int, dtype: str) -> ModelFns:
  """Pure functions of a module ``(inputs, cache, positions, mask, inject, logits_at, slot) -> (output, cache)``."""

  def init(key: Key) -> Params:
    return module.init(key, jnp.zeros((1, 1), jnp.int32), None, None)["params"]

  def init_cache(batch: int, max_len: int) -> kv_cache.KVCache:
    return kv_cache.init_cache(num_layers, batch, kv_heads, max_len, head_dim, dtype)

  def apply(
    params: Params, inputs: PyTree, cache: Any = None, *, positions=None, mask=None, inject=None, logits_at=None, slot=None
  ) -> tuple[ModelOutput, Any]:
    return module.apply({"params": params}, inputs, cache, positions, mask, inject, logits_at, slot)

  def prefix_len(prompt: Prompt) -> int:
    return prompt.tokens.shape[1]

  return ModelFns(init, init_cache, apply, prefix_len, None, kv_cache.compact)
