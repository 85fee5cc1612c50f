"""Grouped speculative decoding (So et al. 2025, arXiv 2508.07747): a draft is judged by the mass of its group.

For a draft x with target p and proposal q:

1. Sort tokens by ascending p (ties by ascending id); r is the rank of x. The window is ``order[r - G//2 : r + G//2]``.
2. The group C is x with all y of the window that have ``|p(y) - p(x)| < max_gap`` and
   ``distance(x, y) < max_distance``.
3. Accept x with probability ``a = min(1, p(C) / q(C))``; after a rejection draw from ``[p - q]+``.

Probability moves inside groups, so the rule is lossy: ``TV = sum over p < q of [q a - p]+`` at one position, if its
acceptance alpha is at least that of the lossless rule. Windows of different tokens overlap without being equal, so alpha may
also fall below the lossless rule. `GsdRule.max_rule` (the default) takes the larger of both acceptance probabilities. This
never costs acceptance and has ``TV = alpha - alpha_SD``, the least possible.

No sort is needed: the nearest tokens below and above x come from two masked top-k calls of constant k.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple, Self

import jax
import jax.numpy as jnp

from jaxspec.core.types import Array
from jaxspec.rules.chain_rule import ChainRule, ratio
from jaxspec.rules.distances import DistanceTable, TokenVectors
from jaxspec.sampling.residual import at


class Group(NamedTuple):
  """The group of a token, without the token itself."""

  members: Array  # [..., n] int32, tokens of the window
  kept: Array  # [..., n] bool, which of them are in the group


@dataclasses.dataclass(frozen=True)
class GsdRule(ChainRule):
  """Grouped speculative decoding with groups by rank; ``tables`` is a `DistanceTable` or `TokenVectors`.

  Defaults follow the released code (G 14, delta 0.15, d 0.5), except where it is not reproducible or has less acceptance for
  the same bias. `gsd_released` has its edge cases.

  Attributes:
    group_size: G, the number of ranks that the window spans.
    max_gap: delta; probabilities inside a group differ from p(x) by less than this.
    max_distance: d; distances from x inside a group are below this, in the units of the table.
    window: ``paper`` spans ranks r - G//2 .. r + G//2 - 1, one more below than above; ``centered`` spans G//2 ranks
      on each side (G + 1 tokens when G is even).
    edge: at the bottom (r < G//2) ``clip`` cuts the window. ``compat`` judges x alone, because the slice of the released
      code is empty there. Both cut the window at the top.
    support: ``target`` lets only tokens with p > 0 enter a group and rejects x with p(x) = 0. ``compat`` follows the
      released code: tokens that logit processing removed may enter, in the order of their ids (there the order is
      arbitrary); x outside the target's support may be accepted because of its group; x with q(C) = 0 is rejected.
    max_rule: accept with probability max(a, min(1, p(x)/q(x))).
  Raises:
    ValueError: for a setting out of range.
  """

  group_size: int = 14
  max_gap: float = 0.15
  max_distance: float = 0.5
  window: str = "paper"
  edge: str = "clip"
  support: str = "target"
  max_rule: bool = True

  def __post_init__(self):
    super().__post_init__()
    if self.group_size < 1:
      raise ValueError(f"Must have group_size of at least 1, we instead got {self.group_size}")
    for name in ("max_gap", "max_distance"):
      if not getattr(self, name) >= 0:
        raise ValueError(f"Must have {name} of at least 0, we instead got {getattr(self, name)}")
    named = {"window": ("paper", "centered"), "edge": ("clip", "compat"), "support": ("target", "compat")}
    for name, choices in named.items():
      if getattr(self, name) not in choices:
        raise ValueError(f"Must have {name} in {', '.join(choices)}, we instead got {getattr(self, name)!r}")

  @property
  def numbers(self) -> tuple[str, ...]:
    """See `ChainRule`."""
    return ("max_gap", "max_distance")

  def without_numbers(self) -> Self:
    """See `ChainRule`."""
    return dataclasses.replace(self, max_gap=0.0, max_distance=0.0)

  @property
  def never_below_lossless(self) -> bool:
    """See `ChainRule`."""
    return self.max_rule

  @property
  def reach(self) -> tuple[int, int]:
    """Number of ranks of the window below and above the token."""
    half = self.group_size // 2
    return half, half if self.window == "centered" else max(half - 1, 0)

  def accept_prob(self, tables: DistanceTable | TokenVectors, tokens: Array, p: Array, q: Array) -> Array:
    """See `ChainRule.accept_prob`."""
    group, p_x, q_x = self.group_of(tables, tokens, p), at(p, tokens), at(q, tokens)
    total = lambda distribution: jnp.sum(jnp.where(group.kept, _gather(distribution, group.members), 0.0), axis=-1)
    return self._judge(p_x + total(p), q_x + total(q), p_x, q_x)

  def group_of(self, tables: DistanceTable | TokenVectors, tokens: Array, p: Array) -> Group:
    """The group of each token ``[...]`` under ``p [..., V]``."""
    members, inside, rank = self.window_of(tokens, p)
    return Group(members, self._filter(tables, tokens, at(p, tokens), rank, members, inside, _gather(p, members)))

  def window_of(self, tokens: Array, p: Array) -> tuple[Array, Array, Array]:
    """The tokens next to x in the order of p, without x.

    Returns:
      members ``[..., n]`` int32 ids: below x in descending order, then above x in ascending order; inside ``[..., n]``
      bool, False where the order has no such rank; rank ``[...]`` int32, the number of tokens below x.
    """
    below_reach, above_reach = self.reach
    size = p.shape[-1]
    ids = jax.lax.broadcasted_iota(jnp.int32, p.shape, p.ndim - 1)
    x, p_x = tokens[..., None], at(p, tokens)[..., None]
    below = (p < p_x) | ((p == p_x) & (ids < x))
    rank = jnp.sum(below, axis=-1, dtype=jnp.int32)
    above = ~below & (ids != x)
    if self.support == "target":
      below, above = below & (p > 0), above & (p > 0)
    # top_k breaks ties by the smaller index. Below x the larger id is nearer, so the ids are reversed.
    low, low_index = jax.lax.top_k(jnp.flip(jnp.where(below, p, -1.0), axis=-1), min(below_reach, size))
    high, high_index = jax.lax.top_k(jnp.where(above, -p, -2.0), min(above_reach, size))
    members = jnp.concatenate([size - 1 - low_index, high_index], axis=-1)
    return members, jnp.concatenate([low >= 0, high >= -1.5], axis=-1), rank

  def accept_all(self, tables: DistanceTable | TokenVectors, p: Array, q: Array) -> Array:
    """See `ChainRule.accept_all`; one sort serves all tokens, and memory does not grow with the group."""
    below_reach, above_reach = self.reach
    size = p.shape[-1]
    order = jnp.argsort(p, axis=-1, stable=True)  # [..., V] token at each rank
    p_x, q_x = (jnp.take_along_axis(distribution, order, axis=-1) for distribution in (p, q))
    rank = jnp.broadcast_to(jnp.arange(size, dtype=jnp.int32), p.shape)
    widths = [(0, 0)] * (p.ndim - 1) + [(below_reach, above_reach)]
    padded = [jnp.pad(x, widths, constant_values=fill) for x, fill in ((order, 0), (p_x, -1.0), (q_x, 0.0))]

    def add(total: tuple[Array, Array], offset: Array) -> tuple[tuple[Array, Array], None]:
      """Adds the tokens that are ``offset`` ranks above every token."""
      member, p_y, q_y = (jax.lax.dynamic_slice_in_dim(x, below_reach + offset, size, axis=-1) for x in padded)
      inside = p_y > 0 if self.support == "target" else p_y >= 0
      kept = self._filter(tables, order, p_x, rank, member[..., None], inside[..., None], p_y[..., None])[..., 0]
      return (total[0] + jnp.where(kept, p_y, 0.0), total[1] + jnp.where(kept, q_y, 0.0)), None

    offsets = jnp.array([i for i in range(-below_reach, above_reach + 1) if i], jnp.int32)
    (p_group, q_group), _ = jax.lax.scan(add, (p_x, q_x), offsets)
    return jnp.take_along_axis(self._judge(p_group, q_group, p_x, q_x), jnp.argsort(order, axis=-1), axis=-1)

  # In the following, L are the axes of the tokens: [*L]; their members are [*L, n].

  def _filter(
    self,
    tables: DistanceTable | TokenVectors,
    tokens: Array,
    p_x: Array,
    rank: Array,
    members: Array,
    inside: Array,
    p_members: Array,
  ) -> Array:
    """Which members are in the group: bool ``[*L, n]``."""
    kept = inside & (jnp.abs(p_members - p_x[..., None]) < self.max_gap)
    kept &= tables.between(tokens, members) < self.max_distance
    if self.edge == "compat":
      kept &= (rank >= self.group_size // 2)[..., None]
    return kept

  def _judge(self, p_group: Array, q_group: Array, p_x: Array, q_x: Array) -> Array:
    """Acceptance probabilities ``[*L]`` of tokens and their groups."""
    accept = ratio(p_group, q_group)
    if self.support == "compat":
      accept = jnp.where(q_group > 0, accept, 0.0)
    if self.max_rule:
      accept = jnp.maximum(accept, ratio(p_x, q_x))
    return accept if self.support == "compat" else jnp.where(p_x > 0, accept, 0.0)


def _gather(distribution: Array, members: Array) -> Array:
  """Entries of ``distribution [..., V]`` at members ``[..., n]``."""
  return jnp.take_along_axis(distribution, members, axis=-1)


def gsd_released(group_size: int = 14, max_gap: float = 0.15, max_distance: float = 0.5) -> GsdRule:
  """`GsdRule` with the edge cases of the released code (junhyukso/GSD 4216c7c), for parity.

  Not reproduced: the arbitrary order of removed tokens, and the missing distance filter for ids above 10000 (image ids are
  smaller).
  """
  return GsdRule(group_size, max_gap, max_distance, edge="compat", support="compat", max_rule=False)
