"""Continuous speculative decoding: drafts are continuous tokens, judged by the densities of their diffusion chains."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from jaxspec.core.network import Network
from jaxspec.core.state import SpecParams
from jaxspec.diffusion.token_chains import TokenRule
from jaxspec.drafters.continuous_model import ContinuousModelDrafter
from jaxspec.methods.common import check_chain, of_continuous, prefix_tokens, refuse_audit
from jaxspec.methods.method import (
  CONTINUOUS,
  SAME_FAMILY,
  BuildContext,
  DraftingMethod,
  Expected,
  Parts,
  need,
  option,
)
from jaxspec.rules.path_coupling import PathCoupling
from jaxspec.rules.path_ratio import SIGMAS, PathRatio
from jaxspec.sampling import head_fns
from jaxspec.verifiers.continuous_target import ContinuousVerifier

# Options of the published rule; the exact rule has none of these.
_PUBLISHED = {"align": True, "inner_temperature": 1.0, "sigma": "paper", "block": False}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cspd(DraftingMethod):
  """Continuous speculative decoding (MAR and causal networks with a diffusion head).

  A draft network draws ``gamma`` tokens; the target runs its own chains after every prefix on the same noise (``align``)
  and accepts a draft by the ratio of the two last Gaussians, times the product Sigma of all other steps. The published rule
  is lossy: Sigma biases it, and the last step of chains that end in a mean has no density. The released code inverts Sigma
  (``sigma="released"``) and widens the test by 42 (``inner_temperature``). It judges every draft by itself and commits
  whole blocks (``block``), of masked networks only: the target describes all tokens of a block given the prefix before it.

  ``exact=True`` selects another rule, which couples the last steps of the two chains (`jaxspec.rules.path_coupling`): the
  output then follows the target's distribution for every draft. It needs chains that end with noise
  (``ContinuousSampling.stop``).
  """

  # A class variable of other methods: here it is a setting, which `is_exact` reads.
  exact: bool = option(False, "Keep the target's distribution exactly.")  # pyright: ignore[reportIncompatibleVariableOverride]
  gamma: int = option(8, "Tokens drafted per round.", ge=1)
  align: bool = option(True, "Run draft and target on the same noise (the published rule).")
  inner_temperature: float = option(1.0, "Widening of the published test; the released code has 42.", gt=0)
  sigma: str = option("paper", "Sigma product of the published test; none leaves it out.", choices=SIGMAS)
  block: bool = option(False, "Accept or replace every draft by itself, given the tokens before the block (MAR only).")
  max_tries: int | None = option(None, "Most proposals for a rejected token; none: 100, or 2000 if exact.", ge=1)
  target_prefix: float = option(0.0, "Leading share of tokens that the target draws alone.", ge=0, le=1)

  name: ClassVar[str] = "cspd"
  title: ClassVar[str] = "continuous speculative decoding"
  source: ClassVar[str] = (
    "Wang et al. 2024, arXiv 2411.11925, section 4; the exact rule after De Bortoli et al. 2025, arXiv 2501.05370"
  )
  tokens: ClassVar[str] = CONTINUOUS
  draft_family: ClassVar[str | None] = SAME_FAMILY

  def check(self) -> None:
    """See `Method.check`."""
    if not self.exact:
      return
    for name, default in _PUBLISHED.items():
      if (given := getattr(self, name)) != default:
        raise ValueError(f"Must have no {name} with exact, it is of the published rule, we instead got {given}")

  def drafts_per_round(self) -> int:
    """The chain."""
    return self.gamma

  def check_length(self, num_tokens: int) -> None:
    """See `Method.check_length`."""
    check_chain("gamma", self.gamma, num_tokens)

  def expected(self, acceptance: float, num_tokens: int, calls: float | None = None) -> Expected:
    """As of a chain. A block has one pass of the target and is committed as a whole."""
    chain = super().expected(acceptance, num_tokens, calls)
    return chain._replace(tokens=float(self.gamma), inputs=1.0) if self.block else chain

  def rule(self) -> TokenRule:
    """The acceptance rule."""
    cap: dict[str, Any] = {} if self.max_tries is None else {"max_tries": self.max_tries}
    if self.exact:
      return PathCoupling(**cap)
    return PathRatio(self.sigma, align=self.align, inner_temperature=self.inner_temperature, block=self.block, **cap)

  def build(self, target: Network, draft: Network | None, context: BuildContext) -> Parts:
    """See `Method.build`."""
    sampling = of_continuous(self, context)
    refuse_audit(self, context, "whose continuous tokens have no table of probabilities")
    if self.exact and sampling.stop is None:
      raise ValueError("Must have stop with exact, whose rule needs chains that end with noise, we instead got none")
    draft = need(draft, "a draft network", self.name)
    judge, drafting = head_fns(target, common_prefix=self.block), head_fns(draft)
    for name in ("num_tokens", "token_dim"):
      if (ours := getattr(drafting, name)) != (theirs := getattr(judge, name)):
        raise ValueError(f"Must have a draft with {name} {theirs} as its target, we instead got {ours}")
    rule = self.rule()
    verifier = ContinuousVerifier(sampling.bind(judge), rule)
    drafter = ContinuousModelDrafter(sampling.bind(drafting), rule, window=self.gamma)
    params = SpecParams(sampling.side(draft), sampling.side(target))
    return Parts(params, drafter, verifier, target_prefix=prefix_tokens(self.target_prefix, judge.num_tokens))
