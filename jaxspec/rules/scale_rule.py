"""Acceptance rules for scales, whose tokens are independent given the earlier scales.

The target's distribution of a scale is a product ``P(r) = prod_j p_j(r_j)`` over its positions j, and the draft's is a
product ``Q``. Both rules are exact: an accepted or replaced scale follows P.

* `ScaleRule` accepts the whole scale with probability ``min(1, P(r) / Q(r))``. A rejected scale is replaced by proposals
  from P, accepted with probability ``1 - min(1, Q(r) / P(r))``. Its acceptance is ``1 - TV(P, Q)``, the largest possible.
* `PlaceRule` accepts each position with probability ``min(1, p_j / q_j)`` and replaces the others from ``[p_j - q_j]+``. The
  scale counts as accepted without a replacement, with probability ``prod_j (1 - TV_j)``, which is less.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from jaxspec.core import rng
from jaxspec.core.payloads import DraftedScale, Replaced
from jaxspec.core.types import Array, Key
from jaxspec.sampling.logit_processing import inverse_cdf, probabilities, sample


@dataclasses.dataclass(frozen=True)
class ScaleRule:
  """Accepts or rejects a scale as a whole.

  Attributes:
    max_tries: cap on the proposals for a rejected scale; their mean is 1 / TV(P, Q).
  Raises:
    ValueError: for a cap that is not positive.
  """

  max_tries: int = 1000

  def __post_init__(self):
    if self.max_tries < 1:
      raise ValueError(f"Must have max_tries of at least 1, we instead got {self.max_tries}")

  def accepts(self, keys: Key, drafted: DraftedScale) -> Array:
    """See `AcceptScale`; one uniform for the whole scale."""
    return jnp.log(rng.final_uniform(keys)) < _log_ratio(drafted, drafted.tokens)

  def replace(self, keys: Key, drafted: DraftedScale, needed: Array) -> Replaced:
    """See `AcceptScale`; needs no pass of a network."""
    rows, size = drafted.tokens.shape

    def is_open(state: tuple[Array, Replaced, Array]) -> Array:
      number, _, searching = state
      return jnp.any(searching) & (number < self.max_tries)

    def propose(state: tuple[Array, Replaced, Array]) -> tuple[Array, Replaced, Array]:
      number, found, searching = state
      uniform = rng.proposal_uniforms(keys, number, size + 1)
      tokens = sample(drafted.target, uniform[:, :size])
      kept = uniform[:, size] < -jnp.expm1(jnp.minimum(-_log_ratio(drafted, tokens), 0.0))
      tokens = jnp.where(searching[:, None], tokens, found.tokens)
      found = Replaced(tokens, found.tries + searching, found.fallback)
      return number + 1, found, searching & ~kept

    nothing = Replaced(jnp.zeros((rows, size), jnp.int32), jnp.zeros((rows,), jnp.int32), jnp.zeros((rows,), bool))
    _, found, searching = jax.lax.while_loop(is_open, propose, (jnp.int32(0), nothing, needed))
    return found._replace(fallback=searching)


@dataclasses.dataclass(frozen=True)
class PlaceRule:
  """Accepts or rejects every position of a scale; for comparison with `ScaleRule`."""

  def accepts(self, keys: Key, drafted: DraftedScale) -> Array:
    """See `AcceptScale`; a uniform for each position."""
    return jnp.all(self._places(keys, drafted), axis=1)

  def replace(self, keys: Key, drafted: DraftedScale, needed: Array) -> Replaced:
    """See `AcceptScale`; accepted positions stay."""
    residual = jnp.maximum(probabilities(drafted.target) - probabilities(drafted.draft), 0.0)
    other = inverse_cdf(residual, rng.proposal_uniforms(keys, jnp.int32(0), drafted.tokens.shape[1]))
    tokens = jnp.where(self._places(keys, drafted), drafted.tokens, other)
    return Replaced(tokens, needed.astype(jnp.int32), jnp.zeros(needed.shape, bool))

  def _places(self, keys: Key, drafted: DraftedScale) -> Array:
    uniform = rng.uniforms(keys, drafted.tokens.shape[1])
    return jnp.log(uniform) < _log_ratios(drafted, drafted.tokens)


def _log_ratios(drafted: DraftedScale, tokens: Array) -> Array:
  """``log p_j / q_j [B, S]`` of tokens in the support of p_j or q_j."""
  at = lambda logits: jnp.take_along_axis(jax.nn.log_softmax(logits, axis=-1), tokens[..., None], axis=-1)[..., 0]
  return at(drafted.target) - at(drafted.draft)


def _log_ratio(drafted: DraftedScale, tokens: Array) -> Array:
  """``log P / Q [B]`` of scales ``[B, S]`` in the support of P or Q."""
  return jnp.sum(_log_ratios(drafted, tokens), axis=1)
