"""Ratios of drafts and weights of the token that replaces a rejected one (Leviathan et al. 2023, arXiv 2211.17192)."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxspec.core.types import Array, HostArray

# If the residual has less mass than this, p and q are equal up to rounding and the residual is noise.
_MIN_RESIDUAL = 1e-12


def lossless_weights(tokens: Array | None, p: HostArray, q: HostArray) -> Array:
  """Weights ``[p - q]+`` after a rejection (Leviathan et al. 2023); they do not depend on the rejected token."""
  return jnp.maximum(p - q, 0.0)


def usable_weights(weights: Array, p: HostArray) -> Array:
  """The weights ``[..., V]``, or p where they have no mass (p and q are then equal up to rounding)."""
  return jnp.where(jnp.sum(weights, axis=-1, keepdims=True) > _MIN_RESIDUAL, weights, p)


def at(distribution: Array, tokens: Array) -> Array:
  """Entry ``[...]`` of each token in ``distribution [..., V]``."""
  return jnp.take_along_axis(distribution, tokens[..., None], axis=-1)[..., 0]


def log_ratio(tokens: Array, target: Array, proposal: Array) -> Array:
  """``log p(x) / q(x)`` ``[B, K]`` of drafts ``tokens [B, K]``; -inf where p(x) = 0.

  Two normalisers instead of two softmaxes: only the probabilities of the drafts are needed.

  Args:
    target: ``[B, K, V]`` processed logits, as is ``proposal``.
  """
  log_p, log_q = (at(logits, tokens) - jax.nn.logsumexp(logits, axis=-1) for logits in (target, proposal))
  # A draft of proposal mass 0 cannot occur in exact arithmetic; never form 0 / 0.
  safe_q = jnp.where(log_q == -jnp.inf, log_p, log_q)
  return jnp.where(log_p == -jnp.inf, -jnp.inf, log_p - safe_q)
