"""The key/value cache: an explicit pytree of fixed-size buffers.

One ``(k, v)`` pair per layer, laid out ``[B * Hkv, S, head_dim]``: with rows and heads folded, XLA updates the buffers
in place inside a loop and attention reads them without a transpose. Slot ``s`` holds sequence position ``s``. To roll
back, the caller moves a row's length: slots after it are garbage that no mask reads. Only a draft tree leaves accepted
entries among garbage; `compact` moves these few together.

Where heads are divided over several devices, the layout is ``[B, Hkv, S, head_dim]``: folded rows and heads cannot be
divided by heads. All functions here take both layouts.

On a CPU, bfloat16 entries are stored as integers with the same bits. XLA rewrites a whole bfloat16 buffer to update a slice
of it, but updates integers in place. `read` gives the values back; XLA copies the buffer for it in every pass.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxspec.core.mesh import constrain
from jaxspec.core.packing import Packing
from jaxspec.core.platform import platform
from jaxspec.core.precision import halves_products
from jaxspec.core.types import Array

_BITS = jnp.uint16


class KVCache(NamedTuple):
  """Cache of one network for a batch.

  ``key_mask`` is False where a condition slot is padding that no other position may look at.
  """

  k: tuple[Array, ...]  # num_layers x [B * Hkv, S, head_dim] or [B, Hkv, S, head_dim], rotated keys
  v: tuple[Array, ...]  # as k
  key_mask: Array  # [B, S] bool


def init_cache(
  num_layers: int, batch: int, num_kv_heads: int, max_len: int, head_dim: int, dtype, *, split_heads: bool = False
) -> KVCache:
  """Zero cache with at least ``max_len`` slots (rounded up to a multiple of 8).

  ``split_heads`` divides the heads over the axis ``model`` of a mesh (`jaxspec.core.mesh`). If products round their inputs
  (see `jaxspec.core.precision`), float32 entries are rounded when they are stored.
  """
  dtype = jnp.dtype(dtype)  # a config names it by a string
  if platform() == "cpu" and (dtype == jnp.bfloat16 or halves_products(dtype)):
    max_len, dtype = max_len + 1, _BITS  # the spare slot: see `write`
  slots = -(-max_len // 8) * 8
  shape = (batch, num_kv_heads, slots, head_dim) if split_heads else (batch * num_kv_heads, slots, head_dim)
  zero = lambda: _divided(jnp.zeros(shape, dtype))
  zeros = lambda: tuple(zero() for _ in range(num_layers))
  return KVCache(zeros(), zeros(), jnp.ones((batch, slots), bool))


def write(buffer: Array, values: Array, start: Array) -> Array:
  """Writes ``values [B*H, T, D]`` into ``buffer [B*H, S, D]`` at consecutive slots from ``start``; or both with four axes.

  Args:
    start: ``[B]`` first slot of each row, or ``[1]`` when all rows share it (then it is one contiguous update). Must
      leave room: ``start + T <= S``; XLA would clamp it otherwise and overwrite live slots.
  """
  values = _stored(values, buffer.dtype)
  if start.shape[0] == 1 and values.shape[-2] == 1 and buffer.dtype == _BITS:
    # XLA fuses the update of a single slot with the cast that reads it, and then copies the buffer. With a second entry,
    # which is garbage after the length, it updates in place.
    values = jnp.concatenate([values, values], axis=-2)
  first = (jnp.int32(0),) * (buffer.ndim - 3)  # the heads of a row, where they have an axis
  if start.shape[0] == 1:
    return jax.lax.dynamic_update_slice(buffer, values, (jnp.int32(0), *first, start[0], jnp.int32(0)))
  starts = jnp.repeat(start, buffer.shape[0] // start.shape[0])
  update = lambda row, new, at: jax.lax.dynamic_update_slice(row, new, (*first, at, jnp.int32(0)))
  return jax.vmap(update)(buffer, values, starts)


def write_packed(buffer: Array, values: Array, start: Array, packing: Packing) -> Array:
  """Writes ``values [G, P, H, D]`` of packed inputs into a buffer of ``G * B`` rows, each at the next slots of its row.

  Args:
    start: ``[G * B]`` slot of the first input of each row.
  """
  row = _of_groups(packing.row, values.shape[0], start.shape[0])  # [G, P]
  is_input = jnp.arange(values.shape[1])[None] < jnp.sum(packing.share)
  slot = jnp.where(is_input, start[row] + packing.number[None], buffer.shape[-2])[..., None]  # padding has none
  row, head = row[..., None], jnp.arange(values.shape[2])[None, None]
  place = (row * values.shape[2] + head, slot) if buffer.ndim == 3 else (row, head, slot)
  return buffer.at[place].set(_stored(values, buffer.dtype), mode="drop")


def read(buffer: Array) -> Array:
  """The keys or values of a buffer."""
  if buffer.dtype != _BITS:
    return buffer
  # Without the barrier XLA fuses the cast with the update, which then is no longer in place.
  return jax.lax.bitcast_convert_type(jax.lax.optimization_barrier(buffer), jnp.bfloat16)


def read_packed(buffer: Array, num_rows: int, packing: Packing) -> Array:
  """As `read`, of a buffer of ``num_rows = G * B`` rows, for the ``G * M`` rows with packed inputs."""
  most, rows = packing.rows.shape[0], packing.share.shape[0]
  if most < rows:
    row = _of_groups(packing.rows, num_rows // rows, num_rows).reshape(-1)
    buffer = buffer.at[_folded(buffer, num_rows, row)].get(mode="promise_in_bounds")
  return read(buffer)


def _of_groups(row: Array, groups: int, num_rows: int) -> Array:
  """Rows ``[N]`` of a batch as rows ``[G, N]`` of a cache, which has them once for each group."""
  return row[None] + jnp.arange(groups, dtype=row.dtype)[:, None] * (num_rows // groups)


def _stored(values: Array, dtype) -> Array:
  if dtype == _BITS and values.dtype != _BITS:
    return jax.lax.bitcast_convert_type(values.astype(jnp.bfloat16), _BITS)
  return values.astype(dtype)


def compact(cache: KVCache, slot: Array, path: Array) -> KVCache:
  """Moves the entries of an accepted path of a draft tree together.

  Args:
    slot: ``[B]`` slot of node 0 of the tree.
    path: ``[B, L]`` nodes in order of depth; entries after the path's end become garbage after the length.
  Returns:
    The cache with the entries of ``slot + path`` at ``slot, slot + 1, ...``.
  """
  source = slot[:, None] + path  # [B, L]

  def move(buffer: Array) -> Array:
    folded = jnp.repeat(source, buffer.shape[0] // source.shape[0], axis=0)  # [B * Hkv or B, L]
    return write(buffer, jax.vmap(lambda row, at: row[..., at, :])(buffer, folded), slot)

  return cache._replace(k=tuple(move(k) for k in cache.k), v=tuple(move(v) for v in cache.v))


def num_rows(cache: KVCache) -> int:
  """Rows B of a cache; a guided model has two for each row of its outputs."""
  return cache.key_mask.shape[0]


def take(cache: KVCache, slots: Array) -> KVCache:
  """The rows ``slots [M]`` int32 of a table of rows, as a cache of ``M`` rows."""
  rows = lambda buffer: _divided(buffer.at[_folded(buffer, num_rows(cache), slots)].get(mode="promise_in_bounds"))
  mask = cache.key_mask.at[slots].get(mode="promise_in_bounds")
  return KVCache(tuple(rows(k) for k in cache.k), tuple(rows(v) for v in cache.v), mask)


def put(cache: KVCache, rows: KVCache, slots: Array, start: Array | None = None, width: int | None = None) -> KVCache:
  """Writes rows into slots of a table of rows; see `jaxspec.core.types.PutFn`. Both have the same number of cache slots.

  With a ``start`` the masks stay: a pass over tokens never changes them.

  Raises:
    ValueError: if rows are stored otherwise than the table, as under another precision of products.
  """
  stored = lambda cache: (cache.k[0].dtype, cache.key_mask.shape[1])
  if stored(cache) != stored(rows):
    raise ValueError(f"Must have rows of {stored(cache)} for this table, we instead got {stored(rows)}")
  if start is None:
    whole = lambda table, new: _divided(table.at[_folded(table, num_rows(cache), slots)].set(new, mode="promise_in_bounds"))
    mask = cache.key_mask.at[slots].set(rows.key_mask, mode="promise_in_bounds")
    return KVCache(tuple(map(whole, cache.k, rows.k)), tuple(map(whole, cache.v, rows.v)), mask)

  if width is None:
    raise ValueError("Must have a width with start, we instead got none")
  # One window [width, head_dim] for each row (and head). XLA writes windows in place, one after the other.
  axes = rows.k[0].ndim
  windows = jax.lax.ScatterDimensionNumbers(
    tuple(range(1, axes)), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0, axes - 2)
  )

  def part(table: Array, new: Array) -> Array:
    starts = jnp.repeat(start, new.shape[0] // start.shape[0])
    values = jax.vmap(lambda row, at: jax.lax.dynamic_slice_in_dim(row, at, width, axis=-2))(new, starts)
    index = jnp.stack([_folded(table, num_rows(cache), slots), starts], axis=1)  # [M * Hkv or M, 2]
    return _divided(jax.lax.scatter(table, index, values, windows, mode=jax.lax.GatherScatterMode.PROMISE_IN_BOUNDS))

  return KVCache(tuple(map(part, cache.k, rows.k)), tuple(map(part, cache.v, rows.v)), cache.key_mask)


def _divided(buffer: Array) -> Array:
  """The buffer, whose heads are divided over devices where they have an axis of their own."""
  return constrain(buffer, None, "model") if buffer.ndim == 4 else buffer


def _folded(buffer: Array, rows: int, slots: Array) -> Array:
  """Rows ``[M * Hkv]`` of a buffer that hold the heads of ``slots [M]``; the slots where heads have an axis of their own."""
  heads = buffer.shape[0] // rows
  return (slots[:, None] * heads + jnp.arange(heads, dtype=slots.dtype)[None]).reshape(-1)
