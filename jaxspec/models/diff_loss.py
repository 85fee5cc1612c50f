"""DiffLoss: a small denoising network as the output distribution of a continuous token (MAR, arXiv 2406.11838, section 3).

An MLP with adaptive layer norms (arXiv 2212.09748) predicts the noise in a token, given the transformer's condition:

1. ``y = time_embed(t) + cond_embed(z)``, ``h = input_proj(x)``;
2. blocks: ``h + gate * mlp(LN(h) (1 + scale) + shift)``, with shift, scale and gate from ``Linear(SiLU(y))``;
3. final layer: ``Linear(LN(h) (1 + scale) + shift)`` gives eps and v (`jaxspec.diffusion.ddpm.Prediction`).

The norm of a block has weights, that of the final layer has none. Submodules carry the names of the official state
dict without its ``diffloss.net``.
"""

from __future__ import annotations

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.diffusion.ddpm import PredictFn, Prediction
from jaxspec.models.linear import Dense
from jaxspec.models.norm import LayerNorm, layer_norm
from jaxspec.types import Array, Params

NUM_FREQUENCIES = 128
_EPS = 1e-6
_MAX_PERIOD = 10000.0


def timestep_features(timesteps: Array) -> Array:
  """``[cos(t f_k), sin(t f_k)]`` with ``f_k = 10000^(-k / 128)``: ``[...]`` numbers to ``[..., 256]`` float32."""
  frequencies = np.exp(-np.log(_MAX_PERIOD) * np.arange(NUM_FREQUENCIES) / NUM_FREQUENCIES).astype(np.float32)
  angles = timesteps.astype(jnp.float32)[..., None] * frequencies.reshape((1,) * timesteps.ndim + (-1,))
  return jnp.concatenate([jnp.cos(angles), jnp.sin(angles)], axis=-1)


class TimeEmbed(nn.Module):
  """``mlp_2(silu(mlp_0(features)))``."""

  width: int

  @nn.compact
  def __call__(self, features: Array) -> Array:
    hidden = jax.nn.silu(Dense(self.width, 0.02, name="mlp_0")(features))
    return Dense(self.width, 0.02, name="mlp_2")(hidden)


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


class FinalLayer(nn.Module):
  """Adaptive norm and output matrix in float32: the first sampling steps multiply its rounding by hundreds."""

  features: int

  @nn.compact
  def __call__(self, h: Array, y: Array) -> Array:
    modulation = Dense(2 * h.shape[-1], 0.0, name="adaLN_modulation")(jax.nn.silu(y))
    shift, scale = jnp.split(modulation.astype(jnp.float32), 2, axis=-1)
    return Dense(self.features, 0.0, exact=True, name="linear")(layer_norm(h, _EPS) * (1 + scale) + shift)


class DiffLoss(nn.Module):
  """The denoising network in three calls, so that a sampler computes what its steps share only once.

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
    self.time_embed = TimeEmbed(self.width)
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


def bind_head(head: DiffLoss, params: Params, z: Array, timesteps: np.ndarray) -> PredictFn:
  """The head, bound to conditions ``z [..., Z]`` and to the original step numbers ``[T]`` of a schedule.

  What the steps of a chain share (embeddings of all times, projection of the conditions) is computed here, once.

  Returns:
    A `PredictFn` for states ``[..., C]``, or ``[R, ..., C]`` with an index of that rank.
  """
  call = functools.partial(head.apply, {"params": params})
  of_step = call(jnp.asarray(timesteps), method="embed_time")  # [T, W]
  of_position = call(z, method="embed_condition")  # [..., W]

  def predict(index: Array, x: Array) -> Prediction:
    position = of_position.reshape((1,) * (x.ndim - of_position.ndim) + of_position.shape)
    step = of_step[index[..., 0]] if index.ndim else of_step[index].reshape((1,) * (x.ndim - 1) + (-1,))
    return call(x, step + position, method="denoise")

  return predict
