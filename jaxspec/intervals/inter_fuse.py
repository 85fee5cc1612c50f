"""InterFuse: from logits with radii to lower and upper probabilities (CIAR, arXiv 2603.25463, equations 27 to 30).

Without its final scaling this is the interval softmax of CreINNs and Credal Deep Ensembles (Wang et al. 2024, arXiv
2401.05043 and 2405.15047). For logits c and radii r,

  l_i = e^(c_i - r_i) / (Z_i + e^(c_i - r_i)),   u_i = e^(c_i + r_i) / (Z_i + e^(c_i + r_i)),   Z_i = sum_{j != i} e^(c_j).

As printed, Z_i = Z - e^(c_i) loses every digit in float32 once one logit leads by 16 nats. With the log-odds
``x_i = c_i - log Z_i`` the same bounds are ``sigmoid(x_i -+ r_i)``. Their difference is
``sinh r_i / (cosh x_i + cosh r_i)``, which does not cancel. Only the most probable token can have a probability above one
half, so only its Z_i needs a sum of its own.

``l <= softmax(c) <= u`` holds by construction, and ``sum l <= 1 <= sum u`` follows. The set is therefore valid without the
paper's scaling. The scaling lets u exceed 1 and keeps the width of a certain distribution above 0.02.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxspec.core.types import Array

SCALINGS = ("none", "paper")
_LOWER_MASS, _UPPER_MASS = 0.99, 1.01
_FAR = 1e30


class Bounds(NamedTuple):
  """Lower and upper probabilities ``[..., V]`` float32; ``width`` is their difference, computed without cancellation."""

  lower: Array
  upper: Array
  width: Array


def log_odds(logits: Array) -> Array:
  """``logit(softmax(logits))``, ``[..., V]``; -inf for tokens that are masked out by a logit of -inf.

  Raises:
    ValueError: if there are fewer than 2 tokens.
  """
  size = logits.shape[-1]
  if size < 2:
    raise ValueError(f"Must have at least 2 tokens, we instead got {size}")
  ids = jax.lax.broadcasted_iota(jnp.int32, logits.shape, logits.ndim - 1)
  # Sums of exponentials are rounded relative to the largest term, so the largest logit is shifted to 0.
  largest = jax.lax.stop_gradient(jnp.max(logits, axis=-1, keepdims=True))
  logits = logits - jnp.where(jnp.isfinite(largest), largest, 0.0)
  is_top = ids == jnp.argmax(logits, axis=-1, keepdims=True)
  others_of_top = jax.nn.logsumexp(jnp.where(is_top, -jnp.inf, logits), axis=-1, keepdims=True)
  normaliser = jax.nn.logsumexp(logits, axis=-1, keepdims=True)
  # A share of 0 at the top keeps the branch that is not taken finite, and with it the gradient.
  share = jnp.where(is_top, 0.0, jnp.exp(logits - normaliser))
  return logits - jnp.where(is_top, others_of_top, normaliser + jnp.log1p(-share))


def inter_fuse(centre: Array, radius: Array) -> Bounds:
  """Bounds ``[..., V]`` of the probability of each token, not scaled (equations 27 and 28).

  Args:
    centre: ``[..., V]`` logits, -inf on excluded ids.
    radius: ``[..., V]``, at least 0.
  """
  # Computed in float64 only if an input is float64.
  dtype = jnp.promote_types(jnp.float32, jnp.result_type(centre, radius))
  centre, radius = centre.astype(dtype), radius.astype(dtype)
  masked = jnp.isneginf(centre)
  odds = log_odds(centre)
  odds = jnp.where(masked, 0.0, odds)
  inside = lambda values: jnp.where(masked, 0.0, values)
  return Bounds(inside(jax.nn.sigmoid(odds - radius)), inside(jax.nn.sigmoid(odds + radius)), inside(_width(odds, radius)))


def _width(odds: Array, radius: Array) -> Array:
  """``sinh r / (cosh x + cosh r)`` with every exponent at most 0."""
  odds = jnp.clip(odds, -_FAR, _FAR)  # if all but one token are masked, its odds are infinite
  size = jnp.abs(odds)
  largest = jax.lax.stop_gradient(jnp.maximum(size, radius))
  high, low = jnp.exp(size - largest), jnp.exp(-size - largest)
  out, back = jnp.exp(radius - largest), jnp.exp(-radius - largest)
  return -out * jnp.expm1(-2 * radius) / (high + low + out + back)


def scaled_bounds(bounds: Bounds) -> Bounds:
  """The paper's scaling (equations 29 and 30): ``l min(1, 0.99 / sum l)``, ``u max(1, 1.01 / sum u)``; u may exceed 1."""
  lower_sum = jnp.sum(bounds.lower, axis=-1, keepdims=True)
  upper_sum = jnp.sum(bounds.upper, axis=-1, keepdims=True)
  tiny = jnp.finfo(bounds.lower.dtype).tiny
  shrink = jnp.minimum(1.0, _LOWER_MASS / jnp.maximum(lower_sum, tiny))
  grow = jnp.maximum(1.0, _UPPER_MASS / jnp.maximum(upper_sum, tiny))
  # The scaling adds two terms that are not negative to the width, so nothing cancels.
  width = bounds.width + bounds.upper * (grow - 1) + bounds.lower * (1 - shrink)
  return Bounds(bounds.lower * shrink, bounds.upper * grow, width)


def scale(bounds: Bounds, scaling: str) -> Bounds:
  """`scaled_bounds` for ``"paper"``, the bounds themselves for ``"none"``.

  Raises:
    ValueError: for another scaling.
  """
  if scaling not in SCALINGS:
    raise ValueError(f"Must have a scaling in {', '.join(SCALINGS)}, we instead got {scaling!r}")
  return scaled_bounds(bounds) if scaling == "paper" else bounds
