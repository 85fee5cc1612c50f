"""Speculative decoding: a small network drafts a chain, the target accepts or rejects it in one pass."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from jaxspec.core.network import Network
from jaxspec.core.state import SpecParams
from jaxspec.core.types import AcceptFn, Drafter, ModelFns, PyTree
from jaxspec.drafters.small_model import SmallModelDrafter
from jaxspec.methods.auto_length import AUTO, WIDTHS, Table, adaptive, check_auto, round_times_option, table_of
from jaxspec.methods.common import Bonus, ExactTest, check_chain, draft_side, of_ids, target_side
from jaxspec.methods.method import SAME_FAMILY, BuildContext, DraftingMethod, Parts, option
from jaxspec.rules.lossless import lossless


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChainMethod(DraftingMethod):
  """Base of the methods with a draft network that samples a chain of ``gamma`` tokens."""

  gamma: int | str = option(4, "Tokens drafted per round; auto: chosen before each round.", ge=1, words=(AUTO,))
  round_times: tuple[str, ...] | None = round_times_option()

  draft_family: ClassVar[str | None] = SAME_FAMILY

  def check(self) -> None:
    """See `Method.check`."""
    check_auto("gamma", self.gamma, self.round_times)

  @property
  def table(self) -> Table | None:
    """Lengths and times of rounds with gamma auto, else None."""
    return table_of(self.round_times, WIDTHS) if self.gamma == AUTO else None

  def drafts_per_round(self) -> int:
    """The longest chain."""
    return int(self.gamma) if self.table is None else self.table.widths[-1]

  def check_length(self, num_tokens: int) -> None:
    """See `Method.check_length`."""
    check_chain("gamma", self.drafts_per_round(), num_tokens)

  def drafter(self, fns: ModelFns, context: BuildContext) -> Drafter:
    """The drafter of a network."""
    return SmallModelDrafter(fns, window=self.drafts_per_round(), warp=context.warp())

  def rule(self, context: BuildContext) -> tuple[AcceptFn, PyTree]:
    """The acceptance rule and its arrays."""
    return lossless, ()

  def draws_bonus(self) -> bool:
    """Whether the target also draws a token after full acceptance."""
    return True

  def build(self, target: Network, draft: Network | None, context: BuildContext) -> Parts:
    """See `Method.build`."""
    of_ids(self, context)
    fns, drafting = draft_side(self, draft, context)
    rule, tables = self.rule(context)
    side, verifier = target_side(target, rule, context, tables=tables, bonus=self.draws_bonus())
    parts = Parts(SpecParams(drafting, side), self.drafter(fns, context), verifier)
    return parts if self.table is None else adaptive(parts, self.table)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Speculative(ExactTest, Bonus, ChainMethod):
  """Speculative decoding with a small network of the target's family; exact for every draft.

  Each draft x is accepted with probability ``min(1, p(x) / q(x))``; a rejected one is replaced by a token of
  ``[p - q]+``. With ``verify="block"`` the drafts of a round are tested together (Sun et al. 2024, arXiv 2403.10444).
  """

  name: ClassVar[str] = "speculative"
  title: ClassVar[str] = "speculative decoding"
  source: ClassVar[str] = "Leviathan et al. 2023, arXiv 2211.17192, Algorithm 1"
  exact: ClassVar[bool] = True
