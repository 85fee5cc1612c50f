"""Acceptance of leading drafts that are tested together (Sun et al. 2024, arXiv 2403.10444, Algorithm 2).

Block verification accepts the leading i drafts, or more, with probability

  p_0 = 1,  p_i = min(1, p_{i-1} p(x_i) / q(x_i)),

given the first i drafts. The rule (`jaxspec.rules.block_rule`) and drafters that keep rejected drafts read it.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxspec.core.types import Array, Draft
from jaxspec.sampling.residual import log_ratio


def block_acceptance(draft: Draft, target: Array) -> Array:
  """``[B, K + 1]`` float32: the probabilities ``p_0, ..., p_K``; those after ``num_drafted`` repeat the last one.

  Args:
    draft: chain of ``K`` tokens with logits ``[B, K, V]`` as proposal.
    target: ``[B, K + 1, V]`` processed target logits.
  """
  rows, window = draft.tokens.shape
  valid = jnp.arange(window)[None] < draft.num_drafted[:, None]
  step = jnp.where(valid, log_ratio(draft.tokens, target[:, :-1], draft.proposal), 0.0)
  # log p_i = min(0, log p_{i-1} + step_i), a walk that is held below 0: the sum of the steps minus its largest value so far.
  walk = jnp.pad(jnp.cumsum(step, axis=1), ((0, 0), (1, 0)))  # [B, K + 1]
  return jnp.exp(walk - jax.lax.cummax(walk, axis=1))
