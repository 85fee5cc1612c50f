"""A distribution on few tokens with integer weights: the proposal that drafts are drawn from and that messages carry.

``qhat(ids[i]) = counts[i] / total``. Both sides agree on it bit by bit, because it consists of integers only. The number of
stored tokens ``S`` is static; entries after ``size`` are padding with id 0 and count 0.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from jaxspec.core.token_axes import at_position
from jaxspec.core.types import Array


class SparseDistribution(NamedTuple):
  """One distribution, or an array of them with leading axes ``...``."""

  ids: Array  # [..., S] int32, ascending in the first `size` entries
  counts: Array  # [..., S] int32, not negative; zeros are legal inside the support
  size: Array  # [...] int32, members of the support
  total: Array  # [...] int32, the sum of the counts; 0 where there is no distribution


def draw(distribution: SparseDistribution, uniform: Array) -> Array:
  """Draws an entry ``[...]`` int32 of the support by an integer.

  It is the first index whose cumulative count exceeds ``uniform``. Over all values ``0 .. total - 1`` entry i is drawn
  exactly ``counts[i]`` times, so the draw has no rounding error.

  Args:
    uniform: ``[...]`` int32 in ``0 .. total - 1``.
  """
  below = jnp.cumsum(distribution.counts, axis=-1) <= uniform[..., None]
  return jnp.minimum(jnp.sum(below.astype(jnp.int32), axis=-1), distribution.counts.shape[-1] - 1)


def count_of(distribution: SparseDistribution, tokens: Array) -> Array:
  """Count ``[...]`` int32 of the tokens ``[...]``; 0 for a token outside the support."""
  return jnp.sum(jnp.where(distribution.ids == tokens[..., None], distribution.counts, 0), axis=-1)


def dense(distribution: SparseDistribution, vocab: int) -> Array:
  """Probabilities ``[B, V]`` float32 of distributions ``[B]``; zeros where there is no distribution."""
  row = jnp.arange(distribution.ids.shape[0])[:, None]
  counts = jnp.zeros((distribution.ids.shape[0], vocab), jnp.int32).at[row, distribution.ids].add(distribution.counts)
  return counts / jnp.maximum(distribution.total, 1)[:, None].astype(jnp.float32)


def take_position(distributions: SparseDistribution, position: Array) -> SparseDistribution:
  """The distributions ``[B]`` at one position ``[B]`` of distributions ``[B, K]``."""
  return SparseDistribution(*(at_position(leaf, position) for leaf in distributions))
