"""Sampling settings of discrete tokens."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax.numpy as jnp

from jaxspec.core.network import Network
from jaxspec.core.options import LARGEST, option
from jaxspec.core.token_kinds import DISCRETE
from jaxspec.core.types import ModelFns
from jaxspec.models import guidance
from jaxspec.models.feature_levels import with_levels
from jaxspec.models.guidance import Guided
from jaxspec.sampling.logit_processing import ModelParams, Sampling, Warp, sampling_params
from jaxspec.sampling.sampling_settings import Guidance


@dataclasses.dataclass(frozen=True)
class SamplingConfig(Guidance):
  """Guidance and logit processing of discrete tokens.

  Logits are guided, divided by the temperature, then truncated by top-k and top-p. Guidance is active iff ``cfg_scale > 1``,
  the nucleus iff ``top_p < 1``; these two and ``top_k`` change the compiled program, the other numbers do not.
  """

  cfg_scale: float = option(1.0, "Scale of classifier-free guidance; 1 switches guidance off.", ge=1, le=LARGEST)
  cfg_interval: int = option(-1, "Guide only this many tokens and two more; -1 guides all.", ge=-1, le=2**30)
  top_k: int = option(0, "Keep the k likeliest tokens; 0 keeps all.", ge=0)
  top_p: float = option(1.0, "Keep the likeliest tokens of this total probability.", gt=0, le=1)
  temperature: float = option(1.0, "Divisor of the logits; 0 is greedy.", ge=0, le=LARGEST)

  tokens: ClassVar[str] = DISCRETE

  def warp(self) -> Warp:
    """The static part of the logit processing."""
    return Warp(top_k=self.top_k, nucleus=self.top_p < 1)

  def params(self) -> Sampling:
    """The traced part of the logit processing."""
    return sampling_params(self.temperature, self.top_p)

  def row_tokens(self, network: Network) -> int | None:
    """Tokens of a row, if the network's config has them; other rows end at a given length or at an end token."""
    return getattr(network.config, "num_tokens", None)

  def side(
    self, network: Network, *, features: str = "both", levels: tuple[int, ...] = (), guided: bool | None = None
  ) -> tuple[ModelFns, ModelParams]:
    """A network as one side of a decode: its functions and its traced parameters.

    Args:
      features: what a guided network returns as features, see `jaxspec.models.guidance.guided`.
      levels: layers below the last whose features the network returns too (`jaxspec.models.feature_levels`).
      guided: whether the network takes part in guidance; None: `Network.is_guided`. A draft that learned guided targets runs
        without guidance, at half the cost.
    Raises:
      ValueError: if guidance is on and the network has no unconditional condition, or for levels that it does not have.
    """
    is_on = self.is_guided and (network.is_guided if guided is None else guided)
    fns, params = with_levels(network.fns, levels), network.params
    if is_on:
      fns = guidance.guided(fns, interval=self.cfg_interval, features=features)
      params = Guided(params, jnp.float32(self.cfg_scale))
    return fns, ModelParams(params, self.params())
