"""A law on few tokens with integer weights: exactly what is sampled from, sent, and verified against.

``qhat(ids[i]) = counts[i] / total``. Both ends agree on it bit by bit, because it consists of integers only. The number of
stored tokens ``S`` is static; entries behind ``size`` are padding with id 0 and count 0.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from jaxspec.types import Array


class SparseLaw(NamedTuple):
  """A law, or many of them."""

  ids: Array  # [..., S] int32, ascending in the first `size` entries
  counts: Array  # [..., S] int32, not negative; zeros are legal inside the support
  size: Array  # [...] int32, members of the support
  total: Array  # [...] int32, the sum of the counts; 0 where there is no law


def draw(law: SparseLaw, uniform: Array) -> Array:
  """Entry ``[...]`` int32 of the support drawn by an integer.

  The first index whose cumulative count exceeds ``uniform``: over all values ``0 .. total - 1`` every entry is hit exactly
  ``counts`` times, so the draw has no rounding error.

  Args:
    uniform: ``[...]`` int32 in ``0 .. total - 1``.
  """
  below = jnp.cumsum(law.counts, axis=-1) <= uniform[..., None]
  return jnp.minimum(jnp.sum(below.astype(jnp.int32), axis=-1), law.counts.shape[-1] - 1)


def count_of(law: SparseLaw, tokens: Array) -> Array:
  """Count ``[...]`` int32 of the tokens ``[...]``; 0 for a token outside the support."""
  return jnp.sum(jnp.where(law.ids == tokens[..., None], law.counts, 0), axis=-1)


def dense(law: SparseLaw, vocab: int) -> Array:
  """Probabilities ``[B, V]`` float32 of laws ``[B]``; zeros where there is no law."""
  row = jnp.arange(law.ids.shape[0])[:, None]
  counts = jnp.zeros((law.ids.shape[0], vocab), jnp.int32).at[row, law.ids].add(law.counts)
  return counts / jnp.maximum(law.total, 1)[:, None].astype(jnp.float32)


def take_place(laws: SparseLaw, place: Array) -> SparseLaw:
  """The laws ``[B]`` at one place ``[B]`` of laws ``[B, K]``."""
  at = lambda leaf: jnp.take_along_axis(leaf, place.reshape(-1, *[1] * (leaf.ndim - 1)), axis=1)[:, 0]
  return SparseLaw(*(at(leaf) for leaf in laws))
