"""LANTERN++ on chains: a draft borrows the probability of similar codes of the image tokenizer."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from jaxspec.core.network import Network
from jaxspec.core.types import AcceptFn, PyTree
from jaxspec.methods.common import Neighbours, of_ids
from jaxspec.methods.method import BuildContext, Parts
from jaxspec.methods.speculative import ChainMethod
from jaxspec.rules.lantern_greedy import GreedyLanternRule
from jaxspec.sampling.logit_processing import sampling_params


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lantern(Neighbours, ChainMethod):
  """Speculative decoding of a chain, relaxed by LANTERN++; lossy.

  A draft x borrows the mass S of its nearest codes, nearest first, while ``p(x) + S <= factor p(x)``, and is accepted with
  probability ``min(1, (p(x) + S) / q(x))``. A rejected draft is replaced by a token of ``[p - q]+``, the residual of the
  least bias; the paper and the released code remove codes instead (`jaxspec.rules.lantern_rule.LanternRule` has both). A
  factor of 1 is exact.

  At temperature 0 a draft is accepted if it is the arg-max after borrowing
  (`jaxspec.rules.lantern_greedy.GreedyLanternRule`), as in the released code.
  """

  name: ClassVar[str] = "lantern"
  title: ClassVar[str] = "speculative decoding, relaxed by LANTERN++"
  source: ClassVar[str] = "Park et al. 2025, arXiv 2502.06352, after Jang et al. 2025, arXiv 2410.03355, section 4"

  def rule(self, context: BuildContext) -> tuple[AcceptFn, PyTree]:
    """See `ChainMethod.rule`."""
    rule, table = self.lantern(context)
    return GreedyLanternRule(rule) if context.sampling.temperature == 0 else rule, table

  def build(self, target: Network, draft: Network | None, context: BuildContext) -> Parts:
    """See `Method.build`."""
    sampling = of_ids(self, context)
    if context.audit and sampling.temperature == 0:
      raise ValueError(
        "Must have a temperature above 0 to audit LANTERN, we instead got 0: its output then has no distribution"
      )
    parts = super().build(target, draft, context)
    if sampling.temperature > 0:
      return parts
    # The borrowed mass is that of the target's distribution at temperature 1; at 0 one token has all the mass.
    side = parts.params.target._replace(sampling=sampling_params(1.0, sampling.top_p))
    return parts._replace(params=parts.params._replace(target=side))
