"""LANTERN over draft trees of certain candidates (arXiv 2410.03355, section 4; released code jadohu/LANTERN 3a56e45).

The candidates of a place are tested one after the other, each under the law that the refusals before it left: candidate x
is kept with its relaxed probability `Lantern.accept_point`, and `Lantern.after_point` is what a refusal leaves. Which
candidates stand before x is known beforehand, so the laws in front of all candidates of a tree are made together, one step
for each earlier sibling, and the walk is that of `jaxspec.verifiers.tree`.

Where every place has one candidate this is the chain rule with a certain proposal (q = 1 on the draft).
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from jaxspec.models import sampling
from jaxspec.types import Array, PyTree
from jaxspec.verifiers.lantern import Lantern
from jaxspec.verifiers.tree import CandidateRule, Candidates


@functools.cache
def lantern_tree(rule: Lantern) -> CandidateRule:
  """The rule for candidates of ``rule``; give it to `jaxspec.tree_rule`."""
  return CandidateRule(functools.partial(_accept_prob, rule), functools.partial(_remaining, rule))


def _accept_prob(rule: Lantern, tables: PyTree, candidates: Candidates, target: Array) -> Array:
  """See `CandidateRule`; holds ``[B, K, V]`` laws."""
  rows = jnp.arange(target.shape[0])[:, None]
  laws = sampling.probabilities(target)[rows, candidates.source]  # [B, K, V]
  laws = _after_refusals(rule, tables, laws, candidates.tokens[:, None, :], candidates.earlier)
  same = candidates.tokens[:, :, None] == candidates.tokens[:, None, :]
  # A token that was refused is gone, though its copy could still borrow.
  repeated = jnp.any(candidates.earlier & same, axis=-1)
  return jnp.where(repeated, 0.0, rule.accept_point(tables, candidates.tokens, laws))


def _remaining(rule: Lantern, tables: PyTree, law: Array, tokens: Array, refused: Array) -> Array:
  """See `CandidateRule`."""
  return _after_refusals(rule, tables, law, tokens, refused)


def _after_refusals(rule: Lantern, tables: PyTree, laws: Array, tokens: Array, refused: Array) -> Array:
  """What refusals leave of ``laws [..., V]``, where ``tokens [..., K]`` with ``refused [..., K]`` go in order of index."""
  rank = jnp.cumsum(refused.astype(jnp.int32), axis=-1)  # the first that is refused has rank 1

  def refuse(index: Array, laws: Array) -> Array:
    turn = refused & (rank == index + 1)
    token = jnp.sum(jnp.where(turn, tokens, 0), axis=-1)
    return jnp.where(jnp.any(turn, axis=-1, keepdims=True), rule.after_point(tables, token, laws), laws)

  return jax.lax.fori_loop(0, jnp.max(rank), refuse, laws)
