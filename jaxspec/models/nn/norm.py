"""Norms over channels: root mean square, and layer norm."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxspec.core.types import Array


class RMSNorm(nn.Module):
  """Root-mean-square norm in float32, cast to the input dtype before the weight (as the official code does)."""

  eps: float

  @nn.compact
  def __call__(self, x: Array) -> Array:
    weight = self.param("weight", nn.initializers.ones, (x.shape[-1],), jnp.float32)
    x32 = x.astype(jnp.float32)
    normed = x32 * jax.lax.rsqrt(jnp.mean(jnp.square(x32), axis=-1, keepdims=True) + self.eps)
    return normed.astype(x.dtype) * weight.astype(x.dtype).reshape((1,) * (x.ndim - 1) + (-1,))


def layer_norm(x: Array, eps: float) -> Array:
  """``(x - mean) / sqrt(variance + eps)`` over the last axis, in float32; the result too."""
  x32 = x.astype(jnp.float32)
  centred = x32 - jnp.mean(x32, axis=-1, keepdims=True)
  return centred * jax.lax.rsqrt(jnp.mean(jnp.square(centred), axis=-1, keepdims=True) + eps)


class LayerNorm(nn.Module):
  """Layer norm with weight and bias, computed in float32, returned in the input dtype."""

  eps: float

  @nn.compact
  def __call__(self, x: Array) -> Array:
    weight = self.param("weight", nn.initializers.ones, (x.shape[-1],), jnp.float32)
    bias = self.param("bias", nn.initializers.zeros, (x.shape[-1],), jnp.float32)
    shape = (1,) * (x.ndim - 1) + (-1,)
    normed = layer_norm(x, self.eps) * weight.astype(jnp.float32).reshape(shape)
    return (normed + bias.astype(jnp.float32).reshape(shape)).astype(x.dtype)
