"""Functions for both discrete and continuous tokens.

Discrete tokens have shape ``[B, N]``, continuous ones ``[B, N, C]``. Flags and positions of tokens have no last axis in both
cases.
"""

from __future__ import annotations

import jax.numpy as jnp

from jaxspec.core.types import Array


def over_tokens(values: Array, tokens: Array) -> Array:
  """``values [...]``, one for each token, reshaped to broadcast against ``tokens [...]`` or ``[..., C]``."""
  return values.reshape(values.shape + (1,) * (tokens.ndim - values.ndim))


def token_at(tokens: Array, position: Array) -> Array:
  """Token ``[B]`` or ``[B, C]`` at ``position [B]`` of ``tokens [B, N]`` or ``[B, N, C]``."""
  return jnp.take_along_axis(tokens, over_tokens(position[:, None], tokens), axis=1)[:, 0]


def over_rows(value: Array, like: Array) -> Array:
  """A parameter ``[]`` unchanged, or one per row ``[B]`` as ``[B, 1, ...]`` with the rank of ``like [B, ...]``."""
  return value.reshape(-1, *[1] * (like.ndim - 1)) if jnp.ndim(value) else value
