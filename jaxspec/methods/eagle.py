"""EAGLE: a one-layer network continues the target's features and drafts trees or chains."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from jaxspec.core.types import AcceptFn, Drafter, ModelFns, PyTree
from jaxspec.drafters.eagle_chain import EagleChainDrafter
from jaxspec.drafters.eagle_tree import EagleTreeDrafter
from jaxspec.methods.common import Neighbours, check_chain
from jaxspec.methods.feature_methods import FeatureChain, OnFeatures
from jaxspec.methods.method import BuildContext, DraftingMethod, option
from jaxspec.rules.lantern_tree import lantern_tree
from jaxspec.rules.tree_rule import tree_rule

FAMILY = "eagle"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Eagle(OnFeatures, DraftingMethod):
  """Speculative decoding with EAGLE-2 trees; exact.

  Each round grows a tree of the likeliest continuations. The target scores all nodes in one pass. Candidates of a position
  are tested in turn: candidate x is accepted with its probability under the target's distribution without the rejected
  candidates. EAGLE-2 takes 60 nodes, 10 branches and 5 passes for language models of billions of weights; for small targets
  a pass over many nodes is relatively more expensive (with 15, the target reads 16 tokens).
  """

  tree_size: int = option(15, "Tokens of a draft tree.", ge=1)
  tree_top_k: int = option(4, "Branches of a node of a draft tree, and width of its beams.", ge=1)
  tree_depth: int = option(3, "Draft passes that grow a tree; it has one more level.", ge=1)

  draft_family: ClassVar[str | None] = FAMILY
  name: ClassVar[str] = "eagle"
  title: ClassVar[str] = "speculative decoding with trees"
  source: ClassVar[str] = "Li et al. 2024, arXiv 2406.16858 (EAGLE-2), section 4"
  exact: ClassVar[bool] = True

  def check(self) -> None:
    """See `Method.check`."""
    if self.tree_size > (candidates := self.tree_top_k + self.tree_depth * self.tree_top_k**2):
      raise ValueError(
        f"Must have tree_size of at most the {candidates} candidates of a round (raise tree_top_k or tree_depth), "
        f"we instead got {self.tree_size}"
      )

  def drafts_per_round(self) -> int:
    """The nodes of a tree."""
    return self.tree_size

  def longest_path(self) -> int:
    """The levels of a tree."""
    return min(self.tree_depth + 1, self.tree_size)

  def inputs_per_draft_call(self) -> int:
    """The beam."""
    return self.tree_top_k

  def check_length(self, num_tokens: int) -> None:
    """See `Method.check_length`."""
    check_chain("tree_depth", self.tree_depth, num_tokens, whole=True)

  def drafter(self, fns: ModelFns, context: BuildContext) -> Drafter:
    """The drafter of a head."""
    sizes = dict(total=self.tree_size, top_k=self.tree_top_k, depth=self.tree_depth)
    return EagleTreeDrafter(fns, **sizes, warp=context.warp())

  def rule(self, context: BuildContext) -> tuple[AcceptFn, PyTree]:
    """The acceptance rule of trees and its arrays."""
    return tree_rule(max_path=self.tree_depth + 1), ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class EagleChain(FeatureChain):
  """Speculative decoding with a chain that an EAGLE head samples; exact.

  A sampled chain is faster where a target pass over a tree costs much more than one over a few tokens: a token is accepted
  with the probability mass that the two distributions share. With ``verify="block"`` the drafts of a round are tested
  together (Sun et al. 2024, arXiv 2403.10444).
  """

  draft_family: ClassVar[str | None] = FAMILY
  name: ClassVar[str] = "eagle-chain"
  title: ClassVar[str] = "speculative decoding with drafted features"
  source: ClassVar[str] = "Li et al. 2024, arXiv 2401.15077 (EAGLE), section 3"
  exact: ClassVar[bool] = True

  def drafter(self, fns: ModelFns, context: BuildContext) -> Drafter:
    """The drafter of a head."""
    return EagleChainDrafter(fns, window=self.drafts_per_round(), warp=context.warp())


@dataclasses.dataclass(frozen=True, kw_only=True)
class EagleLantern(Neighbours, Eagle):
  """EAGLE-2 trees, relaxed by LANTERN++; lossy.

  Each candidate may borrow the probability of its nearest codes before it is tested (see `jaxspec.methods.Lantern`). Trees
  need a temperature above 0.
  """

  name: ClassVar[str] = "eagle-lantern"
  title: ClassVar[str] = "speculative decoding with trees, relaxed by LANTERN++"
  source: ClassVar[str] = "Jang et al. 2025, arXiv 2410.03355, section 4, with the bound of arXiv 2502.06352"
  exact: ClassVar[bool] = False

  def rule(self, context: BuildContext) -> tuple[AcceptFn, PyTree]:
    """See `Eagle.rule`."""
    if context.sampling.temperature == 0:
      raise ValueError("Must have a temperature above 0 for relaxed trees, we instead got 0: chains alone are greedy")
    relaxed, table = self.lantern(context)
    return tree_rule(lantern_tree(relaxed), max_path=self.tree_depth + 1), table
