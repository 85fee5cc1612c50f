"""Base of methods whose drafter is a head on the target's features (`jaxspec.models.heads.feature_head`)."""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxspec.core.network import Network
from jaxspec.core.state import SpecParams
from jaxspec.methods.auto_length import adaptive
from jaxspec.methods.common import ExactTest, of_ids, target_side
from jaxspec.methods.method import BuildContext, Parts, need
from jaxspec.methods.speculative import ChainMethod
from jaxspec.models.heads.feature_head import attach, borrowed
from jaxspec.verifiers.target import target_features


class OnFeatures:
  """Methods with a head that borrows the target's tables and reads its features.

  A method has two functions: ``drafter(fns, context)`` and ``rule(context)``.
  """

  def build(self: Any, target: Network, draft: Network | None, context: BuildContext) -> Parts:
    """See `Method.build`; ``draft`` has only its own parameters, and the target's tables are attached here."""
    sampling = of_ids(self, context)
    head = need(draft, "a draft network", self.name)
    tables = borrowed(target.config, target.params)
    fns, drafting = sampling.side(dataclasses.replace(head, params=attach(head.params, tables)))
    rule, of_rule = self.rule(context)
    side, verifier = target_side(
      target, rule, context,
      tables=of_rule,
      # A head without guidance reads the features of the guided distribution.
      features="both" if head.is_guided else "combined",
      levels=getattr(head.config, "levels", ()),
      feedback_fn=target_features,
    )  # fmt: skip
    return Parts(SpecParams(drafting, side), self.drafter(fns, context), verifier)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureChain(OnFeatures, ExactTest, ChainMethod):
  """Base of the exact methods whose head samples a chain of ``gamma`` tokens."""

  def build(self, target: Network, draft: Network | None, context: BuildContext) -> Parts:
    """See `Method.build`."""
    parts = super().build(target, draft, context)
    return parts if self.table is None else adaptive(parts, self.table)
