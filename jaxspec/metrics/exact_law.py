"""The exact law of one emitted token under a rule, and how far it is from the target.

``phat(y) = q(y) a(y) + sum_x q(x) (1 - a(x)) r_x(y)``: the draft x ~ q is kept with probability a(x), else y is drawn from
the normalised residual r_x. All tokens of the vocabulary are enumerated; nothing is sampled. In a tree the candidates of a
place are given and are tested one after the other: the law is their masses, and what is left when all were refused.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxspec.models import sampling
from jaxspec.types import Array, Draft, PyTree
from jaxspec.verifiers.chain import ChainRule, usable_weights
from jaxspec.verifiers.tree import TreeRule, candidates_of, exact_accept_prob


class PlaceLaw(NamedTuple):
  """A rule at one place; leading axes ``...`` as in the laws given."""

  law: Array  # [..., V] law of the emitted token
  accept: Array  # [..., V] a(y) of every token
  alpha: Array  # [...] sum q a, probability of keeping the draft
  alpha_sd: Array  # [...] sum min(p, q), the same of the lossless rule
  tv: Array  # [...] total variation between law and target
  kl: Array  # [...] KL(law || target) in nats; inf where the law leaves the target's support
  excess: Array  # [...] sum [q a - p]+, the least total variation possible with this a


def exact_law(rule: ChainRule, tables: PyTree, p: Array, q: Array) -> PlaceLaw:
  """Enumerates ``rule`` at places with target ``p [..., V]`` and proposal ``q [..., V]`` (float32, each adding up to 1)."""
  accept = rule.accept_all(tables, p, q)
  kept = q * accept
  if rule.residual_reads_token:
    law = kept + _emitted_by_each(rule, tables, p, q, q - kept)
  else:
    # The residual is the same for every rejected token, so any token may stand for them.
    weights = rule.residual_weights(tables, jnp.zeros(p.shape[:-1], jnp.int32), p, q)
    rejected = jnp.sum(q - kept, axis=-1, keepdims=True)
    law = kept + rejected * _normalised(weights, p)
  return _compare(law, p, kept=kept, accept=accept, alpha_sd=jnp.sum(jnp.minimum(p, q), axis=-1))


def exact_tree_law(rule: TreeRule, tables: PyTree, draft: Draft, target: Array, node: Array) -> PlaceLaw:
  """Enumerates a rule for trees at the places behind one node of every row, leading axis ``B``.

  ``accept`` is the probability that a candidate is kept once it is tested, 0 for tokens that are none; ``alpha`` that of
  keeping any of them, ``alpha_sd`` the same for exact acceptance of the same candidates.

  Args:
    draft: a tree (or a chain) of ``K`` candidates; ``target [B, K + 1, V]`` the processed logits.
    node: ``[B]`` int32, -1 for the root.
  """
  candidates, here = candidates_of(draft), rule.behind(draft, node)  # [B, K]
  p = sampling.probabilities(jnp.take_along_axis(target, node[:, None, None] + 1, axis=1)[:, 0])  # [B, V]

  def kept_mass(prob: Array) -> Array:
    refuse = jnp.where(here, 1.0 - prob, 1.0)
    before = jnp.cumprod(jnp.pad(refuse, ((0, 0), (1, 0)), constant_values=1.0)[:, :-1], axis=1)
    return jnp.where(here, prob * before, 0.0)

  prob = rule.rule.accept_prob(tables, candidates, target)
  mass = kept_mass(prob)
  row = jnp.arange(p.shape[0])[:, None]
  kept = jnp.zeros_like(p).at[row, draft.tokens].add(mass)
  accept = jnp.zeros_like(p).at[row, draft.tokens].max(jnp.where(here, prob, 0.0))
  refused = jnp.prod(jnp.where(here, 1.0 - prob, 1.0), axis=1, keepdims=True)
  law = kept + refused * _normalised(rule.rule.remaining(tables, p, draft.tokens, here), p)
  alpha_sd = jnp.sum(kept_mass(exact_accept_prob(tables, candidates, target)), axis=1)
  return _compare(law, p, kept=kept, accept=accept, alpha_sd=alpha_sd)


def _compare(law: Array, p: Array, *, kept: Array, accept: Array, alpha_sd: Array) -> PlaceLaw:
  return PlaceLaw(
    law=law,
    accept=accept,
    alpha=jnp.sum(kept, axis=-1),
    alpha_sd=alpha_sd,
    tv=total_variation(law, p),
    kl=kl_divergence(law, p),
    excess=jnp.sum(jnp.maximum(kept - p, 0.0), axis=-1),
  )


def total_variation(a: Array, b: Array) -> Array:
  """``[...]`` half the L1 distance of two laws ``[..., V]``."""
  return 0.5 * jnp.sum(jnp.abs(a - b), axis=-1)


def kl_divergence(a: Array, b: Array) -> Array:
  """``[...]`` KL(a || b) in nats of laws ``[..., V]``; inf where a has mass and b has none."""
  terms = jnp.where(a > 0, a * (jnp.log(jnp.where(a > 0, a, 1.0)) - jnp.log(b)), 0.0)
  return jnp.sum(terms, axis=-1)


def _normalised(weights: Array, p: Array) -> Array:
  weights = usable_weights(weights, p)
  return weights / jnp.sum(weights, axis=-1, keepdims=True)


def _emitted_by_each(rule: ChainRule, tables: PyTree, p: Array, q: Array, rejected: Array) -> Array:
  """sum_x rejected(x) r_x, one token after the other: V residuals of ``[..., V]`` are never held at once."""

  def add(token: Array, law: Array) -> Array:
    weights = rule.residual_weights(tables, jnp.full(p.shape[:-1], token, jnp.int32), p, q)
    mass = jax.lax.dynamic_index_in_dim(rejected, token, axis=-1)  # [..., 1]
    return law + mass * _normalised(weights, p)

  return jax.lax.fori_loop(0, p.shape[-1], add, jnp.zeros_like(p))
