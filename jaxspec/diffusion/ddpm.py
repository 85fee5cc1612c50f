"""Ancestral sampling of a diffusion model with learned variances (DDPM, arXiv 2006.11239; arXiv 2102.09672).

A network is asked for ``Prediction(eps, v)`` at a noisy token ``x_i`` and gives the Gaussian law of ``x_{i-1}``:

1. ``x0 = x_i / sqrt(A_i) - sqrt(1 / A_i - 1) eps``, never clipped;
2. ``mean = c1_i x0 + c2_i x_i`` (arXiv 2006.11239, eq. 7);
3. ``log variance = f log beta_i + (1 - f) lp_i`` with ``f = (v + 1) / 2``, not clamped (arXiv 2102.09672, eq. 15);
4. ``x_{i-1} = mean + [i > 0] temperature exp(log variance / 2) noise_i``.

The last step (i = 0) adds no noise: the token is its mean. The first state is a standard normal at every temperature.
Networks differ in what they are conditioned on, so the functions here take a ``predict_fn`` that is bound to it already.

The first step multiplies an error of eps by ``c1 / sqrt(A)``, 316 in 100 steps: states and predictions are float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxspec.diffusion.schedule import DiffusionTables
from jaxspec.types import Array

LOG_TWO_PI = 1.8378770664093453


class Prediction(NamedTuple):
  """Output of a denoising network."""

  eps: Array  # [..., C] float32, the predicted noise
  v: Array  # [..., C] float32, where the log variance lies between its bounds: -1 posterior variance, 1 beta


# (index, x [..., C]) -> Prediction. The index is [] int32, or has x's rank and a last axis of size 1: then states at
# different steps are predicted in one pass.
PredictFn = Callable[[Array, Array], Prediction]


class StepLaw(NamedTuple):
  """Gaussian law of the next state, with diagonal covariance; the temperature is not part of it."""

  mean: Array  # [..., C] float32
  log_variance: Array  # [..., C] float32
  x0: Array  # [..., C] float32, the clean token as predicted from here


class TokenNoise(NamedTuple):
  """Standard normals that one token's chain consumes."""

  initial: Array  # [..., C] float32, the state before the first step
  steps: Array  # [..., T, C] float32; entry i belongs to the step at index i, entry 0 is never used


class Chain(NamedTuple):
  """A sampled token and, if recorded, how it came about (entry i is the step at index i)."""

  token: Array  # [..., C] float32
  states: Array | None = None  # [T, ..., C] the state that enters each step
  laws: StepLaw | None = None  # leaves [T, ..., C]


class ChainSummary(NamedTuple):
  """What acceptance tests of whole tokens read of a chain: its last step, and the size of the noise before."""

  mean: Array  # [..., C] float32, mean of the last step
  log_std: Array  # [..., C] float32, of the last step, the temperature included
  sum_log_std: Array  # [...] float32, sum over the steps before the last and over dimensions, without temperature


def at_index(table, index: Array) -> Array:
  """Entry of a float64 table at a traced index, float32."""
  return jnp.asarray(table, jnp.float32)[index]


def guide(cond: Prediction, uncond: Prediction, scale: Array) -> Prediction:
  """Classifier-free guidance: ``eps = u + scale (c - u)``; the variance is the conditional one."""
  return Prediction(uncond.eps + scale * (cond.eps - uncond.eps), cond.v)


def guided(predict_fn: PredictFn, scale: Array, *, axis: int = 0) -> PredictFn:
  """A guided network from one that is bound to ``[conditional; unconditional]`` conditions, stacked along ``axis``.

  Both halves are asked at the same state, which follows the guided law: no unconditional chain is carried along.
  """

  def predict(index: Array, x: Array) -> Prediction:
    if index.ndim and index.shape[axis] > 1:
      index = jnp.concatenate([index, index], axis=axis)
    both = predict_fn(index, jnp.concatenate([x, x], axis=axis))
    halves = zip(*(jnp.split(part, 2, axis=axis) for part in both), strict=True)
    return guide(*(Prediction(*half) for half in halves), scale)

  return predict


def step_law(tables: DiffusionTables, index: Array, x: Array, prediction: Prediction) -> StepLaw:
  """Law of ``x_{i-1}`` given ``x_i`` (steps 1 to 3 of the module docstring).

  Args:
    tables: of ``T`` steps.
    index: int32 in ``[0, T)``, ``[]`` or of x's rank with a last axis of size 1.
    x: ``[..., C]`` float32.
    prediction: of the network at x.
  """
  table = lambda name: at_index(getattr(tables, name), index)
  x0 = table("sqrt_recip_alphas_cumprod") * x - table("sqrt_recipm1_alphas_cumprod") * prediction.eps
  mean = table("posterior_mean_coef1") * x0 + table("posterior_mean_coef2") * x
  low, high = table("posterior_log_variance_clipped"), jnp.log(table("betas"))
  frac = (prediction.v + 1.0) / 2.0
  return StepLaw(mean, frac * high + (1.0 - frac) * low, x0)


def next_state(law: StepLaw, index: Array, noise: Array, temperature: Array) -> Array:
  """``x_{i-1} = mean + [i > 0] temperature exp(log variance / 2) noise``."""
  spread = jnp.where(index > 0, temperature, 0.0) * jnp.exp(0.5 * law.log_variance)
  return law.mean + spread * noise


def sample(
  predict_fn: PredictFn, tables: DiffusionTables, noise: TokenNoise, temperature: Array, *, record: bool = False
) -> Chain:
  """Runs the whole chain with `jax.lax.scan`.

  Args:
    predict_fn: the network, bound to its condition.
    tables: of ``T`` steps.
    noise: ``initial [..., C]``, ``steps [..., T, C]``.
    temperature: ``[]`` float32 factor of every step's noise.
    record: also return the state and the law of every step; memory ``O(T)``.
  """
  indices = jnp.arange(tables.num_steps, dtype=jnp.int32)

  def step(x: Array, inputs: tuple[Array, Array]):
    index, step_noise = inputs
    law = step_law(tables, index, x, predict_fn(index, x))
    return next_state(law, index, step_noise, temperature), (x, law) if record else None

  # Scanned from the last index down; what is stacked ends up ordered by index.
  steps = jnp.moveaxis(noise.steps, -2, 0)
  token, recorded = jax.lax.scan(step, noise.initial, (indices, steps), reverse=True)
  return Chain(token, *recorded) if record else Chain(token)


def summarize(laws: StepLaw, temperature: Array) -> ChainSummary:
  """Summary of a recorded chain (leaves ``[T, ..., C]``)."""
  log_std = 0.5 * laws.log_variance
  return ChainSummary(
    laws.mean[0], log_std[0] + jnp.log(temperature), jnp.sum(jnp.sum(log_std[1:], axis=-1), axis=0)
  )


def q_sample(tables: DiffusionTables, x0: Array, index: Array, noise: Array) -> Array:
  """A token diffused to a step: ``sqrt(A_i) x_0 + sqrt(1 - A_i) noise`` (arXiv 2006.11239, eq. 4).

  Args:
    x0: ``[..., C]``.
    index: ``[..., 1]`` int32.
    noise: ``[..., C]`` standard normal.
  """
  kept = at_index(tables.alphas_cumprod, index)
  # 1 - A is formed in float64: for the first steps it would lose all digits in float32.
  return jnp.sqrt(kept) * x0 + at_index((1.0 - tables.alphas_cumprod) ** 0.5, index) * noise


def normal_log_prob(x: Array, mean: Array, log_std: Array) -> Array:
  """Log density ``[...]`` of diagonal Gaussians at ``x [..., C]``."""
  scaled = (x - mean) * jnp.exp(-log_std)
  return -jnp.sum(0.5 * jnp.square(scaled) + log_std + 0.5 * LOG_TWO_PI, axis=-1)
