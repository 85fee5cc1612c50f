"""Sampling settings of continuous tokens."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Self

import jax.numpy as jnp
import numpy as np

from jaxspec.core.network import Network
from jaxspec.core.options import LARGEST, option
from jaxspec.core.token_kinds import CONTINUOUS
from jaxspec.diffusion.schedule import diffusion_tables
from jaxspec.errors import OptionError
from jaxspec.models.continuous_fns import ContinuousFns, HeadFns, diffusion_tokens, guided_tokens
from jaxspec.models.guidance import Guided
from jaxspec.models.mar.mar import MARFns
from jaxspec.models.mar.masked_network import masked_network
from jaxspec.sampling.logit_processing import ModelParams, sampling_params
from jaxspec.sampling.sampling_settings import Guidance, check_steps
from jaxspec.sampling.unmasking import GuidanceFn, linear_guidance


@dataclasses.dataclass(frozen=True)
class ContinuousSampling(Guidance):
  """Sampling of continuous tokens by a diffusion head.

  Attributes:
    guidance_fn: guidance scale as a function of the token (`jaxspec.sampling.unmasking`); not an option.
  """

  steps: int | str = option(100, "Diffusion steps: 50, ddim50, or counts per section (10,10).")
  stop: int | None = option(None, "End tokens with the noise of this step; none: in a mean.", ge=0)
  temperature: float = option(1.0, "Factor of the noise of every diffusion step but the first state.", gt=0, le=LARGEST)
  cfg_scale: float = option(1.0, "Scale of classifier-free guidance; 1 switches guidance off.", ge=1, le=LARGEST)
  refine: bool = option(False, "Take the skipped steps at the end, all tokens at once.")
  guidance_fn: GuidanceFn = linear_guidance

  tokens: ClassVar[str] = CONTINUOUS

  def __post_init__(self):
    super().__post_init__()
    steps = check_steps(self)
    if self.stop is not None and not self.stop < steps - 1:
      raise OptionError(f"Must have stop from 0 to {steps - 2}, we instead got {self.stop}")

  def _tables(self):
    return diffusion_tables(str(self.steps))

  @property
  def is_refined(self) -> bool:
    """Whether skipped steps are taken at the end (`jaxspec.families.refine`)."""
    return self.refine and bool(self.stop)

  def bind(self, head: HeadFns) -> ContinuousFns:
    """The network with the chain of these settings."""
    kwargs = dict(num_steps=str(self.steps), stop=self.stop)
    return guided_tokens(head, self.guidance_fn, **kwargs) if self.is_guided else diffusion_tokens(head, **kwargs)

  def side(self, network: Network) -> ModelParams:
    """Traced parameters of one side of a decode; the weights are `Guided` iff guidance is on."""
    params = Guided(network.params, jnp.float32(self.cfg_scale)) if self.is_guided else network.params
    return ModelParams(params, sampling_params(self.temperature))

  def row_tokens(self, network: Network) -> int:
    """Tokens of a row of a network."""
    return head_fns(network).num_tokens

  def signal(self) -> float:
    """``sqrt(A)`` of the tokens: 1, or less where chains stop early without refinement."""
    if self.stop is None or self.is_refined:
      return 1.0
    return float(self._tables().alphas_cumprod_prev[self.stop] ** 0.5)

  def respaced(self, steps: int | str) -> Self:
    """The same settings with other steps; ``stop`` is chosen so that the noise of the tokens is closest to the old one.

    Networks that read noisy tokens were trained for one noise level.
    """
    if self.stop is None:
      return dataclasses.replace(self, steps=steps)
    return dataclasses.replace(self, steps=steps, stop=nearest_stop(steps, self.steps, self.stop))


def nearest_stop(steps: int | str, trained_steps: int | str, trained_stop: int) -> int:
  """The ``stop`` of another respacing whose noise level is closest to the one that networks were trained for."""
  kept = diffusion_tables(str(steps)).alphas_cumprod_prev[:-1]
  wanted = diffusion_tables(str(trained_steps)).alphas_cumprod_prev[trained_stop]
  return int(np.argmin(np.abs(np.asarray(kept) ** 0.5 - wanted**0.5)))


def head_fns(network: Network, *, common_prefix: bool = False) -> HeadFns:
  """A network of continuous tokens as drafters and verifiers read it; a masked one in its generation order.

  Args:
    common_prefix: see `masked_network`.
  Raises:
    ValueError: for a network of discrete tokens; for a common prefix with a network that is not masked.
  """
  if isinstance(network.fns, MARFns):
    return masked_network(network.fns, common_prefix=common_prefix)
  if common_prefix:
    raise ValueError(f"Must have a masked network (MAR) as {network.name} with block, we instead got another")
  if not isinstance(network.fns, HeadFns):
    kind = type(network.fns).__name__
    raise ValueError(f"Must have a network of continuous tokens (HeadFns, MARFns) as {network.name}, we instead got {kind}")
  return network.fns
