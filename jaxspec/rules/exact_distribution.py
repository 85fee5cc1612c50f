"""The exact distribution of one emitted token under an acceptance rule, and its distance from the target.

``phat(y) = q(y) a(y) + sum_x q(x) (1 - a(x)) r_x(y)``. The draft x ~ q is accepted with probability a(x); otherwise y is
drawn from the normalised residual r_x. All tokens of the vocabulary are enumerated and nothing is sampled. In a tree, the
given candidates of a position are tested in turn. The distribution is then the mass of each candidate, plus the residual
after the rejection of all. Block verification is enumerated given the drafts before a position.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxspec.core.short_repr import short_repr
from jaxspec.core.token_axes import at_position
from jaxspec.core.types import Array, Draft, HostArray, PyTree
from jaxspec.rules.block_rule import BlockRule
from jaxspec.rules.chain_rule import ChainRule
from jaxspec.rules.tree_rule import TreeRule, candidates_of, exact_accept_prob
from jaxspec.sampling import logit_processing
from jaxspec.sampling.block_acceptance import block_acceptance
from jaxspec.sampling.residual import usable_weights


class PositionDistribution(NamedTuple):
  """An acceptance rule at one position; leading axes ``...`` as in the given distributions."""

  __repr__ = short_repr

  distribution: HostArray  # [..., V] distribution of the emitted token
  accept: HostArray  # [..., V] acceptance probability a(y) of every token
  alpha: HostArray  # [...] sum q a, probability of accepting the draft
  alpha_sd: HostArray  # [...] sum min(p, q), the same for the lossless rule
  tv: HostArray  # [...] total variation between distribution and target
  kl: HostArray  # [...] KL(distribution || target) in nats; inf where the distribution leaves the target's support
  excess: HostArray  # [...] sum [q a - p]+, the least total variation possible with this a


def exact_distribution(rule: ChainRule, tables: PyTree, p: Array, q: Array) -> PositionDistribution:
  """Enumerates ``rule`` at positions with target ``p [..., V]`` and proposal ``q [..., V]``, float32 probabilities."""
  accept = rule.accept_all(tables, p, q)
  accepted = q * accept
  if rule.residual_reads_token:
    distribution = accepted + _emitted_by_each(rule, tables, p, q, q - accepted)
  else:
    # The residual is the same for every rejected token, so any token represents all of them.
    weights = rule.residual_weights(tables, jnp.zeros(p.shape[:-1], jnp.int32), p, q)
    rejected = jnp.sum(q - accepted, axis=-1, keepdims=True)
    distribution = accepted + rejected * _normalised(weights, p)
  return _compare(distribution, p, accepted=accepted, accept=accept, alpha_sd=jnp.sum(jnp.minimum(p, q), axis=-1))


def exact_tree_distribution(
  rule: TreeRule, tables: PyTree, draft: Draft, target: Array, node: Array
) -> PositionDistribution:
  """Enumerates a rule for trees at the positions after one node of every row, leading axis ``B``.

  In the result, ``accept`` is the probability of accepting a tested candidate, and 0 for other tokens. ``alpha`` is the
  probability that any candidate is accepted. ``alpha_sd`` is the same under the exact rule.

  Args:
    draft: a tree (or a chain) of ``K`` candidates; ``target [B, K + 1, V]`` the processed logits.
    node: ``[B]`` int32, -1 for the root.
  """
  candidates, here = candidates_of(draft), rule.after(draft, node)  # [B, K]
  p = logit_processing.probabilities(at_position(target, node + 1))  # [B, V]

  def accepted_mass(prob: Array) -> Array:
    refuse = jnp.where(here, 1.0 - prob, 1.0)
    before = jnp.cumprod(jnp.pad(refuse, ((0, 0), (1, 0)), constant_values=1.0)[:, :-1], axis=1)
    return jnp.where(here, prob * before, 0.0)

  prob = rule.rule.accept_prob(tables, candidates, target)
  mass = accepted_mass(prob)
  row = jnp.arange(p.shape[0])[:, None]
  accepted = jnp.zeros_like(p).at[row, draft.tokens].add(mass)
  accept = jnp.zeros_like(p).at[row, draft.tokens].max(jnp.where(here, prob, 0.0))
  rejected = jnp.prod(jnp.where(here, 1.0 - prob, 1.0), axis=1, keepdims=True)
  distribution = accepted + rejected * _normalised(rule.rule.remaining(tables, p, draft.tokens, here), p)
  alpha_sd = jnp.sum(accepted_mass(exact_accept_prob(tables, candidates, target)), axis=1)
  return _compare(distribution, p, accepted=accepted, accept=accept, alpha_sd=alpha_sd)


def exact_block_distribution(rule: BlockRule, draft: Draft, target: Array) -> PositionDistribution:
  """Enumerates block verification at every position, leading axes ``[B, K]``, given that the drafts before it are accepted.

  A draft that is reached no longer follows q, because the rule has tested it with the drafts before it. ``alpha`` may
  therefore exceed ``alpha_sd`` without bias.

  Args:
    draft: chain of ``K`` tokens with logits ``[B, K, V]`` as proposal; ``target [B, K + 1, V]`` the processed logits.
  """
  p, q = logit_processing.probabilities(target[:, :-1]), logit_processing.probabilities(draft.proposal)
  reach = block_acceptance(draft, target)[:, :-1, None]  # [B, K, 1]
  scaled, given = reach * p, jnp.where(reach > 0, reach, 1.0)
  longer = jnp.minimum(scaled, q)
  stops = (1.0 - jnp.sum(longer, axis=-1, keepdims=True)) * rule.stop_prob(draft, target)[:, :-1, None]
  accepted = longer / given
  distribution = accepted + stops / given * _normalised(jnp.maximum(scaled - q, 0.0), p)
  accept = accepted / jnp.where(q > 0, q, 1.0)
  return _compare(distribution, p, accepted=accepted, accept=accept, alpha_sd=jnp.sum(jnp.minimum(p, q), axis=-1))


def _compare(distribution: Array, p: Array, *, accepted: Array, accept: Array, alpha_sd: Array) -> PositionDistribution:
  return PositionDistribution(
    distribution=distribution,
    accept=accept,
    alpha=jnp.sum(accepted, axis=-1),
    alpha_sd=alpha_sd,
    tv=total_variation(distribution, p),
    kl=kl_divergence(distribution, p),
    excess=jnp.sum(jnp.maximum(accepted - p, 0.0), axis=-1),
  )


def total_variation(a: Array, b: Array) -> Array:
  """``[...]`` half the L1 distance of two distributions ``[..., V]``."""
  return 0.5 * jnp.sum(jnp.abs(a - b), axis=-1)


def kl_divergence(a: Array, b: Array) -> Array:
  """``[...]`` KL(a || b) in nats of distributions ``[..., V]``; inf where a has mass and b has none."""
  terms = jnp.where(a > 0, a * (jnp.log(jnp.where(a > 0, a, 1.0)) - jnp.log(b)), 0.0)
  return jnp.sum(terms, axis=-1)


def _normalised(weights: Array, p: Array) -> Array:
  weights = usable_weights(weights, p)
  return weights / jnp.sum(weights, axis=-1, keepdims=True)


def _emitted_by_each(rule: ChainRule, tables: PyTree, p: Array, q: Array, rejected: Array) -> Array:
  """``sum_x rejected(x) r_x``, one token after the other, so that at most one residual ``[..., V]`` is in memory."""

  def add(token: Array, distribution: Array) -> Array:
    weights = rule.residual_weights(tables, jnp.full(p.shape[:-1], token, jnp.int32), p, q)
    mass = jax.lax.dynamic_index_in_dim(rejected, token, axis=-1)  # [..., 1]
    return distribution + mass * _normalised(weights, p)

  return jax.lax.fori_loop(0, p.shape[-1], add, jnp.zeros_like(p))
