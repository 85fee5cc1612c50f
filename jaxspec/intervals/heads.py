"""Combines several Inter-Heads on one trunk (CIAR, arXiv 2603.25463).

``ensemble`` averages all heads. With ``voting`` every head votes for its most probable token. The majority wins; a tie goes
to the token of larger mean probability. The heads that voted for the winner are then averaged. The paper does not define a
distribution or an uncertainty of votes.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxspec.core.types import Array

COMBINATIONS = ("ensemble", "voting")


def check_combination(name: str) -> None:
  """Raises a ValueError for an unknown combination."""
  if name not in COMBINATIONS:
    raise ValueError(f"Must have a combination in {', '.join(COMBINATIONS)}, we instead got {name!r}")


def head_weights(centre: Array, combination: str) -> Array:
  """Weights ``[..., H]`` of the heads from their centre logits ``[..., H, V]``; they add up to 1."""
  check_combination(combination)
  heads = centre.shape[-2]
  if heads == 1 or combination == "ensemble":
    return jnp.full(centre.shape[:-1], 1 / heads, jnp.float32)
  vote = jnp.argmax(centre, axis=-1)  # [..., H]
  same = vote[..., None, :] == vote[..., :, None]  # [..., H, H]
  count = jnp.sum(same.astype(jnp.float32), axis=-1)
  mean = jnp.mean(jax.nn.softmax(centre, axis=-1), axis=-2)  # [..., V]
  # Half a mean probability is below 1, so it only decides between equal counts.
  rank = count + 0.5 * jnp.take_along_axis(mean, vote, axis=-1)
  winner = jnp.take_along_axis(vote, jnp.argmax(rank, axis=-1)[..., None], axis=-1)
  chosen = (vote == winner).astype(jnp.float32)
  return chosen / jnp.sum(chosen, axis=-1, keepdims=True)


def combined_logits(centre: Array, combination: str) -> Array:
  """Logits ``[..., V]`` of the heads' common distribution, the weighted mean of their centre distributions."""
  if centre.shape[-2] == 1:
    return centre[..., 0, :]
  weights = head_weights(centre, combination)
  log_p = jax.nn.log_softmax(centre, axis=-1)
  return jax.nn.logsumexp(log_p, axis=-2, b=jnp.broadcast_to(weights[..., None], log_p.shape))


def mean_over_heads(values: Array, weights: Array) -> Array:
  """Weighted mean over the head axis: ``[..., H, V]`` and ``[..., H]`` to ``[..., V]``."""
  return jnp.sum(values * weights[..., None], axis=-2)
