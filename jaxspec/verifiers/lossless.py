"""Lossless acceptance of a chain of drafts (Leviathan et al. 2023, arXiv 2211.17192, Algorithm 1).

For draft i with proposal q_i and target p_i: keep x_i with probability min(1, p_i(x_i) / q_i(x_i)). At the first
rejection emit y ~ norm([p - q]+) of that place; after full acceptance emit a bonus y ~ p of the next place. Every
committed token then follows p, whatever q is.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxspec import rng
from jaxspec.models import sampling
from jaxspec.types import Array, Draft, Key, Verdict

# Below this mass p and q are equal up to rounding and the residual is noise.
_MIN_RESIDUAL = 1e-12


def lossless(tables: tuple, keys: Key, draft: Draft, target: Array) -> Verdict:
  """Accepts each draft with probability min(1, p / q) and resamples the residual.

  Args:
    tables: not read.
    keys: ``[B]`` keys; consumed.
    draft: chain of ``K`` tokens; ``draft.proposal`` are the processed logits ``[B, K, V]`` it was sampled from.
    target: ``[B, K + 1, V]`` processed target logits.
  Returns:
    Verdict with ``num_accepted [B]`` and ``next_token [B]``.
  """
  rows, window = draft.tokens.shape
  if window == 0:
    return Verdict(jnp.zeros((rows,), jnp.int32), sampling.sample(target[:, 0], rng.final_uniform(keys)))
  log_p = _token_log_prob(target[:, :-1], draft.tokens)
  log_q = _token_log_prob(draft.proposal, draft.tokens)
  return commit_leading(keys, draft, target, accept_prob=_ratio(log_p, log_q))


def commit_leading(keys: Key, draft: Draft, target: Array, *, accept_prob: Array) -> Verdict:
  """Keeps the leading drafts that pass their test and draws the next token.

  Args:
    keys: ``[B]`` keys; consumed.
    draft: chain of ``K`` tokens with logits ``[B, K, V]`` as proposal.
    target: ``[B, K + 1, V]`` processed target logits.
    accept_prob: ``[B, K]`` probability of keeping each draft.
  """
  rows, window = draft.tokens.shape
  valid = jnp.arange(window)[None] < draft.num_drafted[:, None]
  kept = (rng.uniforms(keys, window) < accept_prob) & valid
  num_accepted = jnp.sum(jnp.cumprod(kept.astype(jnp.int32), axis=1), axis=1)  # [B]
  rejected = num_accepted < draft.num_drafted

  # Only one row of each law is needed from here on.
  p = sampling.probabilities(_row(target, num_accepted))  # [B, V]
  q = sampling.probabilities(_row(draft.proposal, jnp.minimum(num_accepted, window - 1)))
  residual = jnp.maximum(p - q, 0.0)
  usable = rejected & (jnp.sum(residual, axis=-1) > _MIN_RESIDUAL)
  next_token = sampling.inverse_cdf(jnp.where(usable[:, None], residual, p), rng.final_uniform(keys))
  return Verdict(num_accepted, next_token)


def _row(law: Array, index: Array) -> Array:
  return jnp.take_along_axis(law, index[:, None, None], axis=1)[:, 0]


def _token_log_prob(logits: Array, tokens: Array) -> Array:
  chosen = jnp.take_along_axis(logits, tokens[..., None], axis=-1)[..., 0]
  return chosen - jax.nn.logsumexp(logits, axis=-1)


def _ratio(log_p: Array, log_q: Array) -> Array:
  # A draft of proposal mass 0 cannot occur in exact arithmetic; never form 0 / 0.
  safe_q = jnp.where(log_q == -jnp.inf, log_p, log_q)
  return jnp.where(log_p == -jnp.inf, 0.0, jnp.exp(jnp.minimum(log_p - safe_q, 0.0)))
