"""MLPs of transformer blocks, plain and gated."""

from __future__ import annotations

import functools
from collections.abc import Callable

import flax.linen as nn
import jax

from jaxspec.core.types import Array
from jaxspec.models.nn.linear import Linear

gelu = functools.partial(jax.nn.gelu, approximate=False)
gelu_tanh = functools.partial(jax.nn.gelu, approximate=True)


class MLP(nn.Module):
  """``second(activation(first x))``.

  Attributes:
    hidden: width of the hidden layer.
    features: width of the output; None is that of the input.
    names: of the two matrices.
    bias: whether both have biases.
    std: deviation of the initial weights, see `Linear`.
    dropout: rate after both matrices while training.
  """

  hidden: int
  features: int | None = None
  activation: Callable[[Array], Array] = gelu_tanh
  names: tuple[str, str] = ("fc1", "fc2")
  bias: bool = True
  std: float | None = 0.02
  dropout: float = 0.0

  @nn.compact
  def __call__(self, x: Array, train: bool = False) -> Array:
    drop = nn.Dropout(self.dropout, deterministic=not train)
    first, second = (
      Linear(features, self.std, self.bias, name=name)
      for features, name in zip((self.hidden, self.features or x.shape[-1]), self.names)
    )
    return drop(second(drop(self.activation(first(x)))))


class SwiGLU(nn.Module):
  """``down(silu(gate x) * up x)``; ``names`` are those of gate, up and down."""

  hidden: int
  names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")
  bias: bool = False

  @nn.compact
  def __call__(self, x: Array) -> Array:
    gate, up, down = (
      Linear(features, bias=self.bias, name=name)
      for features, name in zip((self.hidden, self.hidden, x.shape[-1]), self.names)
    )
    return down(jax.nn.silu(gate(x)) * up(x))
