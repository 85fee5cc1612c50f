"""Speculative decoding of scales: a small network of the same scales drafts, one pass of the target verifies."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from jaxspec.core.network import Network
from jaxspec.core.payloads import AcceptScale
from jaxspec.core.state import SpecParams
from jaxspec.drafters.scale_model import ScaleModelDrafter
from jaxspec.methods.common import check_chain, of_scales
from jaxspec.methods.method import SAME_FAMILY, SCALES, BuildContext, DraftingMethod, Parts, need, option
from jaxspec.rules.scale_rule import PlaceRule, ScaleRule
from jaxspec.sampling.scale_network import ScaleNetwork
from jaxspec.verifiers.scale_target import ScaleVerifier

RULES = {"map": ScaleRule, "place": PlaceRule}


def check_scales(draft: ScaleNetwork, target: ScaleNetwork) -> None:
  """Raises a ValueError if a draft has other scales than its target."""
  if draft.model.sides != target.model.sides:
    raise ValueError(f"Must have a draft of scales {target.model.sides}, we instead got {draft.model.sides}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScaleSpeculative(DraftingMethod):
  """Speculative decoding of the scales of an image (VAR); exact for every draft.

  A token is a whole scale. A drafted scale r is accepted with probability ``min(1, P(r) / Q(r))``, where P and Q are
  products over its positions, and else replaced by a draw from ``[P - Q]+``. Rows of a batch keep one length: a round
  commits the smallest number of accepted scales of any row.
  """

  gamma: int = option(2, "Tokens drafted per round.", ge=1)
  rule: str = option("map", "Accept scales as a whole, or each token by itself.", choices=tuple(RULES))
  bonus: bool = option(True, "Also draw the scale after full acceptance.")

  name: ClassVar[str] = "scale-speculative"
  title: ClassVar[str] = "speculative decoding of scales"
  source: ClassVar[str] = "after Leviathan et al. 2023, arXiv 2211.17192; maps of Tian et al. 2024, arXiv 2404.02905"
  tokens: ClassVar[str] = SCALES
  exact: ClassVar[bool] = True
  draft_family: ClassVar[str | None] = SAME_FAMILY

  def drafts_per_round(self) -> int:
    """The chain of scales."""
    return self.gamma

  def check_length(self, num_tokens: int) -> None:
    """See `Method.check_length`."""
    check_chain("gamma", self.gamma, num_tokens)

  def accept_scale(self) -> AcceptScale:
    """The acceptance rule."""
    return RULES[self.rule]()

  def build(self, target: Network, draft: Network | None, context: BuildContext) -> Parts:
    """See `Method.build`."""
    sampling, draft = of_scales(self, context), need(draft, "a draft network", self.name)
    judge, drafting = sampling.bind(target), sampling.bind(draft)
    check_scales(drafting, judge)
    params = SpecParams(sampling.side(draft), sampling.side(target))
    verifier = ScaleVerifier(judge, self.accept_scale(), bonus=self.bonus)
    return Parts(params, ScaleModelDrafter(drafting, window=self.gamma), verifier)
