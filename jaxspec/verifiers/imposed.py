"""Imposed acceptance: everything of a round is computed, and how many drafts count as accepted is thrown.

What a method gains at a given acceptance can so be measured on networks without trained weights. The tokens mean nothing.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp

from jaxspec import rng, trees
from jaxspec.types import AcceptFn, Array, Draft, Key, PyTree, Verdict


class ImposedTables(NamedTuple):
  """What an `Imposed` rule reads."""

  inner: PyTree  # the arrays that the rule itself reads
  # [] or [D] float32: the probability that a draft at depth 1 .. D is accepted if all before it are. Deeper drafts have
  # that of depth D.
  acceptance: Array


@dataclasses.dataclass(frozen=True)
class Imposed:
  """An acceptance rule whose answer is replaced; an `AcceptFn`.

  The rule runs, and the next token is the one that it draws. The number of accepted drafts has the distribution of
  `ImposedTables.acceptance`, independent of all distributions. Of a tree the first children are accepted.

  Attributes:
    rule: the rule that runs.
  """

  rule: AcceptFn

  def __call__(self, tables: ImposedTables, keys: Key, draft: Draft, target: Array) -> Verdict:
    """Judges a draft; see `AcceptFn`."""
    verdict = self.rule(tables.inner, keys, draft, target)
    window = draft.tokens.shape[1]
    if window == 0:
      return verdict
    at_depth = jnp.broadcast_to(tables.acceptance, (window,)) if tables.acceptance.ndim == 0 else tables.acceptance
    at_depth = at_depth[jnp.minimum(jnp.arange(window), at_depth.shape[0] - 1)]
    accepted = rng.uniforms(rng.imposed_keys(keys), window) < at_depth[None]
    num_accepted = jnp.sum(jnp.cumprod(accepted.astype(jnp.int32), axis=1), axis=1)
    most = draft.num_drafted
    if verdict.path is None:
      return verdict._replace(num_accepted=jnp.minimum(num_accepted, most))
    first, depth = _first_children(draft)
    num_accepted = jnp.minimum(num_accepted, jnp.minimum(most, jnp.max(jnp.where(first, depth, 0), axis=1)))
    num_accepted = jnp.minimum(num_accepted, verdict.path.shape[1])
    on_path = first & (depth <= num_accepted[:, None])
    return verdict._replace(num_accepted=num_accepted, path=trees.path_nodes(on_path, depth, verdict.path.shape[1]))


def _first_children(draft: Draft) -> tuple[Array, Array]:
  """The path ``[B, K]`` bool that always continues at the first child, and the depths of all nodes."""
  parents = trees.parents_of(draft)
  reach = trees.ancestors(parents)
  is_first = ~jnp.any(trees.earlier_siblings(parents), axis=-1)
  return ~jnp.any(reach & ~is_first[:, None], axis=-1), trees.depths(reach)
