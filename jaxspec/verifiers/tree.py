"""Acceptance over a tree of deterministic candidates (EAGLE-2, arXiv 2406.16858, section 4.2).

From the root: visit the children of a node in order; keep candidate x with its probability under what is left of the
node's law, else remove it, renormalise and go to the next; descend into the first child that is kept. When all children
are refused the next token is drawn from what is left; at a leaf it is drawn from the leaf's law. A candidate is a point
mass, so every committed token follows the target's law (rejection sampling with a point-mass proposal, repeated).

No step here depends on an earlier one. The probability of keeping a candidate, given that its place was reached and its
earlier siblings were refused, is ``p(x) / (1 - p(earlier siblings))``: all tests of a tree are made at once, with one
uniform each, and the path is read off the answers. Relaxed rules exchange the two functions of a `CandidateRule`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxspec import rng, trees
from jaxspec.models import sampling
from jaxspec.types import Array, Draft, Key, PyTree, Verdict
from jaxspec.verifiers.chain import usable_weights

# Below this mass everything was refused up to rounding, and what is left is noise.
_MIN_MASS = 1e-12


class Candidates(NamedTuple):
  """All candidates of a tree, with what a rule needs to know about their places."""

  tokens: Array  # [B, K] int32
  source: Array  # [B, K] int32, the row of the target's laws that each candidate is tested against
  earlier: Array  # [B, K, K] bool; (i, j): j is visited before i, as a candidate for the same place


class CandidateRule(NamedTuple):
  """What a rule for trees decides.

  ``accept_prob(tables, candidates, target) -> [B, K]``: the probability of keeping each candidate, given that its place
  was reached and its earlier siblings were refused; ``target [B, K + 1, V]`` are the processed logits.

  ``remaining(tables, law, tokens, refused) -> [B, V]``: what is left of ``law [B, V]`` (probabilities of one place), not
  normalised, when the candidates ``tokens [B, K]`` with ``refused [B, K]`` were refused there in order of index.
  """

  accept_prob: Callable[[PyTree, Candidates, Array], Array]
  remaining: Callable[[PyTree, Array, Array, Array], Array]


def exact_accept_prob(tables: PyTree, candidates: Candidates, target: Array) -> Array:
  """``p(x) / (1 - p(earlier siblings))``, which keeps the target's law."""
  p = candidate_probabilities(candidates, target)
  # A token that was refused is gone: its copy among the later siblings has nothing left.
  same = candidates.tokens[:, :, None] == candidates.tokens[:, None, :]
  p = jnp.where(jnp.any(candidates.earlier & same, axis=-1), 0.0, p)
  left = 1.0 - jnp.sum(jnp.where(candidates.earlier, p[:, None], 0.0), axis=-1)
  # Nothing left but this one, up to rounding; never form 0 / 0.
  return jnp.where(left > _MIN_MASS, jnp.minimum(p / jnp.maximum(left, _MIN_MASS), 1.0), (p > 0).astype(p.dtype))


def remove_refused(tables: PyTree, law: Array, tokens: Array, refused: Array) -> Array:
  """Deletes the refused candidates and nothing else."""
  vocab = law.shape[-1]
  row = jnp.arange(law.shape[0])[:, None]
  return law.at[row, jnp.where(refused, tokens, vocab)].set(0.0, mode="drop")


EXACT = CandidateRule(exact_accept_prob, remove_refused)


def candidates_of(draft: Draft) -> Candidates:
  """The candidates of a tree or of a chain."""
  parents = trees.parents_of(draft)
  return Candidates(draft.tokens, parents + 1, trees.earlier_siblings(parents))


def candidate_probabilities(candidates: Candidates, target: Array) -> Array:
  """``[B, K]`` float32: the target's probability of each candidate at its place."""
  row = jnp.arange(target.shape[0])[:, None]
  logits = target[row, candidates.source, candidates.tokens]
  return jnp.exp(logits - jnp.take_along_axis(jax.nn.logsumexp(target, axis=-1), candidates.source, axis=1))


@dataclasses.dataclass(frozen=True)
class TreeRule:
  """Rule for drafts whose tokens are deterministic candidates; ``draft.proposal`` is not read. An `AcceptFn`.

  Attributes:
    rule: probability of keeping a candidate, and what remains after refusals.
    max_path: static bound on the length of a path, the number of levels of the trees; deeper nodes are never visited
      (and nothing else changes). Small bounds make paths, and so the moving of cache entries, cheap. None is no bound.
  """

  rule: CandidateRule = EXACT
  max_path: int | None = None

  def max_levels(self, draft: Draft) -> int:
    """Longest path that is followed."""
    window = draft.tokens.shape[1]
    return window if self.max_path is None or draft.parents is None else min(self.max_path, window)

  def behind(self, draft: Draft, node: Array) -> Array:
    """``[B, K]`` bool: the candidates that are tested behind a node ``[B]`` of every row (-1: behind the root)."""
    parents = trees.parents_of(draft)
    valid = self._valid(trees.depths(trees.ancestors(parents)), draft)
    return (parents == node[:, None]) & valid

  def _valid(self, depth: Array, draft: Draft) -> Array:
    return depth <= jnp.minimum(draft.num_drafted, self.max_levels(draft))[:, None]

  def __call__(self, tables: PyTree, keys: Key, draft: Draft, target: Array) -> Verdict:
    """Tests every candidate and keeps the first path of kept ones; see `jaxspec.types.AcceptFn`."""
    rows, window = draft.tokens.shape
    if window == 0:  # plain decoding
      return Verdict(jnp.zeros((rows,), jnp.int32), sampling.sample(target[:, 0], rng.final_uniform(keys)))
    parents = trees.parents_of(draft)
    reach = trees.ancestors(parents)
    depth = trees.depths(reach)
    valid = self._valid(depth, draft)

    candidates = candidates_of(draft)
    prob = self.rule.accept_prob(tables, candidates, target)
    kept = (rng.uniforms(keys, window) < prob) & valid
    chosen = kept & ~jnp.any(candidates.earlier & kept[:, None], axis=-1)  # the first that is kept of its siblings
    on_path = ~jnp.any(reach & ~chosen[:, None], axis=-1)  # it and all its ancestors are

    num_accepted = jnp.sum(on_path.astype(jnp.int32), axis=1)
    last = jnp.max(jnp.where(on_path, jnp.arange(1, window + 1)[None], 0), axis=1)  # row of the target, 0 is the root
    law = sampling.probabilities(jnp.take_along_axis(target, last[:, None, None], axis=1)[:, 0])  # [B, V]
    refused = (parents + 1 == last[:, None]) & valid
    left = usable_weights(self.rule.remaining(tables, law, draft.tokens, refused), law)
    next_token = sampling.inverse_cdf(left, rng.final_uniform(keys))
    path = None if draft.parents is None else trees.path_nodes(on_path, depth, self.max_levels(draft))
    return Verdict(num_accepted, next_token, path)


@functools.cache
def tree_rule(rule: CandidateRule = EXACT, *, max_path: int | None = None) -> TreeRule:
  """The `TreeRule` of a candidate rule."""
  return TreeRule(rule, max_path)


# Exact acceptance of deterministic candidates, tree or chain.
lossless_tree = tree_rule()
