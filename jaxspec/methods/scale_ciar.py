"""CIAR on scales: the edge accepts certain scales locally, and the cloud verifies the others."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from jaxspec.core.network import Network
from jaxspec.core.state import SpecParams
from jaxspec.drafters.ciar_drafter import GatedParams
from jaxspec.drafters.ciar_scales import CiarScaleDrafter
from jaxspec.intervals.scores import make_score
from jaxspec.methods.common import check_chain, of_scales, prefix_tokens, threshold_of
from jaxspec.methods.method import SAME_FAMILY, SCALES, BuildContext, DraftingMethod, Parts, need, option
from jaxspec.methods.scale_speculative import RULES, check_scales
from jaxspec.verifiers.scale_target import ScaleVerifier


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScaleCiar(DraftingMethod):
  """CIAR on the scales of an image (VAR); lossy.

  The edge draws a scale from its own distribution and scores the uncertainty of each token. The uncertainty U of the scale
  is their mean, or a quantile. While U is at most ``tau`` the scale is accepted locally. The first scale above it begins a
  window of up to ``max_window`` drafts, which the cloud verifies in one pass with the pending scales. The cloud draws the
  first scales, a share of ``target_prefix``, alone.

  A negative ``tau`` accepts nothing locally: this is `ScaleSpeculative`, or the cloud alone with ``max_window`` 0. With an
  infinite ``tau`` the edge draws all scales after the prefix: this is CoDe (arXiv 2411.17787), or the edge alone without a
  prefix.
  """

  max_window: int = option(2, "Most drafts of an exchange; 0: the cloud draws every uncertain scale itself.", ge=0)
  tau: float | None = option(None, "Largest uncertainty of a token that the edge accepts locally.", infinite=True)
  target_prefix: float = option(0.0, "Leading share of tokens that the target draws alone.", ge=0, le=1)
  score: str = option("interval", "Uncertainty: interval, entropy, max_prob, random, ... with settings after colons.")
  map_quantile: float | None = option(None, "Quantile of the uncertainty over a scale's tokens; none: mean.", ge=0, le=1)
  rule: str = option("map", "Accept scales as a whole, or each token by itself.", choices=tuple(RULES))
  bonus: bool = option(True, "Also draw the scale after full acceptance.")

  name: ClassVar[str] = "scale-ciar"
  title: ClassVar[str] = "scales accepted locally on an edge"
  source: ClassVar[str] = (
    "arXiv 2603.25463, Table 10, which leaves the rule open; maps of Tian et al. 2024, arXiv 2404.02905"
  )
  tokens: ClassVar[str] = SCALES
  draft_family: ClassVar[str | None] = SAME_FAMILY

  def check(self) -> None:
    """See `Method.check`."""
    make_score(self.score)

  def drafts_per_round(self) -> int:
    """The chain of scales, at least one."""
    return max(self.max_window, 1)

  def longest_path(self) -> int:
    """The window; locally accepted scales are not verified."""
    return self.max_window

  def check_length(self, num_tokens: int) -> None:
    """See `Method.check_length`."""
    check_chain("max_window", self.max_window, num_tokens)

  def build(self, target: Network, draft: Network | None, context: BuildContext) -> Parts:
    """See `Method.build`."""
    sampling, draft = of_scales(self, context), need(draft, "a draft network", self.name)
    cloud, edge = sampling.bind(target), sampling.bind(draft)
    check_scales(edge, cloud)
    score = make_score(self.score)
    drafter = CiarScaleDrafter(edge, score, most_drafts=self.max_window, quantile=self.map_quantile)
    verifier = ScaleVerifier(cloud, RULES[self.rule](), bonus=self.bonus)
    edge_params = GatedParams(sampling.side(draft), threshold_of(self), score=score.tables(context.space))
    params = SpecParams(edge_params, sampling.side(target))
    return Parts(params, drafter, verifier, target_prefix=prefix_tokens(self.target_prefix, len(cloud.sizes)))
