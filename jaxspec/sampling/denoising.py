"""Sampling settings of denoising steps."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax.numpy as jnp

from jaxspec.core.network import Network
from jaxspec.core.options import LARGEST, option
from jaxspec.core.token_kinds import DENOISING_STEPS
from jaxspec.errors import OptionError
from jaxspec.models.dit.denoising_network import DenoisingNetwork, DenoisingSide
from jaxspec.models.dit.dit import DiTFns
from jaxspec.sampling.sampling_settings import Guidance, check_network, check_steps


@dataclasses.dataclass(frozen=True)
class DenoisingSampling(Guidance):
  """Sampling of the denoising steps of an image by DDPM, ancestral sampling (DiT, arXiv 2212.09748), or by DDIM.

  A row has as many tokens as the chain has steps. The first state is standard normal, and the last step ends in its mean.
  Steps of DDIM (arXiv 2010.02502, eq. 16) have the posterior variance times the square of ``ddim_eta``; with 0 they have no
  noise, and exact methods refuse them.
  """

  steps: int | str = option(250, "Diffusion steps: 50, ddim50, or counts per section (10,10).")
  cfg_scale: float = option(1.0, "Scale of classifier-free guidance; 1 switches guidance off.", ge=1, le=LARGEST)
  ddim_eta: float | None = option(None, "Noise of DDIM, 0 is deterministic; none: steps of DDPM.", ge=0, le=1)

  tokens: ClassVar[str] = DENOISING_STEPS

  def __post_init__(self):
    super().__post_init__()
    if str(self.steps).startswith("ddim") and self.ddim_eta is None:
      raise OptionError(f"Must have ddim_eta (0 is DDIM) with steps {self.steps}, we instead got none")
    check_steps(self)

  def bind(self, network: Network) -> DenoisingNetwork:
    """The network with the steps of these settings.

    Raises:
      ValueError: for a network of other tokens.
    """
    check_network(network, DiTFns, self.tokens)
    return DenoisingNetwork(network.fns, str(self.steps), self.ddim_eta)

  def side(self, network: Network) -> DenoisingSide:
    """Traced parameters of one side of a decode."""
    return DenoisingSide(network.params, jnp.float32(self.cfg_scale) if self.is_guided else None)

  def row_tokens(self, network: Network) -> int:
    """Tokens of a row: the steps of a chain."""
    return self.bind(network).num_steps
