"""DiffLoss: a small denoising network as the output distribution of a continuous token (MAR, arXiv 2406.11838, section 3).

An MLP with adaptive layer norms (arXiv 2212.09748) predicts the noise in a token, given the transformer's condition:

1. ``y = time_embed(t) + cond_embed(z)``, ``h = input_proj(x)``;
2. blocks: ``h + gate * mlp(LN(h) (1 + scale) + shift)``, with shift, scale and gate from ``Linear(SiLU(y))``;
3. final layer: ``Linear(LN(h) (1 + scale) + shift)`` gives eps and v (`jaxspec.diffusion.ddpm.Prediction`).

The norm of a block has weights, that of the final layer has none. Submodules carry the names of the official state
dict without its ``diffloss.net``.
"""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxspec.core.types import Array
from jaxspec.diffusion.ddpm import Prediction
from jaxspec.models.nn.denoising import FinalLayer, time_embed, timestep_features
from jaxspec.models.nn.linear import Dense
from jaxspec.models.nn.norm import LayerNorm

_EPS = 1e-6


class ResBlock(nn.Module):
  """Residual MLP with an adaptive layer norm and a gate."""

  width: int

  @nn.compact
  def __call__(self, h: Array, y: Array) -> Array:
    modulation = Dense(3 * self.width, 0.0, name="adaLN_modulation")(jax.nn.silu(y))
    shift, scale, gate = jnp.split(modulation, 3, axis=-1)
    inner = LayerNorm(_EPS, name="in_ln")(h) * (1 + scale) + shift
    inner = Dense(self.width, name="mlp_2")(jax.nn.silu(Dense(self.width, name="mlp_0")(inner)))
    return h + gate * inner


class DiffLoss(nn.Module):
  """The denoising network in three calls, so that a sampler computes shared parts of its steps only once.

  Attributes:
    token_dim: width ``C`` of a token.
    width: hidden width ``W``.
    depth: residual blocks.
    dtype: compute dtype; norms and the final layer are float32.
  """

  token_dim: int
  width: int
  depth: int
  dtype: str = "float32"

  def setup(self):
    self.time_embed = time_embed(self.width)
    self.cond_embed = Dense(self.width)
    self.input_proj = Dense(self.width)
    self.res_blocks = [ResBlock(self.width) for _ in range(self.depth)]
    self.final_layer = FinalLayer(2 * self.token_dim)

  def embed_time(self, timesteps: Array) -> Array:
    """``[...]`` original step numbers to ``[..., W]``."""
    return self.time_embed(timestep_features(timesteps).astype(self.dtype))

  def embed_condition(self, z: Array) -> Array:
    """``[..., Z]`` to ``[..., W]``."""
    return self.cond_embed(z.astype(self.dtype))

  def denoise(self, x: Array, y: Array) -> Prediction:
    """Prediction at ``x [..., C]`` for the sum ``y [..., W]`` of both embeddings."""
    h = self.input_proj(x.astype(self.dtype))
    for block in self.res_blocks:
      h = block(h, y)
    return Prediction(*jnp.split(self.final_layer(h, y), 2, axis=-1))

  def __call__(self, x: Array, timesteps: Array, z: Array) -> Prediction:
    """Prediction at ``x [..., C]``, each row at its own step number ``[...]`` and condition ``[..., Z]``."""
    return self.denoise(x, self.embed_time(timesteps) + self.embed_condition(z))
