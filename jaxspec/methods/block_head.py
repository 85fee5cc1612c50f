"""Speculative decoding with drafts of one pass: a head gives the distributions of a whole block at once."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from jaxspec.core.types import Drafter, ModelFns
from jaxspec.drafters.block_drafter import BlockDrafter
from jaxspec.methods.feature_methods import FeatureChain
from jaxspec.methods.method import BuildContext

FAMILY = "block_head"


@dataclasses.dataclass(frozen=True, kw_only=True)
class BlockHead(FeatureChain):
  """Speculative decoding with a block of drafts from one pass of a head; exact.

  The head reads the last token, masks and features of three layers of the target. Draft j is drawn from its own row, so the
  rows do not know each other's drafts. With ``verify="block"`` the drafts of a round are tested together (Sun et al. 2024,
  arXiv 2403.10444), which accepts no fewer in the mean.
  """

  draft_family: ClassVar[str | None] = FAMILY
  name: ClassVar[str] = "block-head"
  title: ClassVar[str] = "speculative decoding with blocks of one draft pass"
  source: ClassVar[str] = "Chen et al. 2026, arXiv 2602.06036 (DFlash); features of three layers: arXiv 2503.01840 (EAGLE-3)"
  exact: ClassVar[bool] = True

  def inputs_per_draft_call(self) -> int:
    """The last token and the masks."""
    return self.drafts_per_round()

  def drafter(self, fns: ModelFns, context: BuildContext) -> Drafter:
    """The drafter of a head."""
    return BlockDrafter(fns, window=self.drafts_per_round(), warp=context.warp())
