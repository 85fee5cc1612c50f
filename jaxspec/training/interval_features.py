"""The objective of interval features; the paper trains with them and says nothing about how (CIAR, arXiv 2603.25463).

Decided here, with the cloud and the device frozen, on pictures x that the cloud drew by itself:

1. A mask says which places the device makes: each picture has a share of its own, uniform between ``least_share`` and 1.
2. The device draws y at the masked places, given the picture before them: a prefix that is in part the device's.
3. Cross-entropy of the cloud's own next tokens x behind that prefix, with features of the masked tokens injected.
4. On the cloud's prefix x itself, with features of the same places injected, KL from the cloud's law without injection:
   where the device made what the cloud would have, the features must not disturb it.

Term 3 alone with the cloud's law behind the *same* prefix as its goal would have "no features" as its optimum; the cloud's
own continuation of the picture does not.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxspec.types import Array, Key


def device_places(key: Key, shape: tuple[int, int], least_share: float) -> Array:
  """Mask ``[B, N]`` bool of places that the device makes; the key is consumed."""
  share_key, place_key = jax.random.split(key)
  share = jax.random.uniform(share_key, (shape[0], 1), minval=least_share)
  return jax.random.uniform(place_key, shape) < share


def injection_loss(
  behind_device: Array, behind_cloud: Array, undisturbed: Array, tokens: Array, *, kl_weight: float
) -> tuple[Array, dict[str, Array]]:
  """The objective from the cloud's logits.

  Args:
    behind_device: ``[B, N, V]`` of every place, behind the prefix with the device's tokens, features injected.
    behind_cloud: ``[B, N, V]`` behind the cloud's prefix, features injected.
    undisturbed: ``[B, N, V]`` behind the cloud's prefix without features; no gradient reaches them.
    tokens: ``[B, N]`` int32, the cloud's own.
    kl_weight: of term 4.
  Returns:
    ``[]`` float32, and its terms by name (unweighted).
  """
  log_p = jax.nn.log_softmax(behind_device.astype(jnp.float32))
  cross_entropy = -jnp.mean(jnp.take_along_axis(log_p, tokens[..., None], axis=-1))
  goal = jax.nn.log_softmax(jax.lax.stop_gradient(undisturbed).astype(jnp.float32))
  log_q = jax.nn.log_softmax(behind_cloud.astype(jnp.float32))
  law = jnp.exp(goal)
  # Where a law has no mass its logarithm may be -inf.
  kl = jnp.mean(jnp.sum(jnp.where(law > 0, law * (goal - log_q), 0.0), axis=-1))
  return cross_entropy + kl_weight * kl, {"cross_entropy": cross_entropy, "kl": kl}
