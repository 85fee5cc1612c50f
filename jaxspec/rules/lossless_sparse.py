"""Lossless acceptance of drafts from integer distributions on few tokens (`SparseDistribution`).

This is the rule of Leviathan et al. 2023 with q = qhat = counts / total: accept x with probability
min(1, total p(x) / count(x)); after a rejection draw from the normalised ``[p - qhat]+``. The count of a drafted token is at
least 1, so the ratio is finite.
"""

from __future__ import annotations

import jax.numpy as jnp

from jaxspec.codecs.sparse_distribution import SparseDistribution, count_of, dense, take_position
from jaxspec.core.types import Array, Draft, Key, PyTree, Verdict
from jaxspec.rules.chain_rule import commit_leading
from jaxspec.sampling.logit_processing import probabilities
from jaxspec.sampling.residual import at


def lossless_sparse(tables: PyTree, keys: Key, draft: Draft, target: Array) -> Verdict:
  """Accepts each draft with probability min(1, p / qhat); draws from the residual after a rejection.

  Args:
    tables: not read.
    keys: ``[B]`` keys; consumed.
    draft: chain of ``K`` tokens; ``draft.proposal`` is their `SparseDistribution` ``[B, K]``.
    target: ``[B, K + 1, V]`` processed target logits.
  Returns:
    Verdict that adds one token to every row.
  """
  if draft.tokens.shape[1] == 0:
    return commit_leading(keys, draft, target, accept_prob=jnp.zeros(draft.tokens.shape))
  distribution: SparseDistribution = draft.proposal
  vocab = target.shape[-1]
  p = at(probabilities(target[:, :-1]), draft.tokens)  # [B, K]
  count = count_of(distribution, draft.tokens)
  accept_prob = jnp.where(count > 0, distribution.total * p / jnp.maximum(count, 1), 0.0)
  return commit_leading(
    keys,
    draft,
    target,
    accept_prob=accept_prob,
    proposal_row_fn=lambda distribution, position: dense(take_position(distribution, position), vocab),
  )
