"""Functions over rows and tokens, both discrete and continuous.

Discrete tokens have shape ``[B, N]``, continuous ones ``[B, N, C]``. Flags and positions of tokens have no last axis in both
cases.
"""

from __future__ import annotations

import jax.numpy as jnp

from jaxspec.core.types import Array


def over_tokens(values: Array, tokens: Array) -> Array:
  """``values [...]``, one for each token, reshaped to broadcast against ``tokens [...]`` or ``[..., C]``."""
  return values.reshape(values.shape + (1,) * (tokens.ndim - values.ndim))


def at_position(values: Array, position: Array) -> Array:
  """Entries ``[B, ...]`` at ``position [B]`` of ``values [B, N, ...]``."""
  return jnp.take_along_axis(values, over_tokens(position[:, None], values), axis=1)[:, 0]


def num_leading(flags: Array) -> Array:
  """``[B]`` int32: number of True flags before the first False of ``flags [B, N]``."""
  return jnp.sum(jnp.cumprod(flags.astype(jnp.int32), axis=1), axis=1)


def over_rows(value: Array, like: Array) -> Array:
  """A parameter ``[]`` unchanged, or one per row ``[B]`` as ``[B, 1, ...]`` with the rank of ``like [B, ...]``."""
  return value.reshape(-1, *[1] * (like.ndim - 1)) if jnp.ndim(value) else value
