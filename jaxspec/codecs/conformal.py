"""C-SQS: a threshold on probabilities, moved by online conformal control (Gibbs and Candes 2021).

The support is ``X(beta) = {x : q(x) >= beta}``. For one committed token with dropped mass d,

  beta <- beta - eta (d - alpha),

so that the mean of d over committed tokens goes to alpha. With ``c[1]`` the threshold at the start of a round and
``c[n+1] = c[n] - eta (d_n - alpha)`` while drafting, a round that commits A drafts and M more tokens, one or none, leaves

  text     c[A+M+1]: each committed token counts once, with the draft's distribution at its own position (the default);
  literal  c[A+1]:   the published Algorithm 1, line 12, which never counts the token that ends the round;
  drafted  c[L+1]:   no roll-back.

Rolling back is therefore a gather from the thresholds of the round. With ``text`` only, and ``beta_1 >= -eta (1 - alpha)``,
every path obeys ``mean d <= alpha + (beta_1 + eta (1 - alpha)) / (eta T)`` if no support is truncated to its static size.

A step may be five orders of magnitude smaller than the threshold, so the threshold is carried as an unevaluated sum of two
floats. With the exact rule, committed tokens follow the target's distribution for every threshold; only the sizes of
messages and the acceptance depend on it.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar, NamedTuple

import jax.numpy as jnp

from jaxspec.codecs.sparsify import Support, top_support
from jaxspec.core.types import Array


class ConformalParams(NamedTuple):
  """Traced settings, each ``[]`` or ``[B]`` float."""

  first: Array  # beta_1
  eta: Array  # step size; 0 leaves the threshold fixed
  alpha: Array  # mean dropped mass to reach


class Threshold(NamedTuple):
  """The threshold beta as ``high + low``, leaves ``[B]``."""

  high: Array
  low: Array

  @property
  def value(self) -> Array:
    """The threshold ``[B]``, rounded to one float."""
    return self.high + self.low


@dataclasses.dataclass(frozen=True)
class Conformal:
  """C-SQS, static part.

  Attributes:
    max_support: static size of supports.
    policy: which updates stay after the verdict, see the module's docstring.
    empty_error: error recorded when no token reaches the threshold and the most probable token is sent instead: ``one`` (the
      defined set is empty and drops all mass) or ``true`` (the mass actually dropped). With ``true`` the threshold is
      clipped at 1, or a run of certain tokens would wind it up.
  Raises:
    ValueError: for an unknown policy or error.
  """

  max_support: int
  policy: str = "text"
  empty_error: str = "one"

  POLICIES: ClassVar[tuple[str, ...]] = ("text", "literal", "drafted")
  EMPTY_ERRORS: ClassVar[tuple[str, ...]] = ("one", "true")

  def __post_init__(self):
    for name, known in (("policy", self.POLICIES), ("empty_error", self.EMPTY_ERRORS)):
      if getattr(self, name) not in known:
        raise ValueError(f"Must have {name} in {', '.join(known)}, we instead got {getattr(self, name)!r}")

  def init(self, params: ConformalParams, rows: int) -> Threshold:
    first = jnp.broadcast_to(params.first, (rows,))
    return Threshold(first, jnp.zeros_like(first))

  def support(self, params: ConformalParams, state: Threshold, q: Array, cap: Array) -> Support:
    # By the definition, the set at beta <= 0 includes tokens of probability 0, which cost bits and carry no mass.
    above = (q >= state.value[:, None]) & (q > 0)
    literal = jnp.where(state.value <= 0, q.shape[-1], jnp.sum(above.astype(jnp.int32), axis=-1))
    was_empty = literal == 0
    size = jnp.clip(jnp.sum(above.astype(jnp.int32), axis=-1), 1, cap)
    support = top_support(q, size, max_support=self.max_support)
    # A truncated set is priced by the size that is sent.
    literal = jnp.where(literal > cap, size, jnp.maximum(literal, 1))
    return support._replace(literal_size=literal, was_empty=was_empty)

  def error(self, support: Support) -> Array:
    """Dropped mass ``[B]`` that the controller receives."""
    return jnp.where(support.was_empty, 1.0, support.dropped) if self.empty_error == "one" else support.dropped

  def update(self, params: ConformalParams, state: Threshold, support: Support) -> Threshold:
    high, low = moved(params, state, self.error(support))
    if self.empty_error == "true":
      low = jnp.where(high > 1, 0.0, low)
      high = jnp.minimum(high, 1.0)
    # At beta <= 0 nothing is dropped, so only truncated supports take a path below this floor, which then stops the windup.
    floor = jnp.minimum(-params.eta * (1 - params.alpha), params.first)
    return Threshold(jnp.maximum(high, floor), jnp.where(high < floor, 0.0, low))

  def rollback_position(self, num_committed: Array, num_accepted: Array, num_drafted: Array) -> Array:
    return {"text": num_committed, "literal": num_accepted, "drafted": num_drafted}[self.policy]


def moved(params: ConformalParams, state: Threshold, error: Array) -> Threshold:
  """One step of the controller, ``beta - eta (error - alpha)``, without limits; ``error [B]``.

  Over T steps ``mean error = alpha + (beta_1 - beta_T) / (eta T)``. If the threshold stays bounded, the mean goes to alpha.
  """
  return Threshold(*_two_sum(state.high, state.low - params.eta * (error - params.alpha)))


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
  """``a + b`` rounded, and the rounding error (Knuth)."""
  total = a + b
  virtual = total - a
  return total, (a - (total - virtual)) + (b - virtual)
