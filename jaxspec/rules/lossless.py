"""Lossless acceptance of a chain of drafts (Leviathan et al. 2023, arXiv 2211.17192, Algorithm 1).

For draft i with proposal q_i and target p_i: accept x_i with probability min(1, p_i(x_i) / q_i(x_i)). At the first
rejection draw y ~ norm([p - q]+) of that position; after full acceptance draw a bonus y ~ p of the next position. Every
committed token then follows p, for any q.

`jaxspec.rules.chain_rule.commit_leading` tests the drafts in order and draws y, by the weights of
`jaxspec.sampling.residual`.
"""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp

from jaxspec.core.types import Array, Draft, Key, PyTree, Verdict
from jaxspec.rules.chain_rule import ChainRule, commit_leading, ratio
from jaxspec.sampling.residual import at, log_ratio

__all__ = ["Lossless", "commit_leading", "lossless"]


@dataclasses.dataclass(frozen=True)
class Lossless(ChainRule):
  """Accepts each draft with probability min(1, p / q); draws from the residual ``[p - q]+`` after a rejection."""

  @property
  def never_below_lossless(self) -> bool:
    """See `ChainRule`."""
    return True

  def accept_prob(self, tables: PyTree, tokens: Array, p: Array, q: Array) -> Array:
    """See `ChainRule.accept_prob`."""
    return ratio(at(p, tokens), at(q, tokens))

  def accept_all(self, tables: PyTree, p: Array, q: Array) -> Array:
    """See `ChainRule.accept_all`."""
    return ratio(p, q)

  def __call__(self, tables: PyTree, keys: Key, draft: Draft, target: Array) -> Verdict:
    """Judges a chain; see `AcceptFn`. ``tables`` is not read."""
    if draft.tokens.shape[1] == 0:
      return commit_leading(keys, draft, target, accept_prob=jnp.zeros(draft.tokens.shape))
    ratio_of_drafts = jnp.exp(jnp.minimum(log_ratio(draft.tokens, target[:, :-1], draft.proposal), 0.0))
    return commit_leading(keys, draft, target, accept_prob=ratio_of_drafts)


# The rule is used like a function: jaxspec.TargetVerifier(fns, jaxspec.lossless, warp=warp).
lossless = Lossless()
