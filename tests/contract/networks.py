"""Networks of continuous tokens that depend on all previous ones; discrete ones are in `jaxspec.testing.toys`."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.core.network import Network
from jaxspec.core.types import ModelFns, ModelOutput
from jaxspec.diffusion.ddpm import Prediction
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.continuous_fns import HeadFns
from jaxspec.models.nn.causal import wanted
from jaxspec.testing.toys import (
  CLASSES,
  block_head,
  block_head_fns,
  head,
  history_fns,
  host,
  init_cache,
  joint,
  rows_of_table,
  softmax,
  spatial_fns,
  spatial_heads,
  sum_seen,
)

__all__ = [
  "CLASSES", "block_head", "block_head_fns", "head", "history_fns", "host", "joint", "rows_of_table", "softmax",
  "spatial_fns", "spatial_heads", "vectors",
]  # fmt: skip


@functools.cache
def vectors(seed: int, size: int = 2, length: int = 6) -> Network:
  """A network of continuous tokens whose features weigh all tokens by their position, with a diffusion head in one line."""
  generator = np.random.default_rng(0)
  draw = lambda *shape: jax.device_put(np.float32(generator.normal(size=shape)))
  params = dict(classes=draw(CLASSES + 1, size), positions=draw(length + 3, size))
  params["shift"] = 0.3 + 0.05 * jnp.asarray(np.random.default_rng(seed).normal(size=(size,)), jnp.float32)

  def apply(params, inputs, cache=None, *, positions=None, mask=None, inject=None, logits_at=None, slot=None):
    values = params["classes"][inputs.labels][:, None] if isinstance(inputs, ClassLabels) else inputs
    weights = params["positions"][jnp.minimum(positions, length + 2)]
    sums, cache = sum_seen(values * weights, cache, positions, mask, slot)
    return ModelOutput(None, wanted(jnp.tanh(sums), logits_at)), cache

  def predictor(params, z, timesteps):
    def predict(index, x):
      like = lambda values: values.reshape((1,) * (x.ndim - values.ndim) + values.shape)
      return Prediction(0.8 * x + like(params["shift"]) * like(z), jnp.zeros_like(x))

    return predict

  network = ModelFns(lambda key: {}, init_cache(size), apply, lambda condition: 1)
  return Network(HeadFns(network, predictor, length, size), params, name=f"vectors {seed}")
