"""Adapter of rules that read logits to drafts from a quantized distribution on few tokens.

Drafts from a `SparseDistribution` follow ``counts / total``. `DenseView` gives the wrapped rule the logarithms of exactly
these probabilities, the proposal of the drafts.
"""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp

from jaxspec.codecs.sparse_distribution import SparseDistribution
from jaxspec.core.types import AcceptFn, Array, Draft, Key, PyTree, Verdict


def dense_logits(distributions: SparseDistribution, vocab: int) -> Array:
  """Log-probabilities ``[B, K, V]`` float32 of distributions ``[B, K]``; uniform where there is no distribution."""
  rows, window = distributions.total.shape
  row = jnp.arange(rows)[:, None, None]
  position = jnp.arange(window)[None, :, None]
  counts = jnp.zeros((rows, window, vocab), jnp.int32).at[row, position, distributions.ids].add(distributions.counts)
  total = distributions.total[..., None]
  probs = counts / jnp.maximum(total, 1).astype(jnp.float32)
  return jnp.where(total > 0, jnp.log(probs), 0.0)


@dataclasses.dataclass(frozen=True)
class DenseView:
  """Applies ``rule`` to drafts whose proposal is a `SparseDistribution` ``[B, K]``; an `AcceptFn` for chains."""

  rule: AcceptFn

  def __call__(self, tables: PyTree, keys: Key, draft: Draft, target: Array) -> Verdict:
    """Judges a chain; see `AcceptFn`."""
    if draft.tokens.shape[1]:
      draft = draft._replace(proposal=dense_logits(draft.proposal, target.shape[-1]))
    return self.rule(tables, keys, draft, target)
