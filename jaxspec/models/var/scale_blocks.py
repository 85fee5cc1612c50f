"""Blocks of VAR's transformer: adaptive layer norms, and attention from every scale to itself and to earlier ones.

In every norm the class sets gain and shift, and it scales what is added to the residual stream. These six vectors depend on
the class alone, so they are made once for all scales (`Block.modulation`) and handed to the block.
"""

from __future__ import annotations

import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxspec.core.types import Array
from jaxspec.models.nn.causal import LayerCache, Positions, attend_cached
from jaxspec.models.nn.linear import Linear, affine
from jaxspec.models.nn.mlp import MLP
from jaxspec.models.nn.norm import layer_norm
from jaxspec.models.nn.quantizer import normalise

EPS = 1e-6
# Largest factor of normalised queries, and the one that training starts with.
_MAX_SCALE, _FIRST_SCALE = 100.0, 4.0
# Factor of the scores where queries and keys are not normalised, beside 1 / sqrt(size).
_PLAIN_SCALE = 0.25

# Rows of a modulation: factors of the two branches, then scales of the two norms, then their shifts.
NUM_VECTORS = 6
# Gains of the initial weights of these rows: a fresh block is nearly the identity.
BLOCK_GAINS = (1e-5, 1e-5, 0.5, 0.5, 0.5, 0.5)
HEAD_GAINS = (0.5, 0.5)


def modulated(x: Array, scale: Array, shift: Array) -> Array:
  """``LN(x) (1 + scale) + shift`` for ``x [B, T, D]`` and ``[B, 1, D]``, computed in float32; the norm has no weights."""
  return layer_norm(x, EPS) * (1 + scale.astype(jnp.float32)) + shift.astype(jnp.float32)


class Modulation(nn.Module):
  """``W silu(s) + b`` as ``[B, n, D]`` for classes ``s [B, D]``, one row for each of the ``n`` gains of initial weights."""

  gains: tuple[float, ...]
  std: float

  @nn.compact
  def __call__(self, s: Array) -> Array:
    width, num = s.shape[-1], len(self.gains)

    def init(key, shape, dtype):
      gains = jnp.repeat(jnp.asarray(self.gains, dtype), width)[:, None]
      return self.std * gains * jax.random.normal(key, shape, dtype)

    weight = self.param("weight", init, (num * width, width), jnp.float32)
    bias = self.param("bias", nn.initializers.zeros, (num * width,), jnp.float32)
    return affine(jax.nn.silu(s), weight, bias).reshape(-1, num, width)


class ScaleAttention(nn.Module):
  """Attention whose keys have no bias. With ``qk_norm`` queries and keys have unit length and heads a learned factor."""

  config: Any

  @nn.compact
  def __call__(self, x: Array, at: Positions, cache: LayerCache) -> tuple[Array, LayerCache]:
    cfg = self.config
    width, heads = x.shape[-1], cfg.num_heads
    weight = self.param("mat_qkv", nn.initializers.normal(cfg.init_std), (3 * width, width), jnp.float32)
    q_bias, v_bias = (self.param(name, nn.initializers.zeros, (width,), jnp.float32) for name in ("q_bias", "v_bias"))
    qkv = affine(x, weight, jnp.concatenate([q_bias, jnp.zeros_like(q_bias), v_bias]))
    q, k, v = (part.reshape(*x.shape[:2], heads, -1) for part in jnp.split(qkv, 3, axis=-1))  # [B, T, H, size]
    scale = _PLAIN_SCALE / math.sqrt(q.shape[-1])
    if cfg.qk_norm:
      start = nn.initializers.constant(math.log(_FIRST_SCALE))
      factor = self.param("scale_mul_1H11", start, (1, heads, 1, 1), jnp.float32).astype(jnp.float32)
      factor = jnp.exp(jnp.minimum(factor, math.log(_MAX_SCALE)))
      q, k = (normalise(q) * factor.reshape(1, 1, heads, 1)).astype(x.dtype), normalise(k).astype(x.dtype)
      scale = 1.0
    out, cache = attend_cached(q, k, v, at, cache, scale, at.mask.shape[-1])
    return Linear(width, std=cfg.init_std, bias=True, name="proj")(out), cache


class Block(nn.Module):
  """``x += f1 attn(norm1 x)``, then ``x += f2 mlp(norm2 x)``; the class sets factors and norms."""

  config: Any

  def setup(self):
    cfg = self.config
    self.attn = ScaleAttention(cfg)
    self.ffn = MLP(cfg.ffn_hidden, std=None)
    if cfg.shared_adaln:
      self.ada_gss = self.param("ada_gss", _first_vectors, (1, 1, NUM_VECTORS, cfg.dim), jnp.float32)
    else:
      self.ada_lin = Modulation(BLOCK_GAINS, cfg.init_std)

  def modulation(self, s: Array, shared: Array | None) -> Array:
    """The six vectors ``[B, 6, D]`` for classes ``s [B, D]``, or from what all blocks share, ``[B, 6, D]``."""
    return self.ada_lin(s) if shared is None else shared + self.ada_gss[0].astype(shared.dtype)

  def __call__(self, x: Array, vectors: Array, at: Positions, cache: LayerCache) -> tuple[Array, LayerCache]:
    factor1, factor2, scale1, scale2, shift1, shift2 = jnp.split(vectors, NUM_VECTORS, axis=1)  # each [B, 1, D]
    attended, cache = self.attn(modulated(x, scale1, shift1).astype(x.dtype), at, cache)
    x = x + factor1 * attended
    return x + factor2 * self.ffn(modulated(x, scale2, shift2).astype(x.dtype)), cache


def _first_vectors(key, shape, dtype):
  gains = jnp.asarray(BLOCK_GAINS, dtype).reshape(1, 1, NUM_VECTORS, 1)
  return gains * shape[-1] ** -0.5 * jax.random.normal(key, shape, dtype)
