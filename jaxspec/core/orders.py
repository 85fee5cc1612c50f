"""Generation orders, as pure functions.

``order [B, L]`` int32 holds the raster position of the j-th generated token of every row. It is a permutation; for raster
models it is the identity. Positions of a decode are counted in generation order, so the known tokens always come first.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxspec.core import rng
from jaxspec.core.types import Array, HostArray, Key


def random_order(keys: Key, num_tokens: int) -> Array:
  """One uniform generation order per row, ``[B, L]`` int32, from the row keys ``[B]`` (stream ``ORDER``)."""
  keys = rng.stream_keys(keys, rng.Stream.ORDER, jnp.int32(0))
  return jax.vmap(lambda key: jax.random.permutation(key, num_tokens))(keys).astype(jnp.int32)


def to_raster(values: Array, order: HostArray) -> Array:
  """Values ``[B, L, ...]`` in generation order, moved to their raster positions."""
  row = jnp.arange(order.shape[0])[:, None]
  return jnp.zeros_like(values).at[row, order].set(values, unique_indices=True)


def to_generation_order(values: Array, order: Array) -> Array:
  """Inverse of `to_raster`; a shorter order ``[B, n]`` picks those positions."""
  return jax.vmap(lambda row, positions: row[positions])(values, order)
