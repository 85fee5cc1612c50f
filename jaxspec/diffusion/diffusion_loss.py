"""Training loss of a diffusion model with learned variances (arXiv 2102.09672), as MAR trains its head.

The loss of a row is ``mse + vb``, each a mean over dimensions. ``mse = (noise - eps)^2`` trains the mean. The variational
bound ``vb`` in bits trains the variance; eps is held fixed in it. Unlike in the paper's hybrid loss, vb has weight 1.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxspec.core.types import Array
from jaxspec.diffusion import ddpm
from jaxspec.diffusion.ddpm import Prediction, StepDistribution
from jaxspec.diffusion.schedule import DiffusionTables

# Half the distance of two grey levels of an 8-bit image in [-1, 1]. Tokens are not pixels, but MAR uses the same value.
_HALF_BIN = 1.0 / 255.0
_MIN_PROB = 1e-12


class DiffusionLosses(NamedTuple):
  """Losses of every row, ``[...]`` float32."""

  mse: Array
  vb: Array  # bits


def diffusion_losses(
  tables: DiffusionTables, x0: Array, x: Array, index: Array, noise: Array, prediction: Prediction
) -> DiffusionLosses:
  """Both losses of a batch of diffused tokens.

  Args:
    tables: of the training schedule.
    x0: ``[..., C]`` clean tokens.
    x: ``[..., C]`` diffused ones, from `ddpm.q_sample`.
    index: ``[..., 1]`` int32.
    noise: ``[..., C]`` noise of the diffused tokens.
    prediction: of the network at x.
  """
  mse = jnp.mean(jnp.square(noise - prediction.eps), axis=-1)
  distribution = ddpm.step_distribution(tables, index, x, Prediction(jax.lax.stop_gradient(prediction.eps), prediction.v))
  return DiffusionLosses(mse, variational_bound(tables, x0, x, index, distribution))


def variational_bound(tables: DiffusionTables, x0: Array, x: Array, index: Array, distribution: StepDistribution) -> Array:
  """One term of the variational bound in bits, mean over dimensions ``[...]`` (arXiv 2102.09672, eq. 4 to 7).

  ``KL(q(x_{i-1} | x_i, x_0) || distribution)`` for i > 0, and for i = 0 the negative log-likelihood of x_0 in bins.
  """
  table = lambda name: ddpm.at_index(getattr(tables, name), index)
  true_mean = table("posterior_mean_coef1") * x0 + table("posterior_mean_coef2") * x
  true_log_variance = table("posterior_log_variance_clipped")
  divergence = normal_kl(true_mean, true_log_variance, distribution.mean, distribution.log_variance)
  likelihood = -discretized_normal_log_prob(x0, distribution.mean, 0.5 * distribution.log_variance)
  return jnp.mean(jnp.where(index == 0, likelihood, divergence), axis=-1) / math.log(2.0)


def normal_kl(mean1: Array, log_variance1: Array, mean2: Array, log_variance2: Array) -> Array:
  """``KL(N1 || N2)`` elementwise, in nats."""
  ratio = log_variance1 - log_variance2
  return 0.5 * (-1.0 - ratio + jnp.exp(ratio) + jnp.square(mean1 - mean2) * jnp.exp(-log_variance2))


def discretized_normal_log_prob(x: Array, mean: Array, log_std: Array) -> Array:
  """Log probability, elementwise, of the bin of half-width 1/255 around x; the outermost bins are open.

  The normal distribution function is the approximation ``(1 + tanh(sqrt(2/pi) (u + 0.044715 u^3))) / 2``.
  """
  cdf = lambda u: 0.5 * (1.0 + jnp.tanh(math.sqrt(2.0 / math.pi) * (u + 0.044715 * u**3)))
  precision = jnp.exp(-log_std)
  upper = cdf(precision * (x - mean + _HALF_BIN))
  lower = cdf(precision * (x - mean - _HALF_BIN))
  prob = jnp.where(x < -0.999, upper, jnp.where(x > 0.999, 1.0 - lower, upper - lower))
  return jnp.log(jnp.maximum(prob, _MIN_PROB))
