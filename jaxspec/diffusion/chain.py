"""Chains of Gaussian steps, which draw continuous tokens. The distributions of the steps may come from any model.

A chain of ``T`` steps starts in a standard normal state and goes from step ``T - 1`` down to step 0. A step is a Gaussian
distribution with diagonal covariance around a mean that depends on the state (`DistributionFn`); its noise is multiplied by
the temperature. Step 0 ends in the token: with noise like every other step (``noisy_end``), or without noise in its mean, as
is usual for diffusion models.

* `run` takes the steps from one number down to another with `jax.lax.scan`; every row takes the same steps.
* `finish` takes the last steps of rows at different steps, with a `jax.lax.while_loop`; `follow` takes a given number of
  steps of such rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxspec.core import rng
from jaxspec.core.token_axes import over_tokens
from jaxspec.core.types import Array, Key

LOG_TWO_PI = 1.8378770664093453


class StepDistribution(NamedTuple):
  """Gaussian distribution of the next state, with diagonal covariance; the temperature is not part of it."""

  mean: Array  # [..., C] float32
  log_variance: Array  # [..., C] float32
  x0: Array  # [..., C] float32, the clean token as predicted from here


# (step, x [..., C]) -> StepDistribution. The step is [] int32, or has x's rank and a last axis of size 1: then states at
# different steps are described in one pass.
DistributionFn = Callable[[Array, Array], StepDistribution]


class TokenNoise(NamedTuple):
  """Standard normal noise of one token's chain."""

  initial: Array  # [..., C] float32, the state before the first step
  steps: Array  # [..., T, C] float32; entry i belongs to step i; a chain that ends in its mean never uses entry 0


class Chain(NamedTuple):
  """The end of a chain and, if recorded, its states and distributions (entry i is step i)."""

  token: Array  # [..., C] float32
  states: Array | None = None  # [T, ..., C] the state that enters each step
  distributions: StepDistribution | None = None  # leaves [T, ..., C]

  def recorded(self) -> tuple[Array, StepDistribution]:
    """States and distributions of every step.

    Raises:
      ValueError: for a chain that did not record them.
    """
    if self.states is None or self.distributions is None:
      raise ValueError("Must have a chain with recorded states and distributions, we instead got its token only")
    return self.states, self.distributions


class ChainSummary(NamedTuple):
  """Summary of a chain for acceptance rules for whole tokens: its last step, and the size of all other noise."""

  mean: Array  # [..., C] float32, mean of the last step
  log_std: Array  # [..., C] float32, of the last step, the temperature included
  sum_log_std: Array  # [...] float32, sum over the steps before the last and over dimensions, without temperature


def token_noise(keys: Key, positions: Array, num_steps: int, token_dim: int, round_: Array | int = 0) -> TokenNoise:
  """Normals of tokens at given positions.

  Args:
    keys: ``[B]`` row keys.
    positions: ``[B or 1, n]`` int32.
    num_steps: ``T``.
    token_dim: ``C``.
    round_: number of the draw; 0 is the noise that models share, and a token that is redrawn needs another number.
  Returns:
    ``initial [B, n, C]``, ``steps [B, n, T, C]``; entries depend on (key, round, position) alone.
  """
  positions = jnp.broadcast_to(positions, (keys.shape[0], positions.shape[1]))

  def draw(stream: rng.Stream, shape: tuple[int, ...]) -> Array:
    row_keys = rng.stream_keys(keys, stream, jnp.asarray(round_, jnp.int32))
    one = lambda key, position: jax.random.normal(jax.random.fold_in(key, position), shape)
    return jax.vmap(lambda key, row: jax.vmap(lambda position: one(key, position))(row))(row_keys, positions)

  return TokenNoise(draw(rng.Stream.NOISE, (token_dim,)), draw(rng.Stream.DENOISE, (num_steps, token_dim)))


def step_normals(keys: Key, numbers: Array, dim: int) -> Array:
  """Standard normals ``[B, n, C]`` of steps; each depends on (key, number) alone.

  Args:
    keys: ``[B]``.
    numbers: ``[B or 1, n]`` int32.
    dim: ``C``.
  """
  numbers = jnp.broadcast_to(numbers, (keys.shape[0], numbers.shape[1]))
  one = lambda key, number: jax.random.normal(jax.random.fold_in(key, number), (dim,))
  return jax.vmap(lambda key, row: jax.vmap(lambda number: one(key, number))(row))(keys, numbers)


def row_noise(keys: Key, num_steps: int, dim: int) -> TokenNoise:
  """Noise of rows with one chain each: with it, `run` draws the states of plain decoding from the same row keys.

  Args:
    keys: ``[B]`` row keys.
    num_steps: ``T``.
    dim: ``C``.
  Returns:
    ``initial [B, C]``, ``steps [B, T, C]``.
  """
  numbers = jnp.arange(num_steps + 1, dtype=jnp.int32)[None]
  normals = step_normals(rng.stream_keys(keys, rng.Stream.FIRST, jnp.int32(0)), numbers, dim)
  return TokenNoise(normals[:, num_steps], normals[:, :num_steps])


def next_state(
  distribution: StepDistribution, step: Array, noise: Array, temperature: Array, *, noisy_end: bool = False
) -> Array:
  """``mean + temperature exp(log variance / 2) noise``, without noise at step 0 unless ``noisy_end``."""
  factor = temperature if noisy_end else jnp.where(step > 0, temperature, 0.0)
  return distribution.mean + factor * jnp.exp(0.5 * distribution.log_variance) * noise


def run(
  distribution_fn: DistributionFn,
  noise: TokenNoise,
  temperature: Array,
  *,
  noisy_end: bool = False,
  record: bool = False,
  down_to: int = 0,
) -> Chain:
  """Runs a chain.

  Args:
    distribution_fn: distributions of the steps for states ``[..., C]``.
    noise: ``initial [..., C]``, ``steps [..., T, C]``.
    temperature: ``[]`` float32 factor of every step's noise.
    noisy_end: static; whether step 0 adds its noise.
    record: also return the state and the distribution of every step; memory ``O(T)``.
    down_to: static; the last step that is taken. The result is then the state that enters step ``down_to - 1``.
  """
  steps = jnp.moveaxis(noise.steps, -2, 0)[down_to:]
  numbers = jnp.arange(down_to, noise.steps.shape[-2], dtype=jnp.int32)

  def step(x: Array, inputs: tuple[Array, Array]):
    number, step_noise = inputs
    distribution = distribution_fn(number, x)
    return next_state(distribution, number, step_noise, temperature, noisy_end=noisy_end), (
      x,
      distribution,
    ) if record else None

  # Scanned from the last step down; what is stacked ends up ordered by step.
  token, recorded = jax.lax.scan(step, noise.initial, (numbers, steps), reverse=True)
  return Chain(token) if recorded is None else Chain(token, recorded[0], recorded[1])


def run_summarized(
  distribution_fn: DistributionFn, noise: TokenNoise, temperature: Array, *, noisy_end: bool = False
) -> tuple[Array, ChainSummary]:
  """A whole chain and its summary, as `run` and `summarize` give them, with memory for one step.

  Returns:
    The token ``[..., C]`` and the summary.
  """
  steps = jnp.moveaxis(noise.steps, -2, 0)
  numbers = jnp.arange(1, noise.steps.shape[-2], dtype=jnp.int32)

  def step(carry: tuple[Array, Array], inputs: tuple[Array, Array]):
    (x, total), (number, step_noise) = carry, inputs
    distribution = distribution_fn(number, x)
    total = total + 0.5 * jnp.sum(distribution.log_variance, axis=-1)
    return (next_state(distribution, number, step_noise, temperature, noisy_end=noisy_end), total), None

  start = (noise.initial, jnp.zeros(noise.initial.shape[:-1]))
  (x, total), _ = jax.lax.scan(step, start, (numbers, steps[1:]), reverse=True)
  zero = jnp.int32(0)
  distribution = distribution_fn(zero, x)
  token = next_state(distribution, zero, steps[0], temperature, noisy_end=noisy_end)
  return token, ChainSummary(distribution.mean, 0.5 * distribution.log_variance + jnp.log(temperature), total)


def finish(
  distribution_fn: DistributionFn, x: Array, left: Array, keys: Key, temperature: Array, *, noisy_end: bool = False
) -> Array:
  """Takes the last steps of chains at different steps.

  Args:
    distribution_fn: distributions for states ``[B, C]``.
    x: ``[B, C]`` states.
    left: ``[B]`` int32 number of remaining steps ``left - 1, ..., 0``; 0 leaves the state as it is.
    keys: ``[B]``, fresh; consumed. The noise of step i depends on (key, i) alone.
    temperature: ``[]``.
  Returns:
    ``[B, C]`` tokens.
  """
  normal = jax.vmap(lambda key, number: jax.random.normal(jax.random.fold_in(key, number), x.shape[1:]), (0, None))

  def step(state: tuple[Array, Array]) -> tuple[Array, Array]:
    x, number = state
    moved = next_state(distribution_fn(number, x), number, normal(keys, number), temperature, noisy_end=noisy_end)
    return jnp.where(over_tokens(number < left, x), moved, x), number - 1

  return jax.lax.while_loop(lambda state: state[1] >= 0, step, (x, jnp.max(left) - 1))[0]


def follow(
  distribution_fn: DistributionFn, x: Array, number: Array, noise: Array, temperature: Array, *, noisy_end: bool = False
) -> tuple[Array, StepDistribution]:
  """Takes ``K`` steps of chains at different steps.

  Args:
    distribution_fn: distributions for states ``[B, C]`` with steps ``[B, 1]``.
    x: ``[B, C]`` states.
    number: ``[B]`` int32, the first step of each row. States after a row's step 0 are finite garbage.
    noise: ``[B, K, C]``.
    temperature: ``[]``.
  Returns:
    The state after each step ``[B, K, C]``, and the distributions of the steps, leaves ``[B, K, C]``.
  """

  def step(x: Array, inputs: tuple[Array, Array]):
    taken, step_noise = inputs
    at = jnp.maximum(number - taken, 0)[:, None]
    distribution = distribution_fn(at, x)
    moved = next_state(distribution, at, step_noise, temperature, noisy_end=noisy_end)
    return moved, (moved, distribution)

  taken = jnp.arange(noise.shape[1], dtype=jnp.int32)
  _, drawn = jax.lax.scan(step, x, (taken, noise.swapaxes(0, 1)))
  return jax.tree.map(lambda leaf: leaf.swapaxes(0, 1), drawn)


def summarize(distributions: StepDistribution, temperature: Array) -> ChainSummary:
  """Summary of a recorded chain (leaves ``[T, ..., C]``)."""
  log_std = 0.5 * distributions.log_variance
  return ChainSummary(
    distributions.mean[0], log_std[0] + jnp.log(temperature), jnp.sum(jnp.sum(log_std[1:], axis=-1), axis=0)
  )


def normal_log_prob(x: Array, mean: Array, log_std: Array) -> Array:
  """Log density ``[...]`` of diagonal Gaussians at ``x [..., C]``."""
  scaled = (x - mean) * jnp.exp(-log_std)
  return -jnp.sum(0.5 * jnp.square(scaled) + log_std + 0.5 * LOG_TWO_PI, axis=-1)
