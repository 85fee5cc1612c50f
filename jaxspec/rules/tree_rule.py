"""Acceptance over a tree of deterministic candidates (EAGLE-2, arXiv 2406.16858, section 4.2).

The walk starts at the root and visits the children of a node in order. Candidate x is accepted with its probability under
the remaining distribution of the node. A rejected candidate is removed, the rest is renormalised, and the next child is
tested. The walk continues at the first accepted child. If all children are rejected, the next token is drawn from the
remaining distribution; at a leaf it is drawn from the leaf's distribution. A candidate is a point mass, so every committed
token follows the target's distribution (repeated rejection sampling with a point-mass proposal).

No test depends on another. The probability of accepting a candidate, given that its position was reached and its earlier
siblings were rejected, is ``p(x) / (1 - p(earlier siblings))``. All tests of a tree are therefore made at once, with one
uniform number each, and the path follows from their results. Relaxed rules replace the two functions of a `CandidateRule`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxspec.core import rng, trees
from jaxspec.core.token_axes import at_position
from jaxspec.core.types import Array, Draft, Key, PyTree, Verdict
from jaxspec.sampling import logit_processing
from jaxspec.sampling.residual import usable_weights

# If less mass than this remains, all mass was rejected up to rounding, and the rest is noise.
_MIN_MASS = 1e-12


class Candidates(NamedTuple):
  """All candidates of a tree, with their positions."""

  tokens: Array  # [B, K] int32
  source: Array  # [B, K] int32, index 0 .. K of the target's distribution for each candidate
  earlier: Array  # [B, K, K] bool; (i, j): j is visited before i, as a candidate for the same position


class CandidateRule(NamedTuple):
  """The two functions of an acceptance rule for trees.

  ``accept_prob(tables, candidates, target) -> [B, K]``: the probability of accepting each candidate, given that its position
  was reached and its earlier siblings were rejected; ``target [B, K + 1, V]`` are the processed logits.

  ``remaining(tables, distribution, tokens, rejected) -> [B, V]``: ``distribution [B, V]`` (probabilities of one position)
  after the rejection of the candidates ``tokens [B, K]`` with ``rejected [B, K]``, in the order of their indices; not
  normalised.
  """

  accept_prob: Callable[[PyTree, Candidates, Array], Array]
  remaining: Callable[[PyTree, Array, Array, Array], Array]


def exact_accept_prob(tables: PyTree, candidates: Candidates, target: Array) -> Array:
  """``p(x) / (1 - p(earlier siblings))``, ``[B, K]``; it preserves the target's distribution."""
  p = candidate_probabilities(candidates, target)
  # A copy of a rejected token among the later siblings has probability 0.
  same = candidates.tokens[:, :, None] == candidates.tokens[:, None, :]
  p = jnp.where(jnp.any(candidates.earlier & same, axis=-1), 0.0, p)
  left = 1.0 - jnp.sum(jnp.where(candidates.earlier, p[:, None], 0.0), axis=-1)
  # If only this candidate remains, up to rounding, it is accepted; 0 / 0 is never formed.
  return jnp.where(left > _MIN_MASS, jnp.minimum(p / jnp.maximum(left, _MIN_MASS), 1.0), (p > 0).astype(p.dtype))


def remove_rejected(tables: PyTree, distribution: Array, tokens: Array, rejected: Array) -> Array:
  """Sets the rejected candidates to 0 and changes nothing else; see `CandidateRule`."""
  vocab = distribution.shape[-1]
  row = jnp.arange(distribution.shape[0])[:, None]
  return distribution.at[row, jnp.where(rejected, tokens, vocab)].set(0.0, mode="drop")


EXACT = CandidateRule(exact_accept_prob, remove_rejected)


def candidates_of(draft: Draft) -> Candidates:
  """The candidates of a tree or of a chain."""
  parents = trees.parents_of(draft)
  return Candidates(draft.tokens, parents + 1, trees.earlier_siblings(parents))


def candidate_probabilities(candidates: Candidates, target: Array) -> Array:
  """``[B, K]`` float32: the target's probability of each candidate at its position."""
  row = jnp.arange(target.shape[0])[:, None]
  logits = target[row, candidates.source, candidates.tokens]
  return jnp.exp(logits - jnp.take_along_axis(jax.nn.logsumexp(target, axis=-1), candidates.source, axis=1))


@dataclasses.dataclass(frozen=True)
class TreeRule:
  """Acceptance rule for deterministic candidates; an `AcceptFn` that does not read ``draft.proposal``.

  Attributes:
    rule: the probability of accepting a candidate, and the distribution after rejections.
    max_path: static bound on the length of a path, the number of levels of the trees; deeper nodes are never visited. A
      small bound reduces the cost of moving the cache entries of a path. None is no bound.
  """

  rule: CandidateRule = EXACT
  max_path: int | None = None

  def max_levels(self, draft: Draft) -> int:
    """Largest length of an accepted path."""
    window = draft.tokens.shape[1]
    return window if self.max_path is None or not draft.is_tree else min(self.max_path, window)

  def after(self, draft: Draft, node: Array) -> Array:
    """``[B, K]`` bool: the candidates after one node ``[B]`` of every row; node -1 is the root."""
    parents = trees.parents_of(draft)
    valid = self._valid(trees.depths(trees.ancestors(parents)), draft)
    return (parents == node[:, None]) & valid

  def _valid(self, depth: Array, draft: Draft) -> Array:
    return depth <= jnp.minimum(draft.num_drafted, self.max_levels(draft))[:, None]

  def __call__(self, tables: PyTree, keys: Key, draft: Draft, target: Array) -> Verdict:
    """Tests every candidate and accepts the first path of passed tests; see `jaxspec.core.types.AcceptFn`."""
    rows, window = draft.tokens.shape
    if window == 0:  # plain decoding
      return Verdict.one(jnp.zeros((rows,), jnp.int32), logit_processing.sample(target[:, 0], rng.final_uniform(keys)))
    parents = trees.parents_of(draft)
    reach = trees.ancestors(parents)
    depth = trees.depths(reach)
    valid = self._valid(depth, draft)

    candidates = candidates_of(draft)
    prob = self.rule.accept_prob(tables, candidates, target)
    accepted = (rng.uniforms(keys, window) < prob) & valid
    chosen = accepted & ~jnp.any(candidates.earlier & accepted[:, None], axis=-1)  # the first accepted one of its siblings
    on_path = ~jnp.any(reach & ~chosen[:, None], axis=-1)  # it and all its ancestors are accepted

    num_accepted = jnp.sum(on_path.astype(jnp.int32), axis=1)
    last = jnp.max(jnp.where(on_path, jnp.arange(1, window + 1)[None], 0), axis=1)  # index into target; 0 is the root
    distribution = logit_processing.probabilities(at_position(target, last))  # [B, V]
    rejected = (parents + 1 == last[:, None]) & valid
    left = usable_weights(self.rule.remaining(tables, distribution, draft.tokens, rejected), distribution)
    next_token = logit_processing.inverse_cdf(left, rng.final_uniform(keys))
    path = trees.path_nodes(on_path, depth, self.max_levels(draft)) if draft.is_tree else None
    return Verdict.one(num_accepted, next_token, path=path)


@functools.cache
def tree_rule(rule: CandidateRule = EXACT, *, max_path: int | None = None) -> TreeRule:
  """The `TreeRule` of a candidate rule."""
  return TreeRule(rule, max_path)


# Exact acceptance of deterministic candidates, tree or chain.
lossless_tree = tree_rule()
