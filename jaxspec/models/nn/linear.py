"""The linear layer: one function and one weight layout. This file alone chooses how the product is computed.

Weights are stored ``[out, in]`` as in the PyTorch sources, so conversion copies them. On a CPU the product of a few
rows with a large matrix is bound by streaming the weights, and XLA's choice of kernel decides how fast that goes: with
the weights on the left the library does not repack them. The barrier keeps XLA from folding the transpose back.
``python -m experiments.run bench:linear`` prints the table for the installed version.
"""

from __future__ import annotations

import math

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxspec.core.platform import platform
from jaxspec.core.precision import dot_bf16, halves_products
from jaxspec.core.types import Array, HostArray

# From this many rows on the plain product is faster (it is bound by arithmetic). Training must not have barriers.
_MAX_STREAMED_ROWS = 64


def linear(x: Array, weight: Array) -> Array:
  """``x @ weight.T`` for ``x [..., in]`` and ``weight [out, in]``; the result is ``[..., out]`` in x's dtype."""
  rows = math.prod(x.shape[:-1])
  if halves_products(x.dtype):
    return _linear_bf16(x, weight)
  if platform() != "cpu" or rows == 1 or rows > _MAX_STREAMED_ROWS:
    return jax.lax.dot_general(x, weight, (((x.ndim - 1,), (1,)), ((), ())))
  out = jax.lax.dot_general(weight, x.reshape(rows, x.shape[-1]), (((1,), (1,)), ((), ())))  # [out, rows]
  return jax.lax.optimization_barrier(out).T.reshape(*x.shape[:-1], weight.shape[0])


def _linear_bf16(x: Array, weight: Array) -> Array:
  rows = x.reshape(-1, x.shape[-1])
  if rows.shape[0] > 1:
    product: Array = dot_bf16(rows, weight, (1, 1))
    return product.reshape(*x.shape[:-1], -1)
  # XLA would convert the weights to float32 for the product with a single row, and stream twice the bytes.
  out = jax.lax.optimization_barrier(dot_bf16(jnp.concatenate([rows, rows]), weight, (1, 1)))
  return out[:1].reshape(*x.shape[:-1], -1)


class Linear(nn.Module):
  """Linear layer with a ``weight [out, in]`` parameter and an optional ``bias [out]``.

  Attributes:
    std: deviation of the initial weights; 0 starts them at zero, None Xavier-uniform.
    exact: compute in float32, independent of the default precision of products, and return float32.
  """

  features: int
  std: float | None = 0.02
  bias: bool = False
  exact: bool = False

  @nn.compact
  def __call__(self, x: Array) -> Array:
    init = nn.initializers.normal(self.std) if self.std else nn.initializers.zeros
    init = nn.initializers.xavier_uniform() if self.std is None else init
    weight = self.param("weight", init, (self.features, x.shape[-1]), jnp.float32)
    if self.exact:
      x, dims = x.astype(jnp.float32), (((x.ndim - 1,), (1,)), ((), ()))
      out = jax.lax.dot_general(x, weight.astype(jnp.float32), dims, precision=jax.lax.Precision.HIGHEST)
    else:
      out = linear(x, weight.astype(x.dtype))
    return _add(out, self.param("bias", nn.initializers.zeros, (self.features,), jnp.float32)) if self.bias else out


class Dense(Linear):
  """A `Linear` with a bias whose weights start Xavier-uniform."""

  std: float | None = None
  bias: bool = True


def affine(x: Array, weight: Array, bias: Array) -> Array:
  """``x @ weight.T + bias`` in x's dtype."""
  return _add(linear(x, weight.astype(x.dtype)), bias)


def _add(x: Array, bias: Array) -> Array:
  return x + bias.astype(x.dtype).reshape((1,) * (x.ndim - 1) + (-1,))


class Embedding(nn.Module):
  """Table ``[num, features]`` looked up by int ids."""

  num: int
  features: int
  std: float = 0.02

  def setup(self):
    self.weight = self.param("weight", nn.initializers.normal(self.std), (self.num, self.features), jnp.float32)

  def __call__(self, ids: HostArray) -> Array:
    return jnp.take(self.weight, ids, axis=0, mode="clip")

  def logits(self, x: Array) -> Array:
    """``x [..., features]`` against every row, ``[..., num]``: the output head of a tied network."""
    return linear(x, self.weight.astype(x.dtype))
