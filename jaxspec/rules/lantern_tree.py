"""LANTERN over draft trees of certain candidates (arXiv 2410.03355, section 4; released code jadohu/LANTERN 3a56e45).

The candidates of a position are tested in turn, each under the distribution after the earlier rejections. Candidate x is
accepted with its relaxed probability `Lantern.accept_point`; after its rejection the distribution is `Lantern.after_point`.
The earlier siblings of x are known beforehand. The distributions for all candidates of a tree are therefore computed
together, one step for each earlier sibling. The walk is that of `jaxspec.rules.tree_rule`.

If every position has one candidate, this is the chain rule with a certain proposal (q = 1 on the draft).
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from jaxspec.core.types import Array, PyTree
from jaxspec.rules.lantern_rule import LanternRule
from jaxspec.rules.tree_rule import CandidateRule, Candidates
from jaxspec.sampling import logit_processing


@functools.cache
def lantern_tree(rule: LanternRule) -> CandidateRule:
  """The `CandidateRule` of a LANTERN rule, for `jaxspec.rules.tree_rule.tree_rule`."""
  return CandidateRule(functools.partial(_accept_prob, rule), functools.partial(_remaining, rule))


def _accept_prob(rule: LanternRule, tables: PyTree, candidates: Candidates, target: Array) -> Array:
  """See `CandidateRule`; holds probabilities ``[B, K, V]``."""
  rows = jnp.arange(target.shape[0])[:, None]
  distributions = logit_processing.probabilities(target)[rows, candidates.source]  # [B, K, V]
  distributions = _after_rejections(rule, tables, distributions, candidates.tokens[:, None, :], candidates.earlier)
  same = candidates.tokens[:, :, None] == candidates.tokens[:, None, :]
  # A later copy of a rejected token could still borrow, so its probability is set to 0.
  repeated = jnp.any(candidates.earlier & same, axis=-1)
  return jnp.where(repeated, 0.0, rule.accept_point(tables, candidates.tokens, distributions))


def _remaining(rule: LanternRule, tables: PyTree, distribution: Array, tokens: Array, rejected: Array) -> Array:
  """See `CandidateRule`."""
  return _after_rejections(rule, tables, distribution, tokens, rejected)


def _after_rejections(rule: LanternRule, tables: PyTree, distributions: Array, tokens: Array, rejected: Array) -> Array:
  """``distributions [..., V]`` after the rejection of the ``tokens [..., K]`` with ``rejected [..., K]``."""
  rank = jnp.cumsum(rejected.astype(jnp.int32), axis=-1)  # the first rejected token has rank 1

  def refuse(index: Array, distributions: Array) -> Array:
    turn = rejected & (rank == index + 1)
    token = jnp.sum(jnp.where(turn, tokens, 0), axis=-1)
    return jnp.where(jnp.any(turn, axis=-1, keepdims=True), rule.after_point(tables, token, distributions), distributions)

  return jax.lax.fori_loop(0, jnp.max(rank), refuse, distributions)
