"""Norms over channels."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxspec.types import Array


class RMSNorm(nn.Module):
  """Root-mean-square norm in float32, cast to the input dtype before the weight (as the official code does)."""

  eps: float

  @nn.compact
  def __call__(self, x: Array) -> Array:
    weight = self.param("weight", nn.initializers.ones, (x.shape[-1],), jnp.float32)
    x32 = x.astype(jnp.float32)
    normed = x32 * jax.lax.rsqrt(jnp.mean(jnp.square(x32), axis=-1, keepdims=True) + self.eps)
    return normed.astype(x.dtype) * weight.astype(x.dtype).reshape((1,) * (x.ndim - 1) + (-1,))


class LayerNorm(nn.Module):
  """Layer norm with weight and bias, computed in float32."""

  eps: float

  @nn.compact
  def __call__(self, x: Array) -> Array:
    weight = self.param("weight", nn.initializers.ones, (x.shape[-1],), jnp.float32)
    bias = self.param("bias", nn.initializers.zeros, (x.shape[-1],), jnp.float32)
    x32 = x.astype(jnp.float32)
    centred = x32 - jnp.mean(x32, axis=-1, keepdims=True)
    normed = centred * jax.lax.rsqrt(jnp.mean(jnp.square(centred), axis=-1, keepdims=True) + self.eps)
    shape = (1,) * (x.ndim - 1) + (-1,)
    return (normed * weight.reshape(shape) + bias.reshape(shape)).astype(x.dtype)
