"""Lossless acceptance of a chain of drafts (Leviathan et al. 2023, arXiv 2211.17192, Algorithm 1).

For draft i with proposal q_i and target p_i: keep x_i with probability min(1, p_i(x_i) / q_i(x_i)). At the first
rejection emit y ~ norm([p - q]+) of that place; after full acceptance emit a bonus y ~ p of the next place. Every
committed token then follows p, whatever q is.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxspec.types import Array, Draft, Key, Verdict
from jaxspec.verifiers.chain import at, commit_leading

__all__ = ["commit_leading", "lossless"]


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
  if draft.tokens.shape[1] == 0:
    return commit_leading(keys, draft, target, accept_prob=jnp.zeros(draft.tokens.shape))
  # Two normalisers instead of two softmaxes: only the drafted tokens' probabilities are needed.
  log_p = _token_log_prob(target[:, :-1], draft.tokens)
  log_q = _token_log_prob(draft.proposal, draft.tokens)
  return commit_leading(keys, draft, target, accept_prob=_ratio(log_p, log_q))


def _token_log_prob(logits: Array, tokens: Array) -> Array:
  return at(logits, tokens) - jax.nn.logsumexp(logits, axis=-1)


def _ratio(log_p: Array, log_q: Array) -> Array:
  # A draft of proposal mass 0 cannot occur in exact arithmetic; never form 0 / 0.
  safe_q = jnp.where(log_q == -jnp.inf, log_p, log_q)
  return jnp.where(log_p == -jnp.inf, 0.0, jnp.exp(jnp.minimum(log_p - safe_q, 0.0)))
