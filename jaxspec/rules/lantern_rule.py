"""LANTERN and LANTERN++: a draft borrows the probability of its nearest codes.

LANTERN (Jang et al. 2025, arXiv 2410.03355), LANTERN++ (Park et al. 2025, arXiv 2502.06352). For a draft x under
target p:

1. The set A(x) has the nearest of the k neighbouring codes of x whose mass S(A) is within a limit: ``bound`` (LANTERN,
   delta) or ``(bound - 1) p(x)`` (LANTERN++, lambda). If the first code exceeds the limit, A is empty.
2. The relaxed probability is ``p_rel(x) = p(x) + S(A)``.
3. A certain candidate is accepted with probability ``min(1, p_rel(x))``, a candidate sampled from q with probability
   ``min(1, p_rel(x) / q(x))``.
4. After a rejection the distribution changes (`LanternRule.after_point`, `LanternRule.after_sample`). Then the next
   candidate of the position is judged, or a token is drawn.

The rule is lossy. All tokens may borrow at the same time, so an additive bound does **not** limit the bias to delta: with p
on m codes and q on their nearest codes, delta = 1/m accepts every draft and the output follows q. With the multiplicative
bound, ``q a <= bound * p``, and a token outside the target's support is never accepted.

The methods judge one position, independent of chains and trees; leading axes ``...`` are free.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp

from jaxspec.core.types import Array
from jaxspec.rules.chain_rule import ChainRule, ratio
from jaxspec.sampling.residual import at, lossless_weights, usable_weights

# Tokens that `accept_all` relaxes together; this bounds its memory at [..., block, k].
_BLOCK = 256


class Relaxed(NamedTuple):
  """A draft and the neighbours that it borrows from."""

  mass: Array  # [...] p(x) + S(A)
  members: Array  # [..., k] int32, the nearest codes, nearest first
  taken: Array  # [..., k] bool, True on the set A, which are the first columns


def relaxed_mass(neighbours: Array, p: Array, tokens: Array, limit: Array) -> Relaxed:
  """p(x) plus the mass of its nearest neighbours, up to ``limit``.

  Args:
    neighbours: ``[V, k]`` int32 nearest other codes of every code, nearest first.
    p: ``[..., V]`` probabilities.
    tokens: ``[...]`` int32.
    limit: ``[...]`` largest mass to borrow.
  """
  members = neighbours[tokens]  # [..., k]
  p_y = jnp.take_along_axis(p, members, axis=-1)
  taken = jnp.cumsum(p_y, axis=-1) <= limit[..., None]  # sums grow, so these are the first columns
  return Relaxed(at(p, tokens) + jnp.sum(jnp.where(taken, p_y, 0.0), axis=-1), members, taken)


@dataclasses.dataclass(frozen=True)
class LanternRule(ChainRule):
  """LANTERN (``relative=False``) or LANTERN++ (``relative=True``); ``tables`` is a `neighbour_table`.

  Attributes:
    num_neighbours: k; the table may hold more columns, and fewer only if it holds all V - 1.
    bound: delta (largest borrowed mass), or lambda (largest ratio p_rel / p) if ``relative``.
    relative: whether the bound is a ratio.
    residual: weights after a rejection. ``optimal`` is ``[p - q a]+``, here the same as ``[p - q]+``. ``paper`` is as
      published, without x and A. ``compat`` is as in the released code (jadohu/LANTERN 3a56e45), which reads k + 1
      neighbours and treats certain and sampled candidates in opposite ways; it is slower and has more bias.
  Raises:
    ValueError: for a setting out of range.
  """

  num_neighbours: int = 1000
  bound: float = 0.1
  relative: bool = False
  residual: str = dataclasses.field(default="optimal", kw_only=True)

  RESIDUALS: ClassVar[tuple[str, ...]] = ("paper", "compat", "optimal")

  def __post_init__(self):
    super().__post_init__()
    if self.num_neighbours < 1:
      raise ValueError(f"Must have num_neighbours of at least 1, we instead got {self.num_neighbours}")
    if not self.bound >= (1 if self.relative else 0):
      least = "1 for a relative bound" if self.relative else "0"
      raise ValueError(f"Must have a bound of at least {least}, we instead got {self.bound}")

  @property
  def numbers(self) -> tuple[str, ...]:
    """See `ChainRule`."""
    return ("bound",)

  def without_numbers(self) -> Self:
    """See `ChainRule`."""
    return dataclasses.replace(self, bound=float(self.relative))

  @property
  def residual_reads_token(self) -> bool:
    """See `ChainRule`; only the optimal residual does not depend on the rejected token."""
    return self.residual != "optimal"

  @property
  def never_below_lossless(self) -> bool:
    """See `ChainRule`; borrowing only adds to the probability."""
    return True

  def relax(self, tables: Array, p: Array, tokens: Array) -> Relaxed:
    """`relaxed_mass` with this rule's limit."""
    p_x = at(p, tokens)
    limit = (self.bound - 1) * p_x if self.relative else jnp.full_like(p_x, self.bound)
    return relaxed_mass(self._columns(tables, self.num_neighbours), p, tokens, limit)

  def accept_point(self, tables: Array, tokens: Array, p: Array) -> Array:
    """Probability ``[...]`` of accepting a certain candidate (drafted with probability 1)."""
    return jnp.minimum(self.relax(tables, p, tokens).mass, 1.0)

  def accept_greedily(self, tables: Array, tokens: Array, p: Array) -> Array:
    """Test ``[...]`` bool at temperature 0: the draft is the arg-max after its own entry was raised to p_rel(x)."""
    relaxed = self.relax(tables, p, tokens).mass[..., None]
    ids = jax.lax.broadcasted_iota(jnp.int32, p.shape, p.ndim - 1)
    return jnp.argmax(jnp.where(ids == tokens[..., None], relaxed, p), axis=-1) == tokens

  def after_point(self, tables: Array, tokens: Array, p: Array) -> Array:
    """Probabilities ``[..., V]`` of the position after a certain candidate x was rejected under the probabilities p.

    ``optimal`` removes x only. ``paper`` removes x and A. ``compat`` removes x and, unless A is empty, k + 1 neighbours; if
    nothing is left, it continues with the uniform distribution over all ids.
    """
    left = _without(p, tokens[..., None], True)
    if self.residual == "paper":
      relaxed = self.relax(tables, p, tokens)
      left = _without(left, relaxed.members, relaxed.taken)
    elif self.residual == "compat":
      left = self._compat_left(self._without_block(tables, left, p, tokens))
    left = usable_weights(left, p)
    return left / jnp.sum(left, axis=-1, keepdims=True)

  def after_sample(self, tables: Array, tokens: Array, p: Array, q: Array) -> Array:
    """Probabilities ``[..., V]`` of the position after a candidate sampled from q was rejected under the probabilities p.

    For children drawn without replacement, q is the distribution of the child given its earlier siblings.
    """
    weights = usable_weights(self.residual_weights(tables, tokens, p, q), p)
    return weights / jnp.sum(weights, axis=-1, keepdims=True)

  def accept_prob(self, tables: Array, tokens: Array, p: Array, q: Array) -> Array:
    """See `ChainRule.accept_prob`."""
    return ratio(self.relax(tables, p, tokens).mass, at(q, tokens))

  def accept_all(self, tables: Array, p: Array, q: Array) -> Array:
    """See `ChainRule.accept_all`; costs V * k and is not needed to decode."""
    mass_of = lambda token: self.relax(tables, p, jnp.full(p.shape[:-1], token, jnp.int32)).mass
    mass = jax.lax.map(mass_of, jnp.arange(p.shape[-1], dtype=jnp.int32), batch_size=_BLOCK)  # [V, ...]
    return ratio(jnp.moveaxis(mass, 0, -1), q)

  def residual_weights(self, tables: Array, tokens: Array, p: Array, q: Array) -> Array:
    """See `ChainRule.residual_weights`."""
    if self.residual == "paper":
      # [p' - q]+, where p' is p with the mass of A moved onto x. It is 0 on A and on the rejected x.
      relaxed = self.relax(tables, p, tokens)
      left = _without(lossless_weights(tokens, p, q), tokens[..., None], True)
      return _without(left, relaxed.members, relaxed.taken)
    if self.residual == "compat":
      return self._compat_left(lossless_weights(tokens, p, self._without_block(tables, q, p, tokens)))
    return super().residual_weights(tables, tokens, p, q)

  def _without_block(self, tables: Array, distribution: Array, p: Array, tokens: Array) -> Array:
    """``distribution`` without the first k + 1 neighbours if mass was borrowed (released code)."""
    borrowed = self.relax(tables, p, tokens).taken[..., :1]
    block = self._columns(tables, self.num_neighbours + 1)[tokens]
    return _without(distribution, block, borrowed)

  def _compat_left(self, weights: Array) -> Array:
    nothing = jnp.sum(weights, axis=-1, keepdims=True) <= 0
    return jnp.where(nothing, 1.0, weights)

  def _columns(self, tables: Array, num: int) -> Array:
    size, columns = tables.shape
    if columns < min(num, size - 1):
      raise ValueError(f"Must have a table of {min(num, size - 1)} neighbours, we instead got {columns}")
    return tables[:, :num]


def _without(distribution: Array, ids: Array, where: Array | bool) -> Array:
  """``distribution [..., V]`` with 0 at ``ids [..., n]`` where ``where`` (broadcast over n)."""
  size = distribution.shape[-1]
  flat = distribution.reshape(-1, size)
  # An id of V lies outside and is dropped.
  removed = jnp.where(where, ids, size).reshape(flat.shape[0], -1)
  rows = jnp.arange(flat.shape[0])[:, None]
  return flat.at[rows, removed].set(0.0, mode="drop").reshape(distribution.shape)


def lantern_plus_plus(num_neighbours: int = 10, factor: float = 5.0, *, residual: str = "optimal") -> LanternRule:
  """LANTERN++: at most ``(factor - 1) p(x)`` is borrowed; the released scripts use (10, 5), (5, 10) and (5, 20)."""
  return LanternRule(num_neighbours, factor, True, residual=residual)
