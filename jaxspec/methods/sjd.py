"""Jacobi decoding: the target's own previous pass drafts the next one, so no draft network is needed."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Self

from jaxspec.core.network import Network
from jaxspec.core.state import SpecParams
from jaxspec.core.types import AcceptFn, Drafter, PyTree
from jaxspec.drafters.jacobi_drafter import RECYCLING, JacobiDrafter
from jaxspec.drafters.jacobi_tree import JacobiTreeDrafter, num_nodes
from jaxspec.drafters.window_init import SOURCES, WindowInit
from jaxspec.methods.auto_length import AUTO, WIDTHS, Table, adaptive, check_auto, round_times_option, table_of
from jaxspec.methods.common import ExactTest, check_chain, of_ids, refuse_audit, target_side
from jaxspec.methods.method import BuildContext, Method, Parts, need, option
from jaxspec.rules.lossless import lossless
from jaxspec.rules.sampled_tree_rule import SampledTreeRule
from jaxspec.verifiers.target import target_logits

INITIAL = ("auto", *SOURCES)

# Inputs of a pass grow with ``branch ** depth``.
MOST_NODES = 1024
_MOST_DEPTH = 9  # of two candidates


@dataclasses.dataclass(frozen=True, kw_only=True)
class JacobiMethod(Method):
  """Base of the methods that draft with Jacobi windows."""

  window: int | str = option(
    15,
    "Drafts per pass of Jacobi decoding (published windows of 16 tokens hold 15); auto: chosen.",
    ge=1,
    words=(AUTO,),
  )
  round_times: tuple[str, ...] | None = round_times_option()
  recycle: str = option("coupled", "How a Jacobi window uses its last pass (fresh is as published).", choices=RECYCLING)
  initial: str = option(
    "auto", "Where new positions of a Jacobi window copy from; auto: above, and uniform without a grid.", choices=INITIAL
  )
  point_mass: bool = option(False, "Call uniform initial drafts certain, as the released Jacobi code does.")

  def check(self) -> None:
    """See `Method.check`."""
    check_auto("window", self.window, self.round_times)

  @property
  def table(self) -> Table | None:
    """Lengths and times of rounds with window auto, else None."""
    return table_of(self.round_times, WIDTHS) if self.window == AUTO else None

  def longest_path(self) -> int:
    """The longest window."""
    return int(self.window) if self.table is None else self.table.widths[-1]

  def drafts_per_round(self) -> int:
    """The longest window."""
    return self.longest_path()

  def check_length(self, num_tokens: int) -> None:
    """See `Method.check_length`."""
    check_chain("window", self.longest_path(), num_tokens, whole=True)

  def initial_source(self, grid: tuple[int, int] | None) -> str:
    """Where new positions copy from, one of `SOURCES`, for tokens of this grid."""
    if self.initial != "auto":
      return self.initial
    return "uniform" if grid is None else "above"

  def drafter(self, context: BuildContext) -> Drafter:
    """The drafter; errors as in `window_drafter`."""
    return self.window_drafter(context)

  def window_drafter(self, context: BuildContext) -> JacobiDrafter:
    """The drafter of a window, a chain.

    Raises:
      ValueError: without a vocabulary, or without a grid if initial drafts read a neighbour.
    """
    vocab_size = need(context.space.vocab_size, "vocab_size", self.name)
    source, columns = self.initial_source(context.space.grid), 1
    if source != "uniform":
      columns = need(context.space.grid, f"a grid (for initial drafts from {source})", self.name)[1]
    initial = WindowInit(source, "sample", self.point_mass)
    return JacobiDrafter(
      window=self.longest_path(),
      vocab_size=vocab_size,
      grid=columns,
      initial=initial,
      recycle=self.recycle,
      legal=context.space.legal,
    )

  def rule(self, context: BuildContext) -> tuple[AcceptFn, PyTree]:
    """The acceptance rule and its arrays."""
    return lossless, ()

  def build(self, target: Network, draft: Network | None, context: BuildContext) -> Parts:
    """See `Method.build`; ``draft`` is not read."""
    of_ids(self, context)
    drafter = self.drafter(context)
    rule, tables = self.rule(context)
    side, verifier = target_side(target, rule, context, tables=tables, feedback_fn=target_logits)
    parts = Parts(SpecParams((), side), drafter, verifier)
    return parts if self.table is None else adaptive(parts, self.table)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sjd(ExactTest, JacobiMethod):
  """Speculative Jacobi decoding; exact.

  A pass over ``[last, window]`` judges the window and gives distributions after the rejected position, from which the next
  window is drawn. The published method draws independently (``recycle="fresh"``). The default here is a maximal coupling
  with the old drafts: tokens have the same distribution, with fewer passes. ``gumbel`` draws with one noise in all passes.

  With ``branch`` above 1 the first ``depth`` positions have several candidates each, which are tested one after the other.
  With ``verify="block"`` a window is tested together (Sun et al. 2024, arXiv 2403.10444); coupled drafts then correct their
  old distribution (`jaxspec.drafters.jacobi_drafter`).
  """

  branch: int = option(1, "Candidates of each of the first positions of a window.", ge=1, le=MOST_NODES)
  depth: int = option(2, "Positions that have several candidates, with branch above 1.", ge=1, le=_MOST_DEPTH)

  name: ClassVar[str] = "sjd"
  title: ClassVar[str] = "speculative Jacobi decoding"
  source: ClassVar[str] = "Teng et al. 2024, arXiv 2410.01699, section 4"
  exact: ClassVar[bool] = True

  def check(self) -> None:
    """See `Method.check`."""
    if self.verify == "block" and self.recycle == "gumbel":
      raise ValueError("Must have recycle fresh or coupled with verify block, we instead got gumbel: not exact")
    super().check()
    if self.branch == 1:
      return
    if self.window == AUTO:
      raise ValueError(f"Must have branch 1 with window auto, we instead got {self.branch}")
    if self.verify == "block":
      raise ValueError(f"Must have branch 1 with verify block, which judges chains, we instead got {self.branch}")
    if self.depth > self.longest_path():
      raise ValueError(f"Must have a depth of at most the window of {self.window}, we instead got {self.depth}")
    if (nodes := self.drafts_per_round()) > MOST_NODES:
      raise ValueError(f"Must have at most {MOST_NODES} drafts in a window (branch, depth), we instead got {nodes}")

  def drafts_per_round(self) -> int:
    """The window, with the siblings of its first positions."""
    return num_nodes(self.longest_path(), self.branch, self.depth)

  def drafter(self, context: BuildContext) -> Drafter:
    """See `JacobiMethod.drafter`."""
    main = dataclasses.replace(self.window_drafter(context), block=self.verify == "block")
    return main if self.branch == 1 else JacobiTreeDrafter(main, self.branch, self.depth)

  def rule(self, context: BuildContext) -> tuple[AcceptFn, PyTree]:
    """See `ExactTest.rule`; windows with branches have a rule of their own."""
    if self.branch == 1:
      return super().rule(context)
    refuse_audit(self, context, "whose branches are sampled")
    return SampledTreeRule(self.branch, self.depth), ()

  @classmethod
  def published(cls, **options: Any) -> Self:
    """The published method: fresh drafts, and uniform initial drafts as point masses; ``options`` override that."""
    settings: dict[str, Any] = {"recycle": "fresh", "initial": "uniform", "point_mass": True}
    return cls(**(settings | options))
