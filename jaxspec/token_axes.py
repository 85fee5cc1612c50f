"""Tokens that may be ids or vectors: what the loop does to them without asking which.

Ids have shape ``[B, N]``, vectors ``[B, N, C]``; everything that is said about tokens (flags, places) has no last axis.
"""

from __future__ import annotations

import jax.numpy as jnp

from jaxspec.types import Array


def over_tokens(values: Array, tokens: Array) -> Array:
  """``values [...]``, one for each token, in a shape that broadcasts against ``tokens [...]`` or ``[..., C]``."""
  return values.reshape(values.shape + (1,) * (tokens.ndim - values.ndim))


def token_at(tokens: Array, place: Array) -> Array:
  """Token ``[B]`` or ``[B, C]`` at ``place [B]`` of ``tokens [B, N]`` or ``[B, N, C]``."""
  return jnp.take_along_axis(tokens, over_tokens(place[:, None], tokens), axis=1)[:, 0]
