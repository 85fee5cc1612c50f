"""Sampling settings of scales."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from jaxspec.core.network import Network
from jaxspec.core.options import LARGEST, option
from jaxspec.core.token_kinds import SCALES
from jaxspec.sampling.sampling_settings import Guidance, check_network
from jaxspec.sampling.scale_network import ScaleNetwork, ScaleSide, scale_sampling


@dataclasses.dataclass(frozen=True)
class ScaleSampling(Guidance):
  """Sampling of the scales of an image (VAR, arXiv 2404.02905).

  Logits are guided, truncated by top-k and top-p, then divided by the temperature. The official code's ``cfg`` is
  ``cfg_scale - 1`` here.
  """

  cfg_scale: float = option(1.0, "Scale of classifier-free guidance at the last scale; it grows from 1.", ge=1, le=LARGEST)
  top_k: int = option(0, "Keep the k likeliest tokens; 0 keeps all.", ge=0)
  top_p: float = option(1.0, "Keep the likeliest tokens of this total probability.", gt=0, le=1)
  temperature: float = option(1.0, "Divisor of the logits; 0 is greedy.", ge=0, le=LARGEST)

  tokens: ClassVar[str] = SCALES

  def bind(self, network: Network) -> ScaleNetwork:
    """The network with the static part of these settings.

    Raises:
      ValueError: for a network of other tokens.
    """
    check_network(network, ScaleNetwork, self.tokens)
    return dataclasses.replace(network.fns, top_k=self.top_k)

  def side(self, network: Network) -> ScaleSide:
    """Traced parameters of one side of a decode."""
    sampling = scale_sampling(
      len(network.fns.sizes),
      cfg=self.cfg_scale - 1 if self.is_guided else None,
      top_p=self.top_p if self.top_p < 1 else None,
      temperature=self.temperature,
    )
    return ScaleSide(network.params, sampling)

  def row_tokens(self, network: Network) -> int:
    """Tokens of a row of a network: the scales of an image."""
    return len(self.bind(network).sizes)
