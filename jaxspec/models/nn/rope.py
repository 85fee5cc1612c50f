"""Rotary position embedding in two dimensions, as LlamaGen trained with it.

Half of the channel pairs turn with the row of the grid, half with the column; pairs are interleaved channels
``(2p, 2p + 1)``. The ``P`` condition positions have cos = sin = 0: their queries and keys vanish, so a condition acts
through its values alone. Released weights depend on it.
"""

from __future__ import annotations

import jax.numpy as jnp

from jaxspec.core.types import Array


def rope_2d(positions: Array, *, prefix_len: int, grid: int, head_dim: int, base: float, prefix_keys: bool = False) -> Array:
  """Cosine and sine of every position.

  Args:
    positions: ``[..., T]`` int absolute sequence positions; ``p < prefix_len`` gives zeros, image token i is at
      ``prefix_len + i`` and may lie after the last token (a draft window that is longer than the rest of the image).
    prefix_keys: False is the official table; True gives the condition positions cos = 1, sin = 0, so that they keep
      their keys and attention reads them by content.
  Returns:
    ``[..., T, head_dim / 2, 2]`` float32, last axis (cos, sin).
  """
  pairs = head_dim // 4
  exponent = jnp.arange(0, head_dim // 2, 2, dtype=jnp.float32)[:pairs] / (head_dim // 2)
  inverse_freq = 1.0 / (base**exponent)  # [head_dim / 4]
  inverse_freq = inverse_freq.reshape((1,) * positions.ndim + (-1,))
  index = positions - prefix_len
  row, col = index // grid, index % grid
  angles = jnp.concatenate([row[..., None] * inverse_freq, col[..., None] * inverse_freq], axis=-1)  # [..., T, head_dim / 2]
  table = jnp.stack([jnp.cos(angles), jnp.sin(angles)], axis=-1)
  inside = (index >= 0)[..., None, None]
  if prefix_keys:
    return jnp.where(inside, table, jnp.array([1.0, 0.0]).reshape((1,) * (table.ndim - 1) + (2,)))
  return table * inside


def rotate(x: Array, table: Array) -> Array:
  """Rotates interleaved pairs of ``x [B, T, H, head_dim]`` by ``table [B or 1, T, head_dim / 2, 2]``."""
  pairs = x.astype(jnp.float32).reshape(*x.shape[:-1], -1, 2)  # [B, T, H, head_dim / 2, 2]
  cos, sin = table[..., None, :, 0], table[..., None, :, 1]
  even, odd = pairs[..., 0], pairs[..., 1]
  out = jnp.stack([even * cos - odd * sin, odd * cos + even * sin], axis=-1)
  return out.reshape(x.shape).astype(x.dtype)
