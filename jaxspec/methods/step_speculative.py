"""Speculative denoising: one pass of the target verifies drafted steps of an image's chain."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from jaxspec.core.network import Network
from jaxspec.core.state import SpecParams
from jaxspec.drafters.denoising_model import DenoisingModelDrafter
from jaxspec.drafters.frozen_steps import FrozenStepDrafter
from jaxspec.methods.common import check_chain, of_denoising
from jaxspec.methods.method import DENOISING_STEPS, SAME_FAMILY, BuildContext, DraftingMethod, Parts, option
from jaxspec.models.dit.denoising_network import DenoisingNetwork
from jaxspec.rules.coupled_steps import COUPLINGS, Coupler
from jaxspec.rules.step_coupling import StepCoupling
from jaxspec.verifiers.denoising_target import DenoisingVerifier

FROZEN = "frozen"


def check_networks(draft: DenoisingNetwork, target: DenoisingNetwork) -> None:
  """Raises a ValueError if draft and target differ in the shape of states or the noise schedule."""
  for name in ("state_dim", "schedule"):
    if (ours := getattr(draft.fns, name)) != (theirs := getattr(target.fns, name)):
      raise ValueError(f"Must have a draft with {name} {theirs} as its target, we instead got {ours}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepSpeculative(DraftingMethod):
  """Speculative decoding of the denoising steps of an image (DiT); exact for every draft.

  A token is the state after one step of DDPM, or of DDIM with noise. The target reads the newest state and ``gamma`` drafted
  ones in one pass, and accepts or replaces each drafted step by an exact coupling of two Gaussians. The draft is ``frozen``
  (the last prediction of the target, used again for free) or a smaller network. The last step ends in its mean and is always
  the target's.
  """

  gamma: int = option(4, "Tokens drafted per round.", ge=1)
  coupling: str = option("maximal", "What is done where deviations differ; split needs no proposals.", choices=COUPLINGS)

  name: ClassVar[str] = "step-speculative"
  title: ClassVar[str] = "speculative denoising"
  source: ClassVar[str] = "De Bortoli et al. 2025, arXiv 2501.05370; networks of Peebles and Xie 2022, arXiv 2212.09748"
  tokens: ClassVar[str] = DENOISING_STEPS
  exact: ClassVar[bool] = True
  draft_family: ClassVar[str | None] = SAME_FAMILY
  free_draft: ClassVar[str | None] = FROZEN

  def drafts_per_round(self) -> int:
    """The chain of steps."""
    return self.gamma

  def check_length(self, num_tokens: int) -> None:
    """See `Method.check_length`."""
    check_chain("gamma", self.gamma, num_tokens)

  def rule(self) -> StepCoupling:
    """The acceptance rule."""
    return StepCoupling(Coupler(self.coupling))

  def build(self, target: Network, draft: Network | None, context: BuildContext) -> Parts:
    """See `Method.build`; without a draft network drafts are frozen.

    Raises:
      ValueError: for steps without noise.
    """
    sampling = of_denoising(self, context)
    if sampling.ddim_eta == 0:
      raise ValueError(
        f"Must have ddim_eta above 0 for method {self.name}, which cannot accept or correct steps without noise "
        "(method ar draws them), we instead got 0"
      )
    judge, side = sampling.bind(target), sampling.side(target)
    verifier = DenoisingVerifier(judge, self.rule())
    if draft is None:
      return Parts(SpecParams((), side), FrozenStepDrafter(judge, window=self.gamma), verifier)
    drafting = sampling.bind(draft)
    check_networks(drafting, judge)
    return Parts(SpecParams(sampling.side(draft), side), DenoisingModelDrafter(drafting, window=self.gamma), verifier)
