"""The exact law of one emitted token under a chain rule, and how far it is from the target.

``phat(y) = q(y) a(y) + sum_x q(x) (1 - a(x)) r_x(y)``: the draft x ~ q is kept with probability a(x), else y is drawn from
the normalised residual r_x. All tokens of the vocabulary are enumerated; nothing is sampled.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxspec.types import Array, PyTree
from jaxspec.verifiers.chain import ChainRule, usable_weights


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
  alpha = jnp.sum(kept, axis=-1)
  if rule.residual_reads_token:
    law = kept + _emitted_by_each(rule, tables, p, q, q - kept)
  else:
    # The residual is the same for every rejected token, so any token may stand for them.
    weights = rule.residual_weights(tables, jnp.zeros(p.shape[:-1], jnp.int32), p, q)
    rejected = jnp.sum(q - kept, axis=-1, keepdims=True)
    law = kept + rejected * _normalised(weights, p)
  return PlaceLaw(
    law=law,
    accept=accept,
    alpha=alpha,
    alpha_sd=jnp.sum(jnp.minimum(p, q), axis=-1),
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
