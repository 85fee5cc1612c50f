"""Chooses the support of a distribution: the tokens that can be drafted and whose weights are sent.

A *sparsifier* is a frozen dataclass of pure functions (`Sparsifier`). Its traced settings come as ``params``. Its state is a
small pytree with leaves ``[B]``, carried from token to token. `TopK` takes a fixed number of tokens and has no state.
`jaxspec.codecs.conformal.Conformal` takes the tokens above a threshold, which is its state.

Supports have a static size ``S``. A larger set is truncated to its S most probable tokens. The mass of all other tokens is
one number, the dropped mass.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp

from jaxspec.core.types import Array, PyTree


class Support(NamedTuple):
  """Supports of distributions ``[B]``, in ascending order of ids."""

  ids: Array  # [B, S] int32, 0 on padding
  probs: Array  # [B, S] float, renormalised to add up to 1; 0 on padding
  size: Array  # [B] int32, at least 1
  dropped: Array  # [B] float, mass of the distribution outside of the support
  literal_size: Array  # [B] int32, size of the set by the rule's definition; prices depend on it
  was_empty: Array  # [B] bool: the set by the definition is empty, and the most probable token was taken instead


class Sparsifier(Protocol):
  """Rule that chooses supports; ``max_support`` is their static size ``S``."""

  @property
  def max_support(self) -> int: ...

  def init(self, params: PyTree, rows: int) -> PyTree:
    """State of a new decode, leaves ``[B]``."""
    ...

  def support(self, params: PyTree, state: PyTree, q: Array, cap: Array) -> Support:
    """Supports of the distributions ``q [B, V]``, of at most ``cap [B]`` tokens."""
    ...

  def error(self, support: Support) -> Array:
    """Dropped mass ``[B]`` float by the rule's definition."""
    ...

  def update(self, params: PyTree, state: PyTree, support: Support) -> PyTree:
    """State after a token that was drafted from this support."""
    ...

  def rollback_position(self, num_committed: Array, num_accepted: Array, num_drafted: Array) -> Array:
    """Number of updates ``[B]`` of a round that stay after its verdict."""
    ...


class TopKParams(NamedTuple):
  """Traced settings of `TopK`."""

  num: Array  # [] or [B] int32, K


@dataclasses.dataclass(frozen=True)
class TopK:
  """K-SQS: the K most probable tokens, ties by smaller id; tokens of probability 0 are never taken."""

  max_support: int

  def init(self, params: TopKParams, rows: int) -> tuple:
    return ()

  def support(self, params: TopKParams, state: tuple, q: Array, cap: Array) -> Support:
    size = jnp.minimum(jnp.broadcast_to(params.num, cap.shape), jnp.sum((q > 0).astype(jnp.int32), axis=-1))
    return top_support(q, jnp.clip(size, 1, cap), max_support=self.max_support)

  def error(self, support: Support) -> Array:
    return support.dropped

  def update(self, params: TopKParams, state: tuple, support: Support) -> tuple:
    return ()

  def rollback_position(self, num_committed: Array, num_accepted: Array, num_drafted: Array) -> Array:
    return num_accepted


def top_support(q: Array, size: Array, *, max_support: int) -> Support:
  """The ``size`` most probable tokens.

  Args:
    q: ``[B, V]`` probabilities.
    size: ``[B]`` int32, at least 1 and at most ``max_support``.
  """
  rows, vocab = q.shape
  probs, ids = jax.lax.top_k(q, max_support)  # descending; ties: smaller id first
  valid = jnp.arange(max_support)[None] < size[:, None]
  order = jnp.argsort(jnp.where(valid, ids, vocab), axis=-1, stable=True)
  ids = jnp.where(valid, jnp.take_along_axis(ids, order, axis=-1), 0)
  probs = jnp.where(valid, jnp.take_along_axis(probs, order, axis=-1), 0.0)
  # The sum over the tokens outside is exactly 0 if there are none; 1 - (sum over the tokens inside) would not be.
  row = jnp.arange(rows)[:, None]
  outside = jnp.ones((rows, vocab), bool).at[row, jnp.where(valid, ids, vocab)].set(False, mode="drop")
  dropped = jnp.sum(jnp.where(outside, q, 0.0), axis=-1)
  probs = probs / jnp.sum(probs, axis=-1, keepdims=True)
  return Support(ids.astype(jnp.int32), probs, size, dropped, size, jnp.zeros((rows,), bool))
