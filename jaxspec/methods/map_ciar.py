"""CIAR on whole maps: the edge keeps the maps that it is certain of, and asks the cloud about the others."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from jaxspec.core.network import Network
from jaxspec.core.state import SpecParams
from jaxspec.drafters.ciar_drafter import GatedParams
from jaxspec.drafters.ciar_scales import CiarScaleDrafter
from jaxspec.intervals.scores import make_score
from jaxspec.methods.common import check_chain, of_maps, prefix_tokens, threshold_of
from jaxspec.methods.map_speculative import RULES, check_scales
from jaxspec.methods.method import MAPS, SAME_FAMILY, BuildContext, DraftingMethod, Parts, need, option
from jaxspec.verifiers.scale_target import ScaleVerifier


@dataclasses.dataclass(frozen=True, kw_only=True)
class MapCiar(DraftingMethod):
  """CIAR on the maps of an image (VAR); lossy.

  The edge draws a map from its own distribution and scores the uncertainty of each place; U of the map is their mean, or a
  quantile. While U is at most ``tau`` the map is accepted locally. The first map above it opens a window of up to
  ``max_window`` drafts, which the cloud judges with everything that it has not read, in one pass. The cloud draws the first
  maps, ``target_prefix`` of them all, alone.

  Nothing is accepted locally with a negative ``tau``: that is `MapSpeculative`, or with ``max_window`` 0 the cloud alone.
  With an infinite one the edge draws everything after the prefix: CoDe (arXiv 2411.17787), or without a prefix the edge
  alone.
  """

  max_window: int = option(2, "Most drafts of an exchange; 0: the cloud draws every uncertain map itself.", ge=0)
  tau: float | None = option(None, "Largest uncertainty of a token that the edge accepts locally.", infinite=True)
  target_prefix: float = option(0.0, "Leading share of tokens that the target draws alone.", ge=0, le=1)
  score: str = option("interval", "Uncertainty: interval, entropy, max_prob, random, ... with settings after colons.")
  map_quantile: float | None = option(None, "U of a map is this quantile of its places; none: their mean.", ge=0, le=1)
  rule: str = option("map", "Accept maps as a whole, or each place by itself.", choices=tuple(RULES))
  bonus: bool = option(True, "Also draw the map after a draft that is accepted in full.")

  name: ClassVar[str] = "map-ciar"
  title: ClassVar[str] = "maps on the edge, with the cloud where it is uncertain"
  source: ClassVar[str] = (
    "arXiv 2603.25463, Table 10, which leaves the rule open; maps of Tian et al. 2024, arXiv 2404.02905"
  )
  tokens: ClassVar[str] = MAPS
  draft_family: ClassVar[str | None] = SAME_FAMILY

  def check(self) -> None:
    """See `Method.check`."""
    make_score(self.score)

  def drafts_per_round(self) -> int:
    """The chain of maps; of one map that the edge may keep, at least."""
    return max(self.max_window, 1)

  def longest_path(self) -> int:
    """The window; local maps are not judged."""
    return self.max_window

  def check_length(self, num_tokens: int) -> None:
    """See `Method.check_length`."""
    check_chain("max_window", self.max_window, num_tokens)

  def build(self, target: Network, draft: Network | None, context: BuildContext) -> Parts:
    """See `Method.build`."""
    sampling, draft = of_maps(self, context), need(draft, "a draft network", self.name)
    cloud, edge = sampling.bind(target), sampling.bind(draft)
    check_scales(edge, cloud)
    drafter = CiarScaleDrafter(edge, make_score(self.score), most_drafts=self.max_window, quantile=self.map_quantile)
    verifier = ScaleVerifier(cloud, RULES[self.rule](), bonus=self.bonus)
    params = SpecParams(GatedParams(sampling.side(draft), threshold_of(self)), sampling.side(target))
    return Parts(params, drafter, verifier, target_prefix=prefix_tokens(self.target_prefix, len(cloud.sizes)))
