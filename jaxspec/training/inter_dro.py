"""The Inter-DRO loss of an Inter-Head (CIAR, arXiv 2603.25463, equations 9 to 12).

At a position let pi be the cloud's frozen distribution, c the centre, r the radius, and ``p_mid, p_up, p_lo = softmax of c,
c + r, c - r``:

  anchor(p) = lambda_v |p - pi|_1 + lambda_p CE(pi, p)
  align     = lambda_kl KL(pi || p_mid)
  dro       = sum_k w_k CE(pi_k, p_lo,k),   w = softmax over all positions of the batch of alpha CE(pi_k, p_lo,k)
  total     = mean of anchor(p_mid) + align + anchor(p_up) + anchor(p_lo), + dro

The weights w are the maximiser of the KL-regularised inner problem. They are therefore constants of the gradient, which is
that of ``logsumexp(alpha e) / alpha``. They depend on the whole batch: accumulating micro-batches would change them.

Three facts follow from the formulas.

1. CE and KL to a frozen distribution have the same gradient, so only the sum of lambda_p and lambda_kl acts on the centre.
2. Softmax ignores a common shift, so the loss does not change under ``r -> r + constant``. The *level* of the radii, and
   with it the scale of U, therefore follows from initialisation and weight decay. Two further terms fix the level. They are
   not from the paper and are off by default.
3. Splitting codes into M equal synonyms changes the gradient by a code's centre and radius through w alone: the error of a
   position grows by log M times the probability of the split codes.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from jaxspec.core.types import Array, Intervals
from jaxspec.intervals.inter_fuse import inter_fuse


@dataclasses.dataclass(frozen=True)
class InterDro:
  """Weights and switches; the paper gives no values.

  Attributes:
    variation: lambda_v.
    cross_entropy: lambda_p.
    divergence: lambda_kl.
    alpha: sharpness of the weights of positions.
    centre, upper, lower: whether L_c (anchor of p_mid and align), L_u (anchor of p_up) and L_l (anchor of p_lo and dro) are
      part of the loss. With ``anchor`` False no anchor is (the ablations of Table 7).
    radius_weight: weight of ``(mean r - radius_goal)^2``; not from the paper.
    coverage_weight, width_weight: weights of the mass of pi outside of the InterFuse bounds and of the volume of the bounds;
      not from the paper.
  """

  variation: float = 1.0
  cross_entropy: float = 0.1
  divergence: float = 1.0
  alpha: float = 1.0
  centre: bool = True
  upper: bool = True
  lower: bool = True
  anchor: bool = True
  radius_weight: float = 0.0
  radius_goal: float = 0.5
  coverage_weight: float = 0.0
  width_weight: float = 0.0

  def __post_init__(self):
    for name in ("variation", "cross_entropy", "divergence", "alpha", "radius_weight", "coverage_weight", "width_weight"):
      if not getattr(self, name) >= 0:
        raise ValueError(f"Must have {name} of at least 0, we instead got {getattr(self, name)}")
    if not (self.centre or self.upper or self.lower):
      raise ValueError("Must have one of centre, upper and lower, we instead got none")


def worst_case(errors: Array, alpha: float, valid: Array) -> Array:
  """``sum w e`` with ``w = softmax(alpha e)`` over all valid positions; w is a constant of the gradient."""
  weights = jax.nn.softmax(jnp.where(valid, alpha * jax.lax.stop_gradient(errors), -jnp.inf).reshape(-1))
  return jnp.sum(weights * jnp.where(valid, errors, 0.0).reshape(-1))


def inter_dro(
  intervals: Intervals, cloud_logits: Array, config: InterDro, valid: Array | None = None
) -> tuple[Array, dict[str, Array]]:
  """The loss of one head, or the mean over heads.

  Args:
    intervals: ``[B, T, H, V]``.
    cloud_logits: ``[B, T, V]`` of the frozen cloud (guided if guidance is used); no gradient reaches them.
    config: weights and switches.
    valid: ``[B or 1, T]`` bool, positions that count; all by default.
  Returns:
    ``[]`` float32, and its terms by name.
  """
  heads = intervals.centre.shape[-2]
  shape = cloud_logits.shape[:2]
  valid = jnp.ones(shape, bool) if valid is None else jnp.broadcast_to(valid, shape)
  dtype = jnp.promote_types(jnp.float32, cloud_logits.dtype)
  distribution = jax.nn.softmax(jax.lax.stop_gradient(cloud_logits).astype(dtype), axis=-1)
  parts = [
    _one_head(intervals.centre[:, :, h], intervals.radius[:, :, h], distribution, config, valid) for h in range(heads)
  ]
  terms = jax.tree.map(lambda *values: sum(values) / heads, *parts)
  return jnp.asarray(sum(terms.values())), terms


def _one_head(centre: Array, radius: Array, distribution: Array, config: InterDro, valid: Array) -> dict[str, Array]:
  mean = lambda values: jnp.sum(jnp.where(valid, values, 0.0)) / jnp.maximum(jnp.sum(valid), 1)
  log_p = {name: jax.nn.log_softmax(x) for name, x in (("mid", centre), ("up", centre + radius), ("lo", centre - radius))}
  entropy = {name: -jnp.sum(distribution * value, axis=-1) for name, value in log_p.items()}  # [B, T] cross entropies

  def anchor(name: str) -> Array:
    if not config.anchor:
      return jnp.float32(0)
    distance = jnp.sum(jnp.abs(jnp.exp(log_p[name]) - distribution), axis=-1)
    return mean(config.variation * distance + config.cross_entropy * entropy[name])

  terms = {}
  if config.centre:
    own = -jnp.sum(
      jnp.where(distribution > 0, distribution * jnp.log(jnp.where(distribution > 0, distribution, 1.0)), 0.0), axis=-1
    )
    terms |= {"anchor_mid": anchor("mid"), "align": config.divergence * mean(entropy["mid"] - own)}
  if config.upper:
    terms["anchor_up"] = anchor("up")
  if config.lower:
    terms |= {"anchor_lo": anchor("lo"), "dro": worst_case(entropy["lo"], config.alpha, valid)}
  if config.radius_weight:
    terms["radius"] = config.radius_weight * jnp.square(mean(jnp.mean(radius, axis=-1)) - config.radius_goal)
  if config.coverage_weight or config.width_weight:
    bounds = inter_fuse(centre, radius)
    outside = jax.nn.relu(distribution - bounds.upper) + jax.nn.relu(bounds.lower - distribution)
    terms["coverage"] = config.coverage_weight * mean(jnp.sum(outside, axis=-1))
    terms["width"] = config.width_weight * mean(jnp.sum(bounds.width, axis=-1))
  return terms


# The ablations of Table 7 by name.
ABLATIONS = {
  "full": InterDro(),
  "without_centre": InterDro(centre=False),
  "without_upper": InterDro(upper=False),
  "without_lower": InterDro(lower=False),
  "without_anchor": InterDro(anchor=False),
}
