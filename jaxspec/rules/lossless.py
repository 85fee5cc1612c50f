"""Lossless acceptance of a chain of drafts (Leviathan et al. 2023, arXiv 2211.17192, Algorithm 1).

For draft i with proposal q_i and target p_i: accept x_i with probability min(1, p_i(x_i) / q_i(x_i)). At the first
rejection draw y ~ norm([p - q]+) of that position; after full acceptance draw a bonus y ~ p of the next position. Every
committed token then follows p, for any q.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from jaxspec.core.types import Array, Draft, Key, PyTree, Verdict
from jaxspec.rules.chain_rule import ChainRule, commit_leading, ratio
from jaxspec.sampling.residual import at

__all__ = ["Lossless", "commit_leading", "lossless"]


@dataclasses.dataclass(frozen=True)
class Lossless(ChainRule):
  """Accepts each draft with probability min(1, p / q); draws from the residual ``[p - q]+`` after a rejection."""

  @property
  def never_below_lossless(self) -> bool:
    """See `ChainRule`."""
    return True

  def accept_prob(self, tables: PyTree, tokens: Array, p: Array, q: Array) -> Array:
    """See `ChainRule.accept_prob`."""
    return ratio(at(p, tokens), at(q, tokens))

  def accept_all(self, tables: PyTree, p: Array, q: Array) -> Array:
    """See `ChainRule.accept_all`."""
    return ratio(p, q)

  def __call__(self, tables: PyTree, keys: Key, draft: Draft, target: Array) -> Verdict:
    """Judges a chain; see `AcceptFn`. ``tables`` is not read."""
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


# The rule is used like a function: jaxspec.TargetVerifier(fns, jaxspec.lossless, warp=warp).
lossless = Lossless()
