"""Scaled dot-product attention over folded rows and heads: one function for training, prefill and decoding."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxspec.models.precision import dot_bf16, halves_products
from jaxspec.types import Array

# Full causal sequences are attended in this many blocks of queries, each to the keys up to its own end: the fewer the
# blocks, the more of the masked half is computed.
_CAUSAL_BLOCKS = 4
_MIN_BLOCK = 32


def attend(q: Array, k: Array, v: Array, mask: Array, *, causal: bool = False) -> Array:
  """``softmax(q k^T / sqrt(size)) v`` with float32 scores.

  Args:
    q: ``[B, H, T, size]``.
    k: ``[B * Hkv, S, size]``; H is a multiple of Hkv.
    v: ``[B * Hkv, S, size]``.
    mask: ``[B or 1, T or 1, S]`` bool; every query must see a key.
    causal: promise that T = S and that no query sees a later key. Then masked blocks are not computed.
  Returns:
    ``[B, H, T, size]`` in q's dtype.
  """
  length = q.shape[2]
  block = -(-length // _CAUSAL_BLOCKS)
  if not causal or block < _MIN_BLOCK:
    return _attend(q, k, v, mask)
  out = []
  for start in range(0, length, block):
    end = min(start + block, length)
    out.append(_attend(q[:, :, start:end], k[:, :end], v[:, :end], mask[:, start:end, :end]))
  return jnp.concatenate(out, axis=2)


def attention_mask(positions: Array, slot: Array, mask: Array | None, key_mask: Array) -> Array:
  """Which slots each input of a pass looks at.

  Args:
    positions: ``[B or 1, T]`` positions of the inputs.
    slot: ``[B or 1]`` slot of the first input.
    mask: ``[B, T, W]`` bool as in `jaxspec.types.ApplyFn`; None is causal, with slots that are positions.
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


def _attend(q: Array, k: Array, v: Array, mask: Array) -> Array:
  batch, heads, length, size = q.shape
  folded = k.shape[0]
  # Query heads that share a key head become further rows of one batched product.
  q = q.reshape(folded, -1, size)
  halve = halves_products(q.dtype)
  scores = dot_bf16(q, k, (2, 2), 1) if halve else jnp.einsum("btd,bsd->bts", q, k)
  scores = (scores * jnp.asarray(size**-0.5, scores.dtype)).astype(jnp.float32).reshape(batch, heads, length, -1)
  weights = jax.nn.softmax(jnp.where(mask[:, None], scores, -jnp.inf), axis=-1)
  weights = weights.astype(q.dtype).reshape(folded, q.shape[1], -1)
  out = dot_bf16(weights, v, (2, 1), 1) if halve else jnp.einsum("bts,bsd->btd", weights, v)
  return out.reshape(batch, heads, length, size)
