"""Entropy of a set of distributions on the k most probable tokens and one merged rest class: the discrete-k baseline.

CIAR (arXiv 2603.25463, Table 3) names a baseline on "k tokens" by "enumeration of solutions" and does not define it. This
module follows the literature on credal sets. The k tokens of largest centre probability have intervals of their own. The
others are merged into one class with bounds ``max(0, 1 - sum u)`` and ``1 - sum l``. The score is the largest entropy in
the set, or largest minus smallest.

* Largest: water-filling, ``p_i = clip(level, l_i, u_i)`` with the level found by bisection; exact in O(k log 1/eps).
* Largest, ``generic``: all assignments of coordinates to {lower, upper, free}. Only this search has exponential cost, not
  the quantity itself.
* Smallest: entropy is concave, so its minimum is at a vertex, where at most one coordinate is strictly inside its interval.
  Up to `MAX_EXACT` tokens it is found exactly by enumeration, else greedily (mass to the largest upper bounds first).
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.core.types import Array
from jaxspec.intervals.inter_fuse import Bounds

MAX_EXACT, MAX_GENERIC = 12, 8
_BISECTIONS = 50
_SLACK = 1e-6


def merged(bounds: Bounds, centre: Array, k: int) -> tuple[Array, Array]:
  """Lower and upper probabilities ``[..., k + 1]`` of the k likeliest tokens and of the merged rest class."""
  k = min(k, centre.shape[-1] - 1)
  _, ids = jax.lax.top_k(centre, k)
  lower, upper = (jnp.take_along_axis(x, ids, axis=-1) for x in (bounds.lower, bounds.upper))
  rest_lower = jnp.maximum(0.0, 1 - jnp.sum(upper, axis=-1, keepdims=True))
  rest_upper = jnp.maximum(rest_lower, 1 - jnp.sum(lower, axis=-1, keepdims=True))
  return jnp.concatenate([lower, rest_lower], axis=-1), jnp.concatenate([upper, rest_upper], axis=-1)


def entropy(p: Array) -> Array:
  """Shannon entropy ``[...]`` in nats of ``p [..., n]``."""
  return -jnp.sum(jnp.where(p > 0, p * jnp.log(jnp.where(p > 0, p, 1.0)), 0.0), axis=-1)


def water_level_distribution(lower: Array, upper: Array) -> Array:
  """The distribution ``[..., n]`` of largest entropy between the bounds; they must enclose a distribution."""
  low, high = jnp.zeros(lower.shape[:-1]), jnp.ones(lower.shape[:-1])
  fill = lambda level: jnp.minimum(jnp.maximum(level[..., None], lower), upper)

  def halve(_, ends):
    low, high = ends
    middle = (low + high) / 2
    short = jnp.sum(fill(middle), axis=-1) < 1
    return jnp.where(short, middle, low), jnp.where(short, high, middle)

  low, high = jax.lax.fori_loop(0, _BISECTIONS, halve, (low, high))
  return fill((low + high) / 2)


def largest_entropy(lower: Array, upper: Array, solver: str) -> Array:
  """Largest entropy ``[...]`` in nats of a distribution between the bounds ``[..., n]``.

  Raises:
    ValueError: if the solver is ``generic`` and there are more than `MAX_GENERIC` tokens besides the rest class.
  """
  if solver == "waterfill":
    return entropy(water_level_distribution(lower, upper))
  size = lower.shape[-1]
  if size > MAX_GENERIC + 1:
    raise ValueError(f"Must have at most {MAX_GENERIC} tokens for the generic solver, we instead got {size - 1}")
  # 0: at its lower bound, 1: at its upper bound, 2: free; free coordinates are equal at the optimum.
  status = jnp.asarray(np.array(list(itertools.product(range(3), repeat=size)), np.int32))  # [3^n, n]
  status = _lift(status, lower.ndim - 1)
  free = status == 2
  bound = lambda x: x[..., None, :]
  fixed = jnp.where(free, 0.0, jnp.where(status == 1, bound(upper), bound(lower)))  # [..., 3^n, n]
  number = jnp.sum(free.astype(jnp.float32), axis=-1)
  level = (1 - jnp.sum(fixed, axis=-1)) / jnp.maximum(number, 1.0)  # [..., 3^n]
  p = jnp.where(free, level[..., None], fixed)
  inside = jnp.all((p >= bound(lower) - _SLACK) & (p <= bound(upper) + _SLACK), axis=-1)
  adds_up = jnp.abs(jnp.sum(p, axis=-1) - 1) <= 10 * _SLACK
  return jnp.max(jnp.where(inside & adds_up, entropy(p), -jnp.inf), axis=-1)


def smallest_entropy(lower: Array, upper: Array) -> Array:
  """Smallest entropy ``[...]`` in nats of a distribution between bounds ``[..., n]``; exact for n <= ``MAX_EXACT + 1``."""
  size = lower.shape[-1]
  if size > MAX_EXACT + 1:
    return entropy(_greedy_distribution(lower, upper))
  subsets = jnp.asarray(np.array(list(itertools.product((False, True), repeat=size - 1)), bool))  # [2^(n-1), n-1]
  best = jnp.full(lower.shape[:-1], jnp.inf)
  for inner in range(size):
    others = np.delete(np.arange(size), inner)
    at_upper = _lift(subsets, lower.ndim - 1)
    fixed = jnp.where(at_upper, upper[..., None, others], lower[..., None, others])
    left = 1 - jnp.sum(fixed, axis=-1)  # [..., 2^(n-1)]
    fits = (left >= lower[..., inner, None] - _SLACK) & (left <= upper[..., inner, None] + _SLACK)
    value = entropy(jnp.concatenate([fixed, jnp.maximum(left, 0.0)[..., None]], axis=-1))
    best = jnp.minimum(best, jnp.min(jnp.where(fits, value, jnp.inf), axis=-1))
  return best


def _greedy_distribution(lower: Array, upper: Array) -> Array:
  order = jnp.argsort(-upper, axis=-1)
  lower, upper = (jnp.take_along_axis(x, order, axis=-1) for x in (lower, upper))
  room = upper - lower
  before = jnp.cumsum(room, axis=-1) - room
  left = 1 - jnp.sum(lower, axis=-1, keepdims=True)
  return lower + jnp.clip(left - before, 0.0, room)


def _lift(static: Array, batch_axes: int) -> Array:
  """The array ``static`` with ``batch_axes`` leading axes of length 1."""
  return static.reshape((1,) * batch_axes + static.shape)


@dataclasses.dataclass(frozen=True)
class DiscreteSet:
  """Static settings of the baseline.

  Attributes:
    k: number of tokens with an interval of their own.
    form: ``upper`` is the largest entropy, ``gap`` largest minus smallest.
    solver: ``waterfill``, or ``generic`` for timings.
  Raises:
    ValueError: for a setting out of range.
  """

  k: int = 100
  form: str = "upper"
  solver: str = "waterfill"

  FORMS: ClassVar[tuple[str, ...]] = ("upper", "gap")
  SOLVERS: ClassVar[tuple[str, ...]] = ("waterfill", "generic")

  def __post_init__(self):
    if self.k < 1:
      raise ValueError(f"Must have k of at least 1, we instead got {self.k}")
    for name, known in (("form", self.FORMS), ("solver", self.SOLVERS)):
      if getattr(self, name) not in known:
        raise ValueError(f"Must have {name} in {', '.join(known)}, we instead got {getattr(self, name)!r}")

  def __call__(self, bounds: Bounds, centre: Array) -> Array:
    """Score ``[...]`` in nats from bounds and centre probabilities ``[..., V]``."""
    lower, upper = merged(bounds, centre, self.k)
    value = largest_entropy(lower, upper, self.solver)
    return value - smallest_entropy(lower, upper) if self.form == "gap" else value
