"""Speculative decoding with heads that draft to the right and downward in an image, a window in one pass."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from jaxspec.core.network import Network
from jaxspec.core.types import Drafter, ModelFns
from jaxspec.drafters.spatial_drafter import SpatialDrafter
from jaxspec.methods.feature_methods import FeatureChain
from jaxspec.methods.method import BuildContext, Parts, need

FAMILY = "spatial"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spatial(FeatureChain):
  """Speculative decoding with spatial heads, which draft a window of an image in one pass; exact.

  A horizontal head predicts each place of the window from the target's newest feature, and vertical heads predict it from
  the features at the rows above. The place is drawn from one row of logits, in which all of them take part. The rows of a
  window do not depend on the tokens drawn at other places.
  """

  draft_family: ClassVar[str | None] = FAMILY
  name: ClassVar[str] = "spatial"
  title: ClassVar[str] = "speculative decoding with spatial heads"
  source: ClassVar[str] = "Chen et al. 2025, arXiv 2510.25739 (Hawk); Xiang et al. 2026, arXiv 2606.20543 (SSD)"
  exact: ClassVar[bool] = True

  def inputs_per_draft_call(self) -> int:
    """The places of the window."""
    return self.drafts_per_round()

  def drafter(self, fns: ModelFns, context: BuildContext) -> Drafter:
    """The drafter of spatial heads."""
    _, columns = need(context.space.grid, "a grid (to draft downward)", self.name)
    return SpatialDrafter(fns, window=self.drafts_per_round(), columns=columns, warp=context.warp())

  def build(self, target: Network, draft: Network | None, context: BuildContext) -> Parts:
    """See `Method.build`."""
    places = getattr(need(draft, "a draft network", self.name).config, "num_places", None)
    if places is not None and (gamma := self.drafts_per_round()) > places:
      raise ValueError(f"Must have gamma of at most the {places} places of the heads, we instead got {gamma}")
    return super().build(target, draft, context)
