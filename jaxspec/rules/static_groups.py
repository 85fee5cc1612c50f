"""Groups fixed in advance: the negative baseline of GSD (So et al. 2025, arXiv 2508.07747, "static clustering").

Tokens are partitioned once by the distance of their embeddings. A draft x in group C is accepted with probability
``min(1, p(C) / q(C))``; after a rejection the token is drawn from ``[p - q]+``. With group masses p' and q' the acceptance
is alpha = 1 - TV(p', q'), which is never below the lossless 1 - TV(p, q). The bias obeys
``TV(p, q) - TV(p', q') <= TV(phat, p) <= TV(p, q)``. As published, a token outside the target's support may be accepted
because of its group.
"""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp

from jaxspec.core.types import Array
from jaxspec.rules.chain_rule import ChainRule, ratio


@dataclasses.dataclass(frozen=True)
class StaticGroupsRule(ChainRule):
  """Grouped acceptance for a partition; ``tables`` is the group ``[V]`` int32 of every token, below V."""

  def accept_prob(self, tables: Array, tokens: Array, p: Array, q: Array) -> Array:
    """See `ChainRule.accept_prob`."""
    groups = tables.reshape((1,) * tokens.ndim + (-1,))
    same = groups == tables[tokens][..., None]  # [..., V]
    mass = lambda distribution: jnp.sum(jnp.where(same, distribution, 0.0), axis=-1)
    return ratio(mass(p), mass(q))

  def accept_all(self, tables: Array, p: Array, q: Array) -> Array:
    """See `ChainRule.accept_all`."""
    mass = lambda distribution: jnp.zeros_like(distribution).at[..., tables].add(distribution)[..., tables]
    return ratio(mass(p), mass(q))
