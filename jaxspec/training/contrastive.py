"""The contrastive loss of two views: vectors of the same thing attract, vectors of different things repel."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxspec.types import Array


class ContrastiveLoss(NamedTuple):
  """Scalar float32."""

  loss: Array  # nats, mean of both directions
  accuracy: Array  # share of the rows of the first view whose nearest row of the second is their own


def contrastive_loss(a: Array, b: Array, *, temperature: float, same: Array | None = None) -> ContrastiveLoss:
  """InfoNCE in both directions (arXiv 1807.03748; symmetric as in CLIP, arXiv 2103.00020).

  Args:
    a: ``[B, D]`` vectors of root mean square 1; row i of ``b [B, D]`` is another view of row i.
    temperature: divisor of the cosines.
    same: optional ``[B, B]`` bool, True where two rows show nearly the same thing; such pairs do not repel.
  """
  size = a.shape[0]
  own = jnp.eye(size, dtype=bool)
  logits = (a @ b.T) / (a.shape[1] * temperature)  # [B, B]
  if same is not None:
    logits = jnp.where(same & ~own, -jnp.inf, logits)
  picked = lambda axis: jnp.mean(jnp.diagonal(jax.nn.log_softmax(logits, axis=axis)))
  accuracy = jnp.mean(jnp.argmax(logits, axis=1) == jnp.arange(size))
  return ContrastiveLoss(-0.5 * (picked(0) + picked(1)), accuracy)
