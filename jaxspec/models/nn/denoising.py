"""What denoising networks with adaptive norms share (DiT, arXiv 2212.09748): embedded times, the last layer, the binding.

Such a network is called in three parts: embeddings of the times, embeddings of the conditions, and the pass at a state, for
their sum. A sampler computes shared parts of its steps only once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.core.types import Array, HostArray, Params
from jaxspec.diffusion.ddpm import PredictFn, Prediction
from jaxspec.models.nn.call import call
from jaxspec.models.nn.linear import Dense
from jaxspec.models.nn.mlp import MLP
from jaxspec.models.nn.norm import layer_norm

NUM_FREQUENCIES = 128
_EPS = 1e-6
_MAX_PERIOD = 10000.0


class Denoiser(Protocol):
  """The calls of a denoising network, a Flax module."""

  apply: Callable[..., Any]  # (variables, *arguments, method=name), of the module

  def embed_time(self, timesteps: Array) -> Array:
    """``[...]`` original step numbers to ``[..., W]``."""
    ...

  def embed_condition(self, z: Array) -> Array:
    """Conditions to ``[..., W]``."""
    ...

  def denoise(self, x: Array, y: Array) -> Prediction:
    """Prediction at ``x [..., C]`` for the sum ``y [..., W]`` of both embeddings."""
    ...


def timestep_features(timesteps: Array) -> Array:
  """``[cos(t f_k), sin(t f_k)]`` with ``f_k = 10000^(-k / 128)``: ``[...]`` numbers to ``[..., 256]`` float32."""
  frequencies = np.exp(-np.log(_MAX_PERIOD) * np.arange(NUM_FREQUENCIES) / NUM_FREQUENCIES).astype(np.float32)
  angles = timesteps.astype(jnp.float32)[..., None] * frequencies.reshape((1,) * timesteps.ndim + (-1,))
  return jnp.concatenate([jnp.cos(angles), jnp.sin(angles)], axis=-1)


def time_embed(width: int) -> MLP:
  """The MLP of `timestep_features`."""
  return MLP(width, width, jax.nn.silu, ("mlp_0", "mlp_2"))


class FinalLayer(nn.Module):
  """Adaptive norm and output matrix in float32: the first sampling steps multiply its rounding by hundreds."""

  features: int

  @nn.compact
  def __call__(self, h: Array, y: Array) -> Array:
    modulation = Dense(2 * h.shape[-1], 0.0, name="adaLN_modulation")(jax.nn.silu(y))
    shift, scale = jnp.split(modulation.astype(jnp.float32), 2, axis=-1)
    return Dense(self.features, 0.0, exact=True, name="linear")(layer_norm(h, _EPS) * (1 + scale) + shift)


def bind_head(head: nn.Module, params: Params, z: HostArray, timesteps: np.ndarray) -> PredictFn:
  """The head, bound to conditions ``z`` and to the original step numbers ``[T]`` of a schedule.

  What the steps of a chain share (embeddings of all times, projection of the conditions) is computed here, once.

  Args:
    z: what ``head.embed_condition`` takes: features ``[..., Z]`` or labels ``[...]``.
  Returns:
    A `PredictFn` for states ``[..., C]``, or ``[R, ..., C]`` with an index of that rank.
  """
  bound = functools.partial(call, head, params)
  of_step = bound(jnp.asarray(timesteps), method="embed_time")  # [T, W]
  of_position = bound(z, method="embed_condition")  # [..., W]

  def predict(index: Array, x: Array) -> Prediction:
    position = of_position.reshape((1,) * (x.ndim - of_position.ndim) + of_position.shape)
    step = of_step[index[..., 0]] if index.ndim else of_step[index].reshape((1,) * (x.ndim - 1) + (-1,))
    return bound(x, step + position, method="denoise")

  return predict
