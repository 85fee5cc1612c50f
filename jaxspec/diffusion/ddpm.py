"""Ancestral sampling of a diffusion model with learned variances (DDPM, arXiv 2006.11239; arXiv 2102.09672).

A network's ``Prediction(eps, v)`` at a noisy token ``x_i`` determines the Gaussian distribution of ``x_{i-1}``:

1. ``x0 = x_i / sqrt(A_i) - sqrt(1 / A_i - 1) eps``, never clipped;
2. ``mean = c1_i x0 + c2_i x_i`` (arXiv 2006.11239, eq. 7);
3. ``log variance = f log beta_i + (1 - f) lp_i`` with ``f = (v + 1) / 2``, not clamped (arXiv 2102.09672, eq. 15);
4. ``x_{i-1} = mean + [i > 0] temperature exp(log variance / 2) noise_i``.

The last step (i = 0) adds no noise: the token is its mean. The first state is a standard normal at every temperature.
Networks differ in their conditions, so the functions here take a ``predict_fn`` bound to its condition.

The first step multiplies an error of eps by ``c1 / sqrt(A)``, which is 316 for 100 steps. States and predictions are
therefore float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxspec.core.types import Array
from jaxspec.diffusion import chain
from jaxspec.diffusion.chain import (
  Chain,
  ChainSummary,
  DistributionFn,
  StepDistribution,
  TokenNoise,
  normal_log_prob,
  summarize,
)
from jaxspec.diffusion.schedule import DiffusionTables

__all__ = [
  "Chain", "ChainSummary", "DistributionFn", "PredictFn", "Prediction", "StepDistribution", "TokenNoise", "at_index",
  "check_stop", "clean", "guide", "guided", "distribution_fn", "normal_log_prob", "q_sample", "sample",
  "step_distribution", "summarize",
]  # fmt: skip


class Prediction(NamedTuple):
  """Output of a denoising network."""

  eps: Array  # [..., C] float32, the predicted noise
  v: Array  # [..., C] float32, interpolates the log variance: -1 is the posterior variance, 1 is beta
  radius: Array | None = None  # [..., C] float32, at least 0: radius of eps, of networks with an interval head


# (index, x [..., C]) -> Prediction. The index is [] int32, or has x's rank and a last axis of size 1: then states at
# different steps are predicted in one pass.
PredictFn = Callable[[Array, Array], Prediction]


def at_index(table, index: Array) -> Array:
  """Entry of a float64 table at a traced index, float32."""
  return jnp.asarray(table, jnp.float32)[index]


def guide(cond: Prediction, uncond: Prediction, scale: Array) -> Prediction:
  """Classifier-free guidance: ``eps = u + scale (c - u)``; variance and radius are the conditional ones.

  Args:
    scale: ``[]``, or of eps' rank: a component with scale 1 is the conditional one.
  """
  return cond._replace(eps=uncond.eps + scale * (cond.eps - uncond.eps))


def guided(predict_fn: PredictFn, scale: Array, *, axis: int = 0) -> PredictFn:
  """A guided network from one bound to ``[conditional; unconditional]`` conditions, stacked along ``axis``.

  Both halves are evaluated at the same state, which follows the guided distribution. There is no unconditional chain.
  """

  def predict(index: Array, x: Array) -> Prediction:
    if index.ndim and index.shape[axis] > 1:
      index = jnp.concatenate([index, index], axis=axis)
    both = predict_fn(index, jnp.concatenate([x, x], axis=axis))
    half = lambda number: jax.tree.map(lambda part: jnp.split(part, 2, axis=axis)[number], both)
    return guide(half(0), half(1), scale)

  return predict


def clean(tables: DiffusionTables, index: Array, x: Array, eps: Array) -> Array:
  """The clean token ``[..., C]`` that follows from a state ``x [..., C]`` and its noise; never clipped."""
  table = lambda name: at_index(getattr(tables, name), index)
  return table("sqrt_recip_alphas_cumprod") * x - table("sqrt_recipm1_alphas_cumprod") * eps


def step_distribution(tables: DiffusionTables, index: Array, x: Array, prediction: Prediction) -> StepDistribution:
  """Distribution of ``x_{i-1}`` given ``x_i`` (steps 1 to 3 of the module docstring).

  Args:
    tables: of ``T`` steps.
    index: int32 in ``[0, T)``, ``[]`` or of x's rank with a last axis of size 1.
    x: ``[..., C]`` float32.
    prediction: of the network at x.
  """
  table = lambda name: at_index(getattr(tables, name), index)
  x0 = clean(tables, index, x, prediction.eps)
  mean = table("posterior_mean_coef1") * x0 + table("posterior_mean_coef2") * x
  low, high = table("posterior_log_variance_clipped"), jnp.log(table("betas"))
  frac = (prediction.v + 1.0) / 2.0
  return StepDistribution(mean, frac * high + (1.0 - frac) * low, x0)


def sample(
  predict_fn: PredictFn,
  tables: DiffusionTables,
  noise: TokenNoise,
  temperature: Array,
  *,
  record: bool = False,
  stop: int | None = None,
) -> Chain:
  """Runs the whole chain (`jaxspec.diffusion.chain.run`) of a network bound to its condition.

  Args:
    tables: of ``T`` steps.
    noise: ``initial [..., C]``, ``steps [..., T, C]``; ``T - stop`` steps with ``stop``.
    temperature: ``[]`` float32 factor of every step's noise.
    record: also return the state and the distribution of every step; memory ``O(T)``.
    stop: as in `distribution_fn`.
  """
  return chain.run(distribution_fn(predict_fn, tables, stop), noise, temperature, noisy_end=stop is not None, record=record)


def check_stop(tables: DiffusionTables, stop: int | None) -> None:
  """Raises a ValueError if ``stop`` is neither None nor an index of the tables."""
  if stop is not None and not 0 <= stop < tables.num_steps:
    raise ValueError(f"Must have stop from 0 to {tables.num_steps - 1}, we instead got {stop}")


def distribution_fn(predict_fn: PredictFn, tables: DiffusionTables, stop: int | None = None) -> DistributionFn:
  """The chain of a denoising network as the distributions of its steps.

  Args:
    stop: static. None is MAR's chain, whose last step (index 0) adds no noise. Otherwise the chain ends after the step at
      index ``stop``, noise included. The token is then the input state of the step at ``stop - 1``, and step 0 of the chain
      is index ``stop`` of the tables.
  Raises:
    ValueError: if ``stop`` is no index of the tables.
  """
  check_stop(tables, stop)
  first = stop or 0

  def distribution(index: Array, x: Array) -> StepDistribution:
    at = index + first if first else index
    return step_distribution(tables, at, x, predict_fn(at, x))

  return distribution


def q_sample(tables: DiffusionTables, x0: Array, index: Array, noise: Array) -> Array:
  """Diffuses a clean token to a step: ``sqrt(A_i) x_0 + sqrt(1 - A_i) noise`` (arXiv 2006.11239, eq. 4).

  Args:
    x0: ``[..., C]``.
    index: ``[..., 1]`` int32.
    noise: ``[..., C]`` standard normal.
  """
  kept = at_index(tables.alphas_cumprod, index)
  # 1 - A is formed in float64: for the first steps it would lose all digits in float32.
  return jnp.sqrt(kept) * x0 + at_index((1.0 - tables.alphas_cumprod) ** 0.5, index) * noise
