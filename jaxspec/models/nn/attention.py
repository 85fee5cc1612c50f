"""Scaled dot-product attention over folded rows and heads: one function for training, prefill and decoding."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxspec.core.packing import Packing
from jaxspec.core.precision import dot_bf16, halves_products
from jaxspec.core.types import Array

# Full causal sequences are attended in this many blocks of queries, each to the keys up to its own end. With fewer blocks,
# more of the masked half is computed.
_CAUSAL_BLOCKS = 4
_MIN_BLOCK = 32


def attend(
  q: Array,
  k: Array,
  v: Array,
  mask: Array,
  *,
  causal: bool = False,
  scale: float | None = None,
  packing: Packing | None = None,
) -> Array:
  """``softmax(q k^T scale) v`` with float32 scores.

  Args:
    q: ``[B, H, T, size]``.
    k: ``[B * Hkv, S, size]`` or ``[B, Hkv, S, size]``; H is a multiple of Hkv.
    v: as k.
    mask: ``[B or 1, T or 1, S]`` bool; every query must see a key.
    causal: the caller promises that T = S and that no query sees a later key. Masked blocks are then not computed.
    scale: factor of the scores, ``1 / sqrt(size)`` by default.
    packing: of unpacked inputs; ``mask`` is then ``[G, P, S]``. The softmax is computed for the packed inputs only, and
      the output at padding is any.
  Returns:
    ``[B, H, T, size]`` in q's dtype.
  """
  length = q.shape[2]
  factor: float = q.shape[3] ** -0.5 if scale is None else scale
  block = -(-length // _CAUSAL_BLOCKS)
  if not causal or block < _MIN_BLOCK:
    return _attend(q, k, v, mask, factor, packing)
  out = []
  for start in range(0, length, block):
    end = min(start + block, length)
    out.append(_attend(q[:, :, start:end], k[..., :end, :], v[..., :end, :], mask[:, start:end, :end], factor))
  return jnp.concatenate(out, axis=2)


def attention_mask(positions: Array, slot: Array, mask: Array | None, key_mask: Array) -> Array:
  """Mask of the cache slots that each input of a pass sees.

  Args:
    positions: ``[B or 1, T]`` positions of the inputs.
    slot: ``[B or 1]`` slot of the first input.
    mask: ``[B, T, W]`` bool as in `jaxspec.core.types.ApplyFn`; None is causal, with slots that are positions.
    key_mask: ``[B or 1, S]`` bool, False on padding.
  Returns:
    ``[B or 1, T, S]`` bool. An input always sees itself, so that no softmax row is empty (padding).
  """
  length = positions.shape[1]
  slots = jnp.arange(key_mask.shape[1])[None]  # [1, S]
  own = slot[:, None] + jnp.arange(length)[None]  # [B or 1, T]
  if mask is None:
    visible = slots[None] <= positions[..., None]
  else:
    newest = mask.shape[2]
    column = slots - (slot + length - newest)[:, None]  # [B or 1, S]
    inside = jnp.take_along_axis(mask, jnp.clip(column, 0, newest - 1)[:, None], axis=2)
    visible = (column < 0)[:, None] | (inside & (column < newest)[:, None])
  return (visible & key_mask[:, None]) | (slots[None] == own[..., None])


def window_mask(mask: Array, positions: Array, slot: Array, window: int, tree: Array | None = None) -> Array:
  """Local attention: hides keys that are more than ``window - 1`` positions before the input.

  Args:
    mask: ``[B or 1, T, S]`` of `attention_mask`, for the same ``positions`` and ``slot``.
    positions: ``[B or 1, T]`` positions of the inputs.
    slot: ``[B or 1]`` slot of the first input.
    window: positions an input sees, its own included.
    tree: the mask that `attention_mask` was given. The positions of nodes that were fed earlier are not known, so it
      must cover the inputs of this pass only.
  Returns:
    ``[B or 1, T, S]`` bool.
  """
  length = positions.shape[1]
  if tree is not None and tree.shape[2] != length:
    raise ValueError(f"Must have a mask over the {length} inputs for local attention, we instead got {tree.shape[2]}")
  slots = jnp.arange(mask.shape[2])[None]  # [1, S]
  # A slot's number is its position. Inputs of a draft tree are the exception: they take consecutive slots, and their
  # positions follow from their depths.
  column = slots - slot[:, None]  # [B or 1, S]
  rows = max(column.shape[0], positions.shape[0])
  index = jnp.broadcast_to(jnp.clip(column, 0, length - 1), (rows, slots.shape[1]))
  own = jnp.take_along_axis(jnp.broadcast_to(positions, (rows, length)), index, axis=1)
  held = jnp.where((column >= 0) & (column < length), own, slots)  # [B or 1, S]
  return mask & (held[:, None] > positions[..., None] - window)


def _attend(q: Array, k: Array, v: Array, mask: Array, scale: float, packing: Packing | None = None) -> Array:
  batch, heads, length, size = q.shape
  # Query heads that share a key head become further rows of one batched product.
  q = q.reshape(*k.shape[:-2], -1, size)
  halve = q.dtype == jnp.float32 and (k.dtype == jnp.bfloat16 or halves_products(q.dtype))
  product = _dot_halved if halve else _dot
  scores = product(q, k, -1)
  scores = (scores * jnp.asarray(scale, scores.dtype)).astype(jnp.float32).reshape(batch, heads, length, -1)
  if packing is not None:
    scores = packing.pack(scores.swapaxes(1, 2)).swapaxes(1, 2)
  weights = jax.nn.softmax(jnp.where(mask[:, None], scores, -jnp.inf), axis=-1).astype(q.dtype)
  if packing is not None:
    weights = packing.unpack(weights.swapaxes(1, 2)).swapaxes(1, 2)
  weights = weights.reshape(*q.shape[:-1], -1)
  return product(weights, v, -2).reshape(batch, heads, length, size)


def _dot(x: Array, y: Array, axis: int) -> Array:
  """Batched product of ``x [..., T, D]`` with ``y`` over axis ``axis`` of y."""
  batch = tuple(range(y.ndim - 2))
  return jax.lax.dot_general(x, y, (((x.ndim - 1,), (y.ndim + axis,)), (batch, batch)))


def _dot_halved(x: Array, y: Array, axis: int) -> Array:
  contract, batch = (x.ndim - 1, y.ndim + axis), y.ndim - 2
  if x.shape[-2] > 1:
    return dot_bf16(x, y, contract, batch)
  # XLA would convert all of y to float32 for the product with a single row. The barrier prevents that.
  return jax.lax.optimization_barrier(dot_bf16(jnp.concatenate([x, x], axis=-2), y, contract, batch))[..., :1, :]
