"""Shared parts of causal transformers: positions of the inputs of a pass, cached attention, SwiGLU and pure functions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxspec.core.types import Array, Key, ModelFns, ModelOutput, Params, PyTree
from jaxspec.models.nn import kv_cache
from jaxspec.models.nn.attention import attend, attention_mask
from jaxspec.models.nn.linear import Linear

LayerCache = tuple[Array, Array] | None  # keys and values of one layer


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Positions:
  """Positions, slots and masks of the inputs of one pass."""

  positions: Array  # [B or 1, T]
  start: Array  # [B or 1] slot of the first input
  key_mask: Array  # [B or 1, S] bool, False on padding
  mask: Array  # [B or 1, T, S] bool, the slots that every input sees
  causal: bool = dataclasses.field(metadata={"static": True})  # a whole sequence from its start


def read_positions(
  length: int,
  cache: kv_cache.KVCache | None,
  positions: Array | None,
  mask: Array | None,
  slot: Array | None,
  valid: Array | None = None,
) -> Positions:
  """`Positions` from arguments of `jaxspec.core.types.ApplyFn` for ``length`` inputs; ``valid [B, P]`` is False on
  padding."""
  causal = positions is None and mask is None and cache is None
  key_mask = jnp.ones((1, length), bool) if cache is None else cache.key_mask
  if valid is not None:
    rest = jnp.ones((valid.shape[0], key_mask.shape[1] - valid.shape[1]), bool)
    key_mask = jnp.concatenate([valid, rest], axis=1)
  positions = jnp.arange(length)[None] if positions is None else positions
  start = positions[:, 0] if slot is None else slot
  return Positions(positions, start, key_mask, attention_mask(positions, start, mask, key_mask), causal)


def attend_cached(
  q: Array, k: Array, v: Array, at: Positions, cache: LayerCache, scale: float | None = None, slots: int | None = None
) -> tuple[Array, LayerCache]:
  """Attention of ``q [B, T, H, size]`` to the cache and to ``k, v [B, T, Hkv, size]``.

  Args:
    slots: the caller promises that all later cache slots are hidden, and they are not read; ``at.mask`` is ``[.., slots]``.
  Returns:
    The output ``[B, T, H * size]`` and the new cache.
  """
  order = _fold_heads if cache is None or cache[0].ndim == 3 else lambda x: x.swapaxes(1, 2)
  k, v = order(k), order(v)
  if cache is not None:
    cache = kv_cache.write(cache[0], k, at.start), kv_cache.write(cache[1], v, at.start)
    k, v = kv_cache.read(cache[0]), kv_cache.read(cache[1])
    if slots is not None:
      k, v = k[..., :slots, :], v[..., :slots, :]
  out = attend(q.swapaxes(1, 2), k, v, at.mask, causal=at.causal, scale=scale).swapaxes(1, 2)
  return out.reshape(*out.shape[:2], -1), cache


def _fold_heads(x: Array) -> Array:
  """``[B, T, H, size]`` to ``[B * H, T, size]``."""
  batch, length, heads, size = x.shape
  return x.swapaxes(1, 2).reshape(batch * heads, length, size)


class SwiGLU(nn.Module):
  """``down(silu(gate x) * up x)``; ``names`` are those of gate, up and down."""

  hidden: int
  names: tuple[str, str, str]
  bias: bool = False

  @nn.compact
  def __call__(self, x: Array) -> Array:
    gate, up, down = (
      Linear(features, bias=self.bias, name=name)
      for features, name in zip((self.hidden, self.hidden, x.shape[-1]), self.names)
    )
    return down(jax.nn.silu(gate(x)) * up(x))


def run_blocks(
  block: Callable[[int, Array, LayerCache], tuple[Array, LayerCache]],
  num_layers: int,
  x: Array,
  cache: kv_cache.KVCache | None,
  key_mask: Array,
) -> tuple[Array, kv_cache.KVCache | None]:
  """``x, layer_cache = block(i, x, layer_cache)`` for every layer; returns x and the cache of all layers."""
  layers = []
  for i in range(num_layers):
    x, layer = block(i, x, None if cache is None else (cache.k[i], cache.v[i]))
    layers.append(layer)
  if cache is not None:
    cache = kv_cache.KVCache(tuple(k for k, _ in layers), tuple(v for _, v in layers), key_mask)
  return x, cache


def wanted(features: Array, logits_at: Array | None) -> Array:
  """The features ``[B, T or 1, D]`` of the inputs whose logits are wanted."""
  if logits_at is None:
    return features
  index = jnp.broadcast_to(logits_at[:, None, None], (features.shape[0], 1, 1))
  return jnp.take_along_axis(features, index, axis=1)


def lens_of(below: Sequence[Array], read: Callable[[Array], Array], logits: Array, logits_at: Array | None) -> Array:
  """`ModelOutput.lens`: what the output matrix says of each layer below the last (the "logit lens").

  Args:
    below: the outputs ``[B, T, D]`` of these layers.
    read: norm and output matrix of the network.
    logits: its logits ``[B, T or 1, V]``.
  """
  found = [read(wanted(layer, logits_at)).astype(jnp.float32) for layer in below]
  return jnp.stack(found, axis=2) if found else jnp.zeros((*logits.shape[:2], 0, logits.shape[2]), jnp.float32)


def transformer_fns(
  module: nn.Module,
  init: Callable[[Key], Params],
  prefix_len: Callable[[PyTree], int],
  null_condition: Callable[[Params, PyTree], PyTree] | None = None,
  *,
  num_layers: int,
  kv_heads: int,
) -> ModelFns:
  """Pure functions of a module ``(inputs, cache, positions, mask, inject, logits_at, slot) -> (output, cache)``."""
  config = module.config
  split = getattr(config, "tensor_parallel", False)

  def init_cache(batch: int, max_len: int) -> kv_cache.KVCache:
    return kv_cache.init_cache(num_layers, batch, kv_heads, max_len, config.head_dim, config.dtype, split_heads=split)

  def apply(
    params: Params, inputs: PyTree, cache: Any = None, *, positions=None, mask=None, inject=None, logits_at=None, slot=None
  ) -> tuple[ModelOutput, Any]:
    return module.apply({"params": params}, inputs, cache, positions, mask, inject, logits_at, slot)

  return ModelFns(init, init_cache, apply, prefix_len, null_condition, kv_cache.compact, kv_cache.take, kv_cache.put)
