"""Shared parts of causal transformers: positions of the inputs of a pass, cached attention, pre-norm blocks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxspec.core.packing import PackedPositions, Packing
from jaxspec.core.types import Array
from jaxspec.models.nn import kv_cache
from jaxspec.models.nn.attention import attend, attention_mask
from jaxspec.models.nn.linear import Linear

LayerCache = tuple[Array, Array] | None  # keys and values of one layer


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Positions:
  """Positions, slots and masks of the inputs of one pass, for every block."""

  positions: Array  # [B or 1, T]; [1, P] of packed inputs
  start: Array  # [B or 1] slot of the first input
  key_mask: Array  # [B or 1, S] bool, False on padding
  mask: Array  # [B or 1, T, S] bool, the slots that every input sees; [G, P, S] of packed inputs
  causal: bool = dataclasses.field(metadata={"static": True})  # a whole sequence from its start
  rotation: Array | None = None  # [B or 1, T, head_dim / 2, 2], cosine and sine of rotary positions
  local_mask: Array | None = None  # as mask, of layers with local attention
  packing: Packing | None = None  # of packed inputs


def read_positions(
  length: int,
  cache: kv_cache.KVCache | None,
  positions: Array | PackedPositions | None,
  mask: Array | None = None,
  slot: Array | None = None,
  valid: Array | None = None,
) -> Positions:
  """`Positions` from arguments of `jaxspec.core.types.ApplyFn` for ``length`` inputs; ``valid [B, P]`` is False on
  padding."""
  causal = positions is None and mask is None and cache is None
  key_mask = jnp.ones((1, length), bool) if cache is None else cache.key_mask
  if isinstance(positions, PackedPositions):
    groups, packing = key_mask.shape[0] // positions.start.shape[0], positions.packing  # with guidance both halves
    slots = jnp.arange(key_mask.shape[1])[None, None]
    mask = key_mask.reshape(groups, -1, slots.shape[2])[:, packing.row] & (slots <= positions.positions[..., None])
    return Positions(positions.positions, jnp.tile(positions.start, groups), key_mask, mask, False, packing=packing)
  if valid is not None:
    rest = jnp.ones((valid.shape[0], key_mask.shape[1] - valid.shape[1]), bool)
    key_mask = jnp.concatenate([valid, rest], axis=1)
  positions = jnp.arange(length)[None] if positions is None else positions
  start = positions[:, 0] if slot is None else slot
  return Positions(positions, start, key_mask, attention_mask(positions, start, mask, key_mask), causal)


def attend_cached(
  q: Array, k: Array, v: Array, at: Positions, cache: LayerCache, scale: float | None = None, slots: int | None = None
) -> tuple[Array, LayerCache]:
  """Attention of ``q [B, T, H, size]`` to the cache and to ``k, v [B, T, Hkv, size]``; packed ones have the axes ``[1, P]``.

  Args:
    slots: the caller promises that all later cache slots are hidden, and they are not read; ``at.mask`` is ``[.., slots]``.
  Returns:
    The output ``[B, T, H * size]`` and the new cache.
  """
  packing = at.packing
  if cache is None:
    k, v = _fold_heads(k), _fold_heads(v)
  elif packing is None:
    cache = write_cached(k, v, at.start, cache)
    k, v = kv_cache.read(cache[0]), kv_cache.read(cache[1])
  else:
    # With the barrier rotations are computed once for each input. Without it XLA fuses them into the copies of every row,
    # most of which are padding.
    q, k, v = jax.lax.optimization_barrier((q, k, v))
    write = lambda buffer, values: kv_cache.write_packed(buffer, values, at.start, packing)
    cache = write(cache[0], k), write(cache[1], v)
    q = packing.unpack(q)
    k, v = (kv_cache.read_packed(buffer, at.start.shape[0], packing) for buffer in cache)
  if slots is not None:
    k, v = k[..., :slots, :], v[..., :slots, :]
  out = attend(q.swapaxes(1, 2), k, v, at.mask, causal=at.causal, scale=scale, packing=packing).swapaxes(1, 2)
  out = out.reshape(*out.shape[:2], -1)
  return out if packing is None else packing.pack(out), cache


def write_cached(k: Array, v: Array, start: Array, cache: tuple[Array, Array]) -> tuple[Array, Array]:
  """The cache of one layer with ``k, v [B, T, Hkv, size]`` at consecutive slots from ``start [B or 1]``."""
  order = _fold_heads if cache[0].ndim == 3 else lambda x: x.swapaxes(1, 2)
  return kv_cache.write(cache[0], order(k), start), kv_cache.write(cache[1], order(v), start)


def _fold_heads(x: Array) -> Array:
  """``[B, T, H, size]`` to ``[B * H, T, size]``."""
  batch, length, heads, size = x.shape
  return x.swapaxes(1, 2).reshape(batch * heads, length, size)


class Attention(nn.Module):
  """Attention of the inputs of a pass to a cache, with grouped queries.

  Attributes:
    num_heads: query heads.
    kv_heads: heads of keys and values; a divisor of ``num_heads``.
    head_dim: width of a head.
    rotate: how `Positions.rotation` turns queries and keys; None: no rotary positions.
    names: of the matrices of queries, keys, values and output.
    fused: name of one matrix for queries, keys and values; None: one matrix each.
    bias: whether queries, keys and values have biases.
    output_bias: whether the output matrix has one.
    norm: a module class that norms the heads ``[B, T, H, head_dim]`` of queries and keys before they are rotated, or None.
    scale: factor of the scores; None is ``1 / sqrt(head_dim)``.
  """

  num_heads: int
  kv_heads: int
  head_dim: int
  rotate: Callable[[Array, Array], Array] | None = None
  names: tuple[str, str, str, str] = ("q_proj", "k_proj", "v_proj", "o_proj")
  fused: str | None = None
  bias: bool = False
  output_bias: bool = False
  norm: Callable[..., nn.Module] | None = None
  scale: float | None = None

  @nn.compact
  def __call__(self, x: Array, at: Positions, cache: LayerCache) -> tuple[Array, LayerCache]:
    def project(heads: int, name: str) -> Array:
      return Linear(heads * self.head_dim, bias=self.bias, name=name)(x).reshape(*x.shape[:2], heads, self.head_dim)

    heads, kv_heads = self.num_heads, self.kv_heads
    if self.fused is None:
      q, k, v = (project(count, name) for count, name in zip((heads, kv_heads, kv_heads), self.names))
    else:
      q, k, v = jnp.split(project(heads + 2 * kv_heads, self.fused), [heads, heads + kv_heads], axis=2)
    if self.norm is not None:
      q, k = self.norm(name="q_norm")(q), self.norm(name="k_norm")(k)
    if self.rotate is not None:
      assert at.rotation is not None
      q, k = self.rotate(q, at.rotation), self.rotate(k, at.rotation)
    out, cache = attend_cached(q, k, v, at, cache, self.scale)
    return Linear(x.shape[-1], bias=self.output_bias, name=self.names[-1])(out), cache


def pre_norm(
  x: Array, at: Positions, cache: LayerCache, norm1: nn.Module, attention: nn.Module, norm2: nn.Module, mlp: nn.Module
) -> tuple[Array, LayerCache]:
  """A pre-norm block: ``x += attention(norm1 x)``, then ``x += mlp(norm2 x)``; returns x and the cache of the layer."""
  attended, cache = attention(norm1(x), at, cache)
  x = x + attended
  return x + mlp(norm2(x)), cache


def wanted(features: Array, logits_at: Array | None) -> Array:
  """The features ``[B, T or 1, D]`` of the inputs whose logits are requested."""
  if logits_at is None:
    return features
  index = jnp.broadcast_to(logits_at[:, None, None], (features.shape[0], 1, 1))
  return jnp.take_along_axis(features, index, axis=1)
