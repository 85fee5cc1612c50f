"""CIAR on denoising steps: the edge takes certain steps locally, and the cloud takes the others."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from jaxspec.core.network import Network
from jaxspec.core.state import SpecParams
from jaxspec.drafters.ciar_drafter import GatedParams
from jaxspec.drafters.ciar_steps import SCORES, CiarStepDrafter
from jaxspec.methods.common import of_denoising, prefix_tokens, threshold_of
from jaxspec.methods.method import DENOISING_STEPS, SAME_FAMILY, BuildContext, DraftingMethod, Parts, need, option
from jaxspec.methods.step_speculative import check_networks
from jaxspec.rules.step_coupling import StepCoupling
from jaxspec.verifiers.ciar_step_target import CiarStepVerifier


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepCiar(DraftingMethod):
  """CIAR on the denoising steps of an image (DiT); lossy and experimental.

  The edge predicts the noise of a step and a radius r of each component. A step with ``U = mean(2 r) std(2 r)`` of at most
  ``tau`` is accepted locally. Otherwise the cloud takes this one step, and the edge continues. The cloud takes the first
  steps, a share of ``target_prefix``, and the last ones, a share of ``target_suffix``, alone. The score ``weighted`` has the
  radii of the next state in place of those of the noise.

  A negative ``tau`` accepts nothing locally: the cloud alone. With an infinite ``tau`` the edge takes all steps between the
  prefix and the suffix.
  """

  tau: float | None = option(None, "Largest uncertainty of a token that the edge accepts locally.", infinite=True)
  max_run: int = option(16, "Most tokens that the edge accepts locally in one round.", ge=1)
  target_prefix: float = option(0.0, "Leading share of tokens that the target draws alone.", ge=0, le=1)
  target_suffix: float = option(0.0, "Trailing share of steps that the target takes alone.", ge=0, le=1)
  score: str = option("interval", f"Uncertainty of a step: {', '.join(SCORES)}.")

  name: ClassVar[str] = "step-ciar"
  title: ClassVar[str] = "denoising steps accepted locally on an edge"
  source: ClassVar[str] = "arXiv 2603.25463, Table 10, which leaves the rule open; networks of arXiv 2212.09748"
  tokens: ClassVar[str] = DENOISING_STEPS
  draft_family: ClassVar[str | None] = SAME_FAMILY

  def check(self) -> None:
    """See `Method.check`."""
    if self.score not in SCORES:
      raise ValueError(f"Must have score in {', '.join(SCORES)} for method {self.name}, we instead got {self.score!r}")
    if (both := self.target_prefix + self.target_suffix) > 1:
      raise ValueError(f"Must have target_prefix and target_suffix of at most 1 together, we instead got {both:g}")

  def drafts_per_round(self) -> int:
    """The longest run of local steps."""
    return self.max_run

  def longest_path(self) -> int:
    """Local steps are not judged."""
    return 0

  def build(self, target: Network, draft: Network | None, context: BuildContext) -> Parts:
    """See `Method.build`."""
    sampling, draft = of_denoising(self, context), need(draft, "a draft network", self.name)
    cloud, edge = sampling.bind(target), sampling.bind(draft)
    check_networks(edge, cloud)
    suffix = prefix_tokens(self.target_suffix, cloud.num_steps)
    drafter = CiarStepDrafter(edge, SCORES[self.score], max_run=self.max_run, target_suffix=suffix)
    params = SpecParams(GatedParams(sampling.side(draft), threshold_of(self)), sampling.side(target))
    prefix = prefix_tokens(self.target_prefix, cloud.num_steps)
    return Parts(params, drafter, CiarStepVerifier(cloud, StepCoupling()), target_prefix=prefix)
