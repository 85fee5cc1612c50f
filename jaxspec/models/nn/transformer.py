"""A causal transformer in three parts (embedding, blocks, output), and the pure functions of one.

A family is a subclass of `Transformer`. Its submodules, made in ``setup``, carry the names of its state dict.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax.numpy as jnp

from jaxspec.core.mesh import constrain
from jaxspec.core.types import ApplyFn, Array, Key, Layers, ModelFns, ModelOutput, Params, PyTree
from jaxspec.models.nn import kv_cache
from jaxspec.models.nn.call import call
from jaxspec.models.nn.causal import LayerCache, Positions, wanted


class Transformer(nn.Module):
  """Base of causal transformers; ``layers`` are their blocks ``(x, at, layer_cache) -> (x, layer_cache)``."""

  config: Any

  @property
  def num_layers(self) -> int:
    """Number of blocks."""
    return self.config.num_layers

  def embed(
    self,
    inputs: PyTree,
    cache: kv_cache.KVCache | None = None,
    positions: Array | None = None,
    mask: Array | None = None,
    inject: Array | None = None,
    slot: Array | None = None,
  ) -> tuple[Array, Positions]:
    """Hidden states ``[B, T, D]`` below the first block, and the blocks' common inputs; see `jaxspec.core.types.ApplyFn`."""
    raise NotImplementedError

  def block(self, i: int, x: Array, at: Positions, cache: LayerCache) -> tuple[Array, LayerCache]:
    """Block ``i``."""
    return self.layers[i](x, at, cache)

  def head(self, x: Array, logits_at: Array | None = None) -> ModelOutput:
    """The output for hidden states ``x [B, T, D]`` above a block."""
    raise NotImplementedError

  def blocks(
    self, x: Array, at: Positions, cache: kv_cache.KVCache | None, first: int, last: int
  ) -> tuple[Array, kv_cache.KVCache | None]:
    """The blocks ``first .. last - 1``; of the cache only their entries are read and replaced."""
    return run_blocks(self.block, x, at, cache, first, last)

  def __call__(self, inputs: PyTree) -> ModelOutput:
    x, at = self.embed(inputs)
    x, _ = self.blocks(x, at, None, 0, self.num_layers)
    return self.head(x)


def run_blocks(
  block: Callable[[int, Array, Positions, LayerCache], tuple[Array, LayerCache]],
  x: Array,
  at: Positions,
  cache: kv_cache.KVCache | None,
  first: int,
  last: int,
) -> tuple[Array, kv_cache.KVCache | None]:
  """``x, layer_cache = block(i, x, at, layer_cache)`` for the layers ``first .. last - 1``; see `Transformer.blocks`."""
  if cache is None:
    for i in range(first, last):
      x, _ = block(i, x, at, None)
    return x, None
  keys, values = list(cache.k), list(cache.v)
  for i in range(first, last):
    x, layer = block(i, x, at, (keys[i], values[i]))
    assert layer is not None
    keys[i], values[i] = layer
  return x, kv_cache.KVCache(tuple(keys), tuple(values), at.key_mask)


def enter(x: Array, dtype: str, inject: Array | None) -> Array:
  """Embeddings ``[B, T, D]`` in the compute dtype, with ``inject [B, T, D]`` added."""
  x = constrain(x.astype(dtype))
  return x if inject is None else x + inject.astype(x.dtype)


def read_out(features: Array, output: Callable[[Array], Array], logits_at: Array | None) -> ModelOutput:
  """`ModelOutput` of features ``[B, T, D]`` after the final norm; ``output`` is the output matrix."""
  return ModelOutput(constrain(output(wanted(features, logits_at)).astype(jnp.float32)), features)


def composed(layers: Layers) -> ApplyFn:
  """The whole network: embedding, all blocks, output."""

  def apply(params, inputs, cache=None, *, positions=None, mask=None, inject=None, logits_at=None, slot=None):
    x, context = layers.embed(params, inputs, cache, positions=positions, mask=mask, inject=inject, slot=slot)
    x, cache = layers.blocks(params, x, context, cache, 0, layers.num_layers)
    return layers.head(params, x, logits_at), cache

  return apply


def layers_of(module: Transformer) -> Layers:
  """The three parts of a network as pure functions."""

  def embed(params, inputs, cache=None, *, positions=None, mask=None, inject=None, slot=None):
    return call(module, params, inputs, cache, positions, mask, inject, slot, method="embed")

  part = lambda name: lambda params, *args: call(module, params, *args, method=name)
  return Layers(embed, part("blocks"), part("head"), module.num_layers)


def transformer_fns(
  module: Transformer,
  sample: PyTree,
  prefix_len: Callable[[PyTree], int],
  null_condition: Callable[[Params, PyTree], PyTree] | None = None,
  *,
  packs: bool = False,
) -> ModelFns:
  """Pure functions of a network.

  Args:
    sample: inputs that touch all of its parameters, for ``init``.
    packs: whether blocks take `Positions` of packed inputs: all of what differs between inputs is in the embeddings and in
      ``Positions.rotation``.
  """
  config, layers = module.config, layers_of(module)
  split = getattr(config, "tensor_parallel", False)

  def init(key: Key) -> Params:
    return module.init(key, sample)["params"]

  init.__qualname__ = type(module).__name__  # the name of the network in its repr

  def init_cache(batch: int, max_len: int) -> kv_cache.KVCache:
    return kv_cache.init_cache(
      module.num_layers, batch, config.kv_heads, max_len, config.head_dim, config.dtype, split_heads=split
    )

  return ModelFns(
    init,
    init_cache,
    composed(layers),
    prefix_len,
    null_condition,
    kv_cache.compact,
    kv_cache.take,
    kv_cache.put,
    layers,
    packs,
  )
