"""Payloads of denoising steps: the proposal of drafted states, and the target's steps."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import jax.numpy as jnp

from jaxspec.core.types import Array, Draft, Key, Verdict
from jaxspec.diffusion.chain import StepDistribution


class DraftedSteps(NamedTuple):
  """`Draft.proposal` of drafted states."""

  mean: Array  # [B, K, C] float32
  log_std: Array  # [B, K, C] float32, the temperature included
  noise: Array  # [B, K, C] float32, standard normals: a drafted state is mean + exp(log_std) noise


class TargetSteps(NamedTuple):
  """The target's steps from the newest state and from each of the ``K`` drafted states."""

  mean: Array  # [B, K + 1, C] float32
  log_std: Array  # [B, K + 1, C] float32, the temperature included; -inf where a chain ends in its mean
  noise: Array  # [B, K + 1, C] float32, standard normals of the target's own draws, not those of the drafts


def drafted_steps(distributions: StepDistribution, noise: Array, temperature: Array) -> DraftedSteps:
  """The proposal of states that `jaxspec.diffusion.chain.follow` drew, leaves ``[B, K, C]``."""
  return DraftedSteps(distributions.mean, 0.5 * distributions.log_variance + jnp.log(temperature), noise)


def target_steps(
  distributions: StepDistribution, number: Array, noise: Array, temperature: Array, *, noisy_end: bool = False
) -> TargetSteps:
  """The target's steps from its distributions.

  Args:
    distributions: leaves ``[B, K + 1, C]``.
    number: ``[B, K + 1]`` int32 numbers of the steps.
    noise: ``[B, K + 1, C]`` standard normals, independent of every earlier decision about the row.
    temperature: ``[]``.
    noisy_end: static; whether step 0 adds noise.
  """
  log_std = 0.5 * distributions.log_variance + jnp.log(temperature)
  if not noisy_end:
    log_std = jnp.where((number > 0)[..., None], log_std, -jnp.inf)
  return TargetSteps(distributions.mean, log_std, noise)


class StepRule(Protocol):
  """An acceptance rule for denoising steps; frozen and hashable."""

  def __call__(self, keys: Key, draft: Draft, target: TargetSteps) -> Verdict:
    """Judges a draft, or draws one state if its ``K`` is 0; ``keys [B]`` are consumed."""
    ...
