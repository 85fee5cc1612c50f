"""Block verification: the drafts of a chain are tested together (Sun et al. 2024, arXiv 2403.10444, Algorithm 2).

With p_i of `jaxspec.sampling.block_acceptance` and ``m_i = sum_x [p_i p(x) - q(x)]+`` of the position after i drafts:

  h_i = m_i / (m_i + 1 - p_i),  h_n = p_n for the n-th and last draft.

The largest i with ``u_i < h_i`` is the number of accepted drafts; the next token follows the normalised ``[p_i p - q]+``, or
p after full acceptance. By induction from the last draft, at least i drafts are accepted with probability p_i given the
first i. The position after them then has the mass ``min(p_i p, q) + [p_i p - q]+ = p_i p``, so every committed token follows
p. No exact test of a chain accepts more drafts in the mean (the paper, Theorem 2). The lossless rule tests a single draft in
the same way.

The induction needs the distribution of each draft given the drafts before it, and no more. It therefore holds for Jacobi
windows too, whose later proposals depend on older drafts. Drafts that the next window reuses follow another distribution
after this rule (`jaxspec.drafters.jacobi_drafter`).
"""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp

from jaxspec.core import rng
from jaxspec.core.token_axes import at_position
from jaxspec.core.types import Array, Draft, Key, PyTree, Verdict
from jaxspec.rules.chain_rule import commit_leading
from jaxspec.rules.dense_view import DenseView
from jaxspec.sampling import logit_processing
from jaxspec.sampling.block_acceptance import block_acceptance
from jaxspec.sampling.residual import usable_weights

# Below this, all drafts before are accepted up to rounding and the position has no residual.
_MIN_MASS = 1e-12


@dataclasses.dataclass(frozen=True)
class BlockRule:
  """Accepts the drafts of a chain together; exact. An `AcceptFn` for proposals with logits."""

  def stop_prob(self, draft: Draft, target: Array) -> Array:
    """``h [B, K + 1]``: the probability of accepting exactly i drafts, given the first i and that no more are accepted.

    It is 0 after ``num_drafted``. Arguments as in `__call__`.
    """
    reach = block_acceptance(draft, target)
    p, q = logit_processing.probabilities(target[:, :-1]), logit_processing.probabilities(draft.proposal)
    mass = jnp.sum(jnp.maximum(reach[:, :-1, None] * p - q, 0.0), axis=-1)  # [B, K]
    left = mass + 1.0 - reach[:, :-1]
    inner = jnp.where(left > _MIN_MASS, mass / jnp.maximum(left, _MIN_MASS), 1.0)
    index, last = jnp.arange(reach.shape[1])[None], draft.num_drafted[:, None]
    found = jnp.where(index == last, reach, jnp.pad(inner, ((0, 0), (0, 1))))
    return jnp.where(index <= last, found, 0.0)

  def __call__(self, tables: PyTree, keys: Key, draft: Draft, target: Array) -> Verdict:
    """Judges a chain; see `AcceptFn`. ``tables`` is not read."""
    window = draft.tokens.shape[1]
    if window == 0:
      return commit_leading(keys, draft, target, accept_prob=jnp.zeros(draft.tokens.shape))
    stops = rng.uniforms(keys, window) < self.stop_prob(draft, target)[:, 1:]
    num_accepted = jnp.max(jnp.where(stops, jnp.arange(1, window + 1)[None], 0), axis=1)  # [B]

    reach = at_position(block_acceptance(draft, target), num_accepted)[:, None]
    p = logit_processing.probabilities(at_position(target, num_accepted))  # [B, V]
    q = logit_processing.probabilities(at_position(draft.proposal, jnp.minimum(num_accepted, window - 1)))
    weights = usable_weights(jnp.maximum(reach * p - q, 0.0), p)
    rejected = (num_accepted < draft.num_drafted)[:, None]
    next_token = logit_processing.inverse_cdf(jnp.where(rejected, weights, p), rng.final_uniform(keys))
    return Verdict.one(num_accepted, next_token)


# The rule is used like a function: jaxspec.TargetVerifier(fns, block, warp=warp).
block = BlockRule()

# For drafts whose proposal is a `SparseDistribution`.
block_sparse = DenseView(block)
