"""The training objective of interval features. The paper uses such features but gives no objective (CIAR, arXiv 2603.25463).

The objective is our choice. The cloud and the edge are frozen, and the cloud drew the images x by itself:

1. A mask chooses the positions of the edge. Each image has its own share of them, uniform between ``least_share`` and 1.
2. The edge draws y at the masked positions, given the image before them. The prefix is then partly the edge's.
3. Cross-entropy: the cloud predicts its own next tokens x after that prefix, with features of the masked tokens injected.
4. KL: on the cloud's prefix x, with features of the same positions injected, the cloud's distribution should be the one
   without injection. Where the edge drew the cloud's own token, the features must not disturb it.

The goal of term 3 is the cloud's own continuation of the image. If it were the cloud's distribution after the *same* prefix,
"no features" would be the optimum.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxspec.core.types import Array, Key


def edge_positions(key: Key, shape: tuple[int, int], least_share: float) -> Array:
  """Mask ``[B, N]`` bool of positions that the edge draws; the key is consumed."""
  share_key, position_key = jax.random.split(key)
  share = jax.random.uniform(share_key, (shape[0], 1), minval=least_share)
  return jax.random.uniform(position_key, shape) < share


def injection_loss(
  after_edge: Array, after_cloud: Array, undisturbed: Array, tokens: Array, *, kl_weight: float
) -> tuple[Array, dict[str, Array]]:
  """The objective from the cloud's logits.

  Args:
    after_edge: ``[B, N, V]`` of every position, after the prefix with the edge's tokens, features injected.
    after_cloud: ``[B, N, V]`` after the cloud's prefix, features injected.
    undisturbed: ``[B, N, V]`` after the cloud's prefix without features; no gradient reaches them.
    tokens: ``[B, N]`` int32, the cloud's own.
    kl_weight: weight of term 4.
  Returns:
    ``[]`` float32, and its terms by name (unweighted).
  """
  log_p = jax.nn.log_softmax(after_edge.astype(jnp.float32))
  cross_entropy = -jnp.mean(jnp.take_along_axis(log_p, tokens[..., None], axis=-1))
  goal = jax.nn.log_softmax(jax.lax.stop_gradient(undisturbed).astype(jnp.float32))
  log_q = jax.nn.log_softmax(after_cloud.astype(jnp.float32))
  distribution = jnp.exp(goal)
  # Where a distribution has no mass its logarithm may be -inf.
  kl = jnp.mean(jnp.sum(jnp.where(distribution > 0, distribution * (goal - log_q), 0.0), axis=-1))
  return cross_entropy + kl_weight * kl, {"cross_entropy": cross_entropy, "kl": kl}
