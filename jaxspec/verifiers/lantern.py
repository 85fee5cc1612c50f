"""LANTERN and LANTERN++: a draft borrows the probability of its nearest codes.

LANTERN (Jang et al. 2025, arXiv 2410.03355), LANTERN++ (Park et al. 2025, arXiv 2502.06352). For a draft x under
target p:

1. A(x) is the longest nearest-first prefix of the k nearest codes of x whose mass S(A) stays within a limit: ``bound``
   (LANTERN, delta) or ``(bound - 1) p(x)`` (LANTERN++, lambda). If the first code is already above it, A is empty.
2. The relaxed probability is ``p_rel(x) = p(x) + S(A)``.
3. A candidate that was certain is kept with probability ``min(1, p_rel(x))``; one that was sampled from q with
   ``min(1, p_rel(x) / q(x))``.
4. After a rejection the law changes (`Lantern.after_point`, `Lantern.after_sample`) and the next candidate of the place
   is judged, or a token emitted.

Lossy. Every token may borrow at once, so an additive bound does **not** limit the bias by delta: with p on m codes and q
on their nearest codes, delta = 1/m keeps every draft and emits q. With the multiplicative bound ``q a <= bound * p``,
and a token outside the target's support is never kept.

The methods judge one place and know no chain and no tree; leading axes ``...`` are free.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from jaxspec.types import Array
from jaxspec.verifiers.chain import ChainRule, at, lossless_weights, ratio, usable_weights

# Tokens relaxed together when all of them are asked for: bounds the memory at [..., block, k].
_BLOCK = 256


class Relaxed(NamedTuple):
  """A draft and the neighbours it borrows from."""

  mass: Array  # [...] p(x) + S(A)
  members: Array  # [..., k] int32, the nearest codes, nearest first
  taken: Array  # [..., k] bool, True on the prefix A


def relaxed_mass(neighbours: Array, p: Array, tokens: Array, limit: Array) -> Relaxed:
  """p(x) and the mass of the longest nearest-first prefix of its neighbours that stays within ``limit``.

  Args:
    neighbours: ``[V, k]`` int32 nearest other codes of every code, nearest first.
    p: ``[..., V]`` law.
    tokens: ``[...]`` int32.
    limit: ``[...]`` largest mass to borrow.
  """
  members = neighbours[tokens]  # [..., k]
  p_y = jnp.take_along_axis(p, members, axis=-1)
  taken = jnp.cumsum(p_y, axis=-1) <= limit[..., None]  # sums grow, so this is a prefix
  return Relaxed(at(p, tokens) + jnp.sum(jnp.where(taken, p_y, 0.0), axis=-1), members, taken)


@dataclasses.dataclass(frozen=True)
class Lantern(ChainRule):
  """LANTERN (``relative=False``) or LANTERN++ (``relative=True``); ``tables`` is a `neighbour_table`.

  Attributes:
    num_neighbours: k; the table may hold more columns, and fewer only if it holds all V - 1.
    bound: delta (largest borrowed mass), or lambda (largest ratio p_rel / p) if ``relative``.
    relative: the bound is a ratio.
    residual: what is emitted after a rejection. ``optimal`` ``[p - q a]+``, here the same as ``[p - q]+``; ``paper``
      as published, without x and the codes it borrowed from; ``compat`` as in the released code (jadohu/LANTERN
      3a56e45), which reads k + 1 neighbours, treats certain and sampled candidates in opposite ways, and is both
      slower and further from p.
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
  def residual_reads_token(self) -> bool:
    """See `ChainRule`; only the optimal residual is the same for every rejected token."""
    return self.residual != "optimal"

  @property
  def never_below_lossless(self) -> bool:
    """See `ChainRule`; borrowing only adds."""
    return True

  def relax(self, tables: Array, p: Array, tokens: Array) -> Relaxed:
    """`relaxed_mass` with this rule's limit."""
    p_x = at(p, tokens)
    limit = (self.bound - 1) * p_x if self.relative else jnp.full_like(p_x, self.bound)
    return relaxed_mass(self._columns(tables, self.num_neighbours), p, tokens, limit)

  def accept_point(self, tables: Array, tokens: Array, p: Array) -> Array:
    """Probability ``[...]`` of keeping a certain candidate (drafted with probability 1)."""
    return jnp.minimum(self.relax(tables, p, tokens).mass, 1.0)

  def accept_greedily(self, tables: Array, tokens: Array, p: Array) -> Array:
    """Temperature 0: True where the draft is the most probable token once its own entry is p_rel(x)."""
    relaxed = self.relax(tables, p, tokens).mass[..., None]
    ids = jax.lax.broadcasted_iota(jnp.int32, p.shape, p.ndim - 1)
    return jnp.argmax(jnp.where(ids == tokens[..., None], relaxed, p), axis=-1) == tokens

  def after_point(self, tables: Array, tokens: Array, p: Array) -> Array:
    """The law ``[..., V]`` of the place after a certain candidate was rejected under law p.

    ``optimal`` removes x and nothing else, ``paper`` x and A, ``compat`` x and, unless A is empty, k + 1 neighbours;
    it goes on with the uniform law over all ids where nothing is left.
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
    """The law ``[..., V]`` of the place after a candidate sampled from q was rejected under law p.

    For children drawn without replacement, q is the law of the child given its earlier siblings.
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
      # [p' - q]+ where p' has the mass of A moved onto x: nothing is left on A, nor on x, which was rejected.
      relaxed = self.relax(tables, p, tokens)
      left = _without(lossless_weights(tokens, p, q), tokens[..., None], True)
      return _without(left, relaxed.members, relaxed.taken)
    if self.residual == "compat":
      return self._compat_left(lossless_weights(tokens, p, self._without_block(tables, q, p, tokens)))
    return super().residual_weights(tables, tokens, p, q)

  def _without_block(self, tables: Array, law: Array, p: Array, tokens: Array) -> Array:
    """``law`` without the first k + 1 neighbours wherever anything was borrowed (released code)."""
    borrowed = self.relax(tables, p, tokens).taken[..., :1]
    block = self._columns(tables, self.num_neighbours + 1)[tokens]
    return _without(law, block, borrowed)

  def _compat_left(self, weights: Array) -> Array:
    nothing = jnp.sum(weights, axis=-1, keepdims=True) <= 0
    return jnp.where(nothing, 1.0, weights)

  def _columns(self, tables: Array, num: int) -> Array:
    size, columns = tables.shape
    if columns < min(num, size - 1):
      raise ValueError(f"Must have a table of {min(num, size - 1)} neighbours, we instead got {columns}")
    return tables[:, :num]


def _without(law: Array, ids: Array, where: Array | bool) -> Array:
  """``law [..., V]`` with 0 at ``ids [..., n]`` where ``where`` (broadcast over n)."""
  size = law.shape[-1]
  flat = law.reshape(-1, size)
  # An id of V lies outside and is dropped.
  removed = jnp.where(where, ids, size).reshape(flat.shape[0], -1)
  rows = jnp.arange(flat.shape[0])[:, None]
  return flat.at[rows, removed].set(0.0, mode="drop").reshape(law.shape)


# Rules read like functions where they are used: jaxspec.lantern(10, 0.05).
lantern = Lantern


def lantern_plus_plus(num_neighbours: int = 10, factor: float = 5.0, *, residual: str = "optimal") -> Lantern:
  """LANTERN++: borrowed mass is at most ``(factor - 1) p(x)``; run scripts use (10, 5), (5, 10) and (5, 20)."""
  return Lantern(num_neighbours, factor, True, residual=residual)
