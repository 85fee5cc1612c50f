"""A network of denoising steps, the interface for drafters and verifiers: one image is denoised step by step (DiT).

A row is the chain of one image. Step ``i = T - 1 - k`` of a respaced schedule draws token ``k`` from the previous state. The
last token is the mean of step 0: the image. There is no cache. A pass reads states at any steps, so one pass over the newest
state and ``K`` drafted ones predicts ``K + 1`` steps.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp

from jaxspec.core.types import Array, Params
from jaxspec.diffusion import ddim, ddpm
from jaxspec.diffusion.chain import StepDistribution
from jaxspec.diffusion.ddpm import PredictFn, Prediction
from jaxspec.diffusion.schedule import DiffusionTables, diffusion_tables
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.dit.dit import DiTFns


class DenoisingSide(NamedTuple):
  """Traced parameters of one side of a decode."""

  params: Params
  scale: Array | None  # [] float32 of classifier-free guidance; None: the conditional half alone, at half the cost


@dataclasses.dataclass(frozen=True)
class DenoisingNetwork:
  """A network with the steps of a sampler; hashable.

  Attributes:
    fns: the network.
    steps: respacing, as `jaxspec.diffusion.schedule.kept_steps` reads it.
    ddim_eta: noise of DDIM's steps (`jaxspec.diffusion.ddim`); None: steps of DDPM with the learned variance.
  """

  fns: DiTFns
  steps: str
  ddim_eta: float | None = None

  @property
  def tables(self) -> DiffusionTables:
    """Tables of the respaced schedule of training."""
    return diffusion_tables(self.steps, self.fns.schedule)

  @property
  def num_steps(self) -> int:
    """Steps of a chain, ``T``: tokens of a row."""
    return self.tables.num_steps

  @property
  def state_dim(self) -> int:
    """Numbers of a state, ``C``."""
    return self.fns.state_dim

  def numbers(self, length: Array, count: int) -> Array:
    """``[B, count]`` int32, the next steps of rows with ``length [B]`` tokens; 0 after a row's last step."""
    first = self.num_steps - 1 - length
    return jnp.maximum(first[:, None] - jnp.arange(count, dtype=jnp.int32)[None], 0)

  def predictor(self, side: DenoisingSide, condition: ClassLabels) -> PredictFn:
    """The network, bound to conditions ``[B]``; states are ``[B, C]``, or ``[R, B, C]`` with an index of that rank."""
    timesteps = self.tables.timesteps
    if side.scale is None:
      return self.fns.predictor(side.params, condition, timesteps)
    return self.fns.guided_predictor(side.params, condition, timesteps, side.scale)

  def distribution(self, index: Array, x: Array, prediction: Prediction) -> StepDistribution:
    """Distribution of the state after ``x [..., C]``; arguments as in `jaxspec.diffusion.ddpm.step_distribution`."""
    if self.ddim_eta is None:
      return ddpm.step_distribution(self.tables, index, x, prediction)
    return ddim.step_distribution(self.tables, index, x, prediction, self.ddim_eta)

  def noise_weight(self, index: Array) -> Array:
    """How far a step moves its state for each unit of the predicted noise, at least 0, float32 of the index's shape.

    For DDPM this is ``beta_i / sqrt(alpha_i (1 - A_i))`` (arXiv 2006.11239, eq. 11).
    """
    one = jnp.ones(index.shape, jnp.float32)
    return -self.distribution(index, jnp.zeros_like(one), Prediction(one, one)).mean  # the mean is linear in x and eps

  def decode_bytes(self, rows: int, num_states: int) -> int:
    """Bytes of the states of a pass and of their predictions, in float32.

    Args:
      rows: rows of a pass, including both halves of guidance.
      num_states: states of a row in a pass.
    """
    return 3 * 4 * rows * num_states * self.state_dim
