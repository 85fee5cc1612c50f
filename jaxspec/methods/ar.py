"""Plain decoding: the target alone, one token per pass."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from jaxspec.core.network import Network
from jaxspec.core.no_draft import NO_DRAFTER
from jaxspec.core.state import SpecParams
from jaxspec.methods.common import of_denoising, of_ids, of_scales, refuse_audit, target_side
from jaxspec.methods.method import BuildContext, Method, Parts
from jaxspec.rules.lossless import lossless
from jaxspec.rules.path_ratio import PathRatio
from jaxspec.rules.scale_rule import ScaleRule
from jaxspec.rules.step_coupling import StepCoupling
from jaxspec.sampling import ContinuousSampling, DenoisingSampling, ScaleSampling, head_fns
from jaxspec.verifiers.continuous_target import ContinuousVerifier
from jaxspec.verifiers.denoising_target import DenoisingVerifier
from jaxspec.verifiers.scale_target import ScaleVerifier


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plain(Method):
  """Plain autoregressive decoding of all kinds of tokens: the baseline of every other method.

  The target draws one token per pass. There are no drafts and no acceptance rule.
  """

  name: ClassVar[str] = "ar"
  title: ClassVar[str] = "plain decoding"
  exact: ClassVar[bool] = True

  @classmethod
  def fits(cls, tokens: str) -> bool:
    """All kinds of tokens can be drawn one by one."""
    return True

  def build(self, target: Network, draft: Network | None, context: BuildContext) -> Parts:
    """See `Method.build`; ``draft`` is not read."""
    if isinstance(context.sampling, ContinuousSampling):
      refuse_audit(self, context, "whose continuous tokens have no table of probabilities")
      # Without drafts every rule draws from the target's chain.
      verifier = ContinuousVerifier(context.sampling.bind(head_fns(target)), PathRatio())
      return Parts(SpecParams((), context.sampling.side(target)), NO_DRAFTER, verifier)
    if isinstance(context.sampling, ScaleSampling):
      sampling = of_scales(self, context)
      verifier = ScaleVerifier(sampling.bind(target), ScaleRule())
      return Parts(SpecParams((), sampling.side(target)), NO_DRAFTER, verifier)
    if isinstance(context.sampling, DenoisingSampling):
      sampling = of_denoising(self, context)
      verifier = DenoisingVerifier(sampling.bind(target), StepCoupling())
      return Parts(SpecParams((), sampling.side(target)), NO_DRAFTER, verifier)
    of_ids(self, context)
    side, verifier = target_side(target, lossless, context)
    return Parts(SpecParams((), side), NO_DRAFTER, verifier)
