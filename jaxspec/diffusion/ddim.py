"""Sampling of a diffusion model by DDIM (arXiv 2010.02502, eq. 12 and 16).

1. A network's noise ``eps`` at ``x_i`` gives ``x0 = x_i / sqrt(A_i) - sqrt(1 / A_i - 1) eps``, never clipped.
2. The next state is ``x_{i-1} = sqrt(A_{i-1}) x0 + sqrt(1 - A_{i-1} - sigma_i^2) eps + sigma_i noise``. The last one is
   ``x0``.
3. ``sigma_i^2 = eta^2 beta_i (1 - A_{i-1}) / (1 - A_i)``, the posterior variance of DDPM times ``eta^2``. With ``eta`` 1 a
   step is that of DDPM with this variance.

The learned variance is not read. With ``eta`` 0, deterministic sampling, a step is a point mass, and different point masses
do not overlap. Verification of such drafts would therefore change the distribution.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from jaxspec.core.types import Array
from jaxspec.diffusion.chain import StepDistribution
from jaxspec.diffusion.ddpm import PredictFn, Prediction, at_index, clean
from jaxspec.diffusion.schedule import DiffusionTables


def step_distribution(
  tables: DiffusionTables, index: Array, x: Array, prediction: Prediction, eta: float
) -> StepDistribution:
  """Distribution of ``x_{i-1}`` given ``x_i`` (steps 1 to 3 of the module docstring).

  Args:
    tables: of ``T`` steps.
    index: int32 in ``[0, T)``, ``[]`` or of x's rank with a last axis of size 1.
    x: ``[..., C]`` float32.
    prediction: of the network at x; only its noise is read.
    eta: static, in [0, 1]; with 0 log variances are -inf.
  """
  # Roots and 1 - A are formed in float64: for the first steps 1 - A would lose all digits in float32.
  rest = 1.0 - tables.alphas_cumprod_prev - eta**2 * tables.posterior_variance
  x0 = clean(tables, index, x, prediction.eps)
  mean = at_index(tables.alphas_cumprod_prev**0.5, index) * x0 + at_index(rest**0.5, index) * prediction.eps
  scale = 2.0 * math.log(eta) if eta else -math.inf
  log_variance = at_index(tables.posterior_log_variance_clipped + scale, index)
  return StepDistribution(mean, jnp.broadcast_to(log_variance, mean.shape), x0)


def sample(predict_fn: PredictFn, tables: DiffusionTables, x: Array) -> Array:
  """Tokens ``[..., C]`` of a network bound to its condition, without noise (``eta`` 0).

  Args:
    tables: of the steps, which are taken from the last one down.
    x: ``[..., C]`` float32, standard normals: the state before the first step.
  """

  def step(x: Array, index: Array):
    return step_distribution(tables, index, x, predict_fn(index, x), 0.0).mean, None

  return jax.lax.scan(step, x, jnp.arange(tables.num_steps, dtype=jnp.int32), reverse=True)[0]
