"""Exact acceptance over a tree of sampled candidates (recursive rejection without replacement, arXiv 2402.14160).

The candidates x_1, x_2, ... of a position are drawn from one row q without replacement. With p_1 = p and q_1 = q, candidate
k is accepted with probability ``min(1, p_k(x_k) / q_k(x_k))``. After its rejection

  p_{k+1} = norm([p_k - q_k]+),  q_{k+1} = norm(q_k without x_k),

and after all rejections the token follows the last p. Each candidate follows the q that it is tested with, so the token
follows p. `jaxspec.rules.tree_rule` is for certain candidates, which have no q.

The nodes begin with a chain, the main drafts. Their siblings are at the first ``depth`` levels, and only main drafts follow
there. So the walk visits these levels one by one, and the main drafts behind them are tested as a chain.
"""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp

from jaxspec.core import rng
from jaxspec.core.token_axes import at_position, num_leading
from jaxspec.core.types import Array, Draft, Key, PyTree, Verdict
from jaxspec.rules.chain_rule import commit_leading
from jaxspec.sampling.logit_processing import inverse_cdf, probabilities
from jaxspec.sampling.residual import at, log_ratio, lossless_weights, usable_weights

_TINY = 1e-30


@dataclasses.dataclass(frozen=True)
class SampledTreeRule:
  """Accepts a path of sampled candidates; exact. An `AcceptFn` for trees with logits ``[B, L, V]`` by level as proposal.

  Attributes:
    branch: most candidates of a position.
    depth: levels with siblings.
  """

  branch: int
  depth: int

  def __call__(self, tables: PyTree, keys: Key, draft: Draft, target: Array) -> Verdict:
    """Judges a tree; see `AcceptFn`. ``tables`` is not read."""
    if not draft.is_tree:  # the target draws alone
      return commit_leading(keys, draft, target, accept_prob=jnp.zeros(draft.tokens.shape))
    rows, levels = draft.tokens.shape[0], draft.proposal.shape[1]
    tests = rng.uniforms(keys, draft.tokens.shape[1])  # of all nodes
    node, walks = jnp.full((rows,), -1, jnp.int32), jnp.ones((rows,), bool)
    weights, path = jnp.zeros_like(target[:, 0]), []
    for level in range(self.depth):
      chosen, left = self._candidates(draft, target, tests, node, level)
      weights = jnp.where(walks[:, None], left, weights)
      walks = walks & (chosen >= 0)
      node = jnp.where(walks, chosen, node)
      path.append(jnp.where(walks, chosen, -1))
    walked = jnp.stack(path, axis=1)  # [B, depth]
    num_walked = jnp.sum(walked >= 0, axis=1, dtype=jnp.int32)

    # A path of main drafts goes on; siblings of the last level are leaves.
    on_main = walks & (node == self.depth - 1)
    behind = slice(self.depth, levels)
    passed = jnp.exp(jnp.minimum(log_ratio(draft.tokens[:, behind], target[:, behind], draft.proposal[:, behind]), 0.0))
    passed = (tests[:, behind] < passed) & (jnp.arange(levels)[None, behind] < draft.num_drafted[:, None])
    num_accepted = num_walked + jnp.where(on_main, num_leading(passed), 0)

    p = probabilities(at_position(target, jnp.where(on_main, num_accepted, node + 1)))  # [B, V]
    q = probabilities(at_position(draft.proposal, jnp.minimum(num_accepted, levels - 1)))
    rejected = on_main & (num_accepted < draft.num_drafted)
    after_walk = jnp.where(rejected[:, None], usable_weights(lossless_weights(None, p, q), p), p)
    weights = jnp.where(walks[:, None], after_walk, weights)
    rest = jnp.broadcast_to(jnp.arange(self.depth, levels, dtype=jnp.int32)[None], (rows, levels - self.depth))
    nodes = jnp.concatenate([jnp.maximum(walked, 0), rest], axis=1)
    return Verdict.one(num_accepted, inverse_cdf(weights, rng.final_uniform(keys)), path=nodes)

  def _candidates(self, draft: Draft, target: Array, tests: Array, node: Array, level: int) -> tuple[Array, Array]:
    """Tests the children of one node ``[B]``.

    Returns:
      The accepted child ``[B]``, or -1; and the distribution ``[B, V]`` of the token after the rejection of all.
    """
    here = (draft.parents == node[:, None]) & (level < draft.num_drafted)[:, None]  # [B, nodes]
    order = jnp.cumsum(here.astype(jnp.int32), axis=1)
    p, q = probabilities(at_position(target, node + 1)), probabilities(draft.proposal[:, level])
    chosen, row = jnp.full(node.shape, -1, jnp.int32), jnp.arange(node.shape[0])
    for number in range(1, self.branch + 1):
      is_next = here & (order == number)
      child = jnp.argmax(is_next, axis=1).astype(jnp.int32)
      token = at_position(draft.tokens, child)
      # A copy of an earlier candidate stands for none: its probability is 0 by now.
      tested = jnp.any(is_next, axis=1) & (chosen < 0) & (at(q, token) > 0)
      accepted = tested & (at_position(tests, child) * at(q, token) < at(p, token))
      rejected = (tested & ~accepted)[:, None]
      chosen = jnp.where(accepted, child, chosen)
      p = jnp.where(rejected, _normalised(usable_weights(lossless_weights(None, p, q), p)), p)
      q = jnp.where(rejected, _normalised(q.at[row, token].set(0.0)), q)
    return chosen, p


def _normalised(weights: Array) -> Array:
  return weights / jnp.maximum(jnp.sum(weights, axis=-1, keepdims=True), _TINY)
