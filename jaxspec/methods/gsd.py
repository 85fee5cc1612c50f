"""Grouped speculative decoding: a draft is judged by the mass of a group of similar tokens."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp

from jaxspec.core.types import AcceptFn, Array, PyTree
from jaxspec.methods.common import code_vectors
from jaxspec.methods.method import BuildContext, need, option
from jaxspec.methods.sjd import JacobiMethod
from jaxspec.rules import gsd_rule
from jaxspec.rules.distances import cluster_table, distance_table
from jaxspec.rules.static_groups import StaticGroupsRule

VARIANTS = ("max", "published", "released", "static")
DISTANCES = ("codebook", "embedding")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gsd(JacobiMethod):
  """Grouped speculative decoding on Jacobi windows; lossy. **The default is not the published method**; `published` is.

  The group C of a draft x are the tokens next to x in the order of p whose probability differs by less than ``max_gap`` and
  whose embedding is nearer than ``max_distance``. The draft is accepted with probability ``a = min(1, p(C) / q(C))``; after
  a rejection a token of ``[p - q]+`` is drawn.

  The variants of the rule (``variant``):

  * ``max``: accepts with ``max(a, min(1, p(x) / q(x)))``. Groups of different tokens overlap, so that ``a`` may fall below
    the exact rule; the maximum never does, and has the least bias that its acceptance allows.
  * ``published``: accepts with ``a`` (Algorithm 2 of the supplement). Unspecified details are chosen without bias from ids:
    windows are cut at both ends of the order, only tokens with p > 0 enter a group, x with p(x) = 0 is rejected.
  * ``released``: the edge cases of the released code (junhyukso/GSD 4216c7c) besides: near the bottom of the order x
    stands alone, removed tokens enter groups, and x with p(x) = 0 may be accepted.
  * ``static``: the paper's negative baseline. Groups are fixed: k-means clusters the embeddings into V / ``group_size``
    groups. ``max_gap`` and ``max_distance`` are not read.

  Two more defaults differ from the publication. Distances are squared distances of codebook rows of unit length; the paper
  and its code take the target's input embeddings (``distance="embedding"``), so thresholds do not carry over. Windows are
  ``coupled``; the code draws fresh ones. (Line 9 of the printed algorithm keeps old drafts under new distributions, which no
  variant does: it biases the exact method, too.) The sizes 14, 0.15 and 0.5 are the released code's; the paper's tables have
  groups of 3 to 50 and do not print the other two.
  """

  group_size: int = option(14, "Tokens of a group at most (G of GSD).", ge=1)
  max_gap: float = option(0.15, "Largest difference of probabilities in a group (delta).", ge=0, infinite=True)
  max_distance: float = option(0.5, "Largest squared distance in a group (d).", ge=0, infinite=True)
  distance: str = option("codebook", "Vectors of that distance: rows of the codebook, or embeddings.", choices=DISTANCES)
  variant: str = option(
    "max", "Acceptance of a group: our maximum with the exact test, as published, or of fixed groups.", choices=VARIANTS
  )

  name: ClassVar[str] = "gsd"
  title: ClassVar[str] = "grouped speculative decoding"
  source: ClassVar[str] = (
    "So et al. 2025, arXiv 2508.07747, supplement, Algorithm 2 (Algorithm 3 of the arXiv version); variant max is ours"
  )

  @classmethod
  def published(cls, **options: Any) -> Self:
    """The published method: its rule, distances of the target's input embeddings, fresh drafts; ``options`` override that.

    Uniform initial drafts count as certain, as in the code of the underlying method (`Sjd.published`).
    """
    settings: dict[str, Any] = {"variant": "published", "distance": "embedding", "recycle": "fresh"}
    settings |= {"initial": "uniform", "point_mass": True}
    return cls(**(settings | options))

  @classmethod
  def released(cls, **options: Any) -> Self:
    """The released code (junhyukso/GSD 4216c7c) with its edge cases; ``options`` override that.

    Not reproduced: the arbitrary order of removed tokens, tables in bfloat16, and the distance filter, which is off for
    groups with ids above 10000.
    """
    return cls.published(**({"variant": "released"} | options))

  def rule(self, context: BuildContext) -> tuple[AcceptFn, PyTree]:
    """See `JacobiMethod.rule`; the table is ``[V, V]``, of fixed groups ``[V]``."""
    if self.variant == "static":
      vectors = self._vectors(context)
      return StaticGroupsRule(), cluster_table(vectors, max(vectors.shape[0] // self.group_size, 1), jax.random.key(0))
    sizes = (self.group_size, self.max_gap, self.max_distance)
    if self.variant == "released":
      rule = gsd_rule.gsd_released(*sizes)
    else:
      rule = gsd_rule.GsdRule(*sizes, max_rule=self.variant == "max")
    return rule, distance_table(self._vectors(context), source=self.distance)

  def _vectors(self, context: BuildContext) -> Array:
    """Embeddings ``[V, D]`` of the distances."""
    if self.distance == "embedding":
      return need(context.space.embedding, "a target with input embeddings", self.name)()
    vectors = code_vectors(self, context)
    if not context.space.unit_codes:
      return vectors
    return vectors / jnp.maximum(jnp.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
