"""The interface of an image tokenizer: pure functions between pixels, latents and codebook indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from jaxspec.core.types import Array, Key, Params


class TokenizerFns(NamedTuple):
  """One image tokenizer as pure functions, the counterpart of `jaxspec.core.types.ModelFns`.

  Images are ``[B, H, W, 3]`` float in [-1, 1], channels last; indices are in raster order. With ``f`` the downsampling
  factor, ``h = H / f`` and ``w = W / f``; ``e`` is the width of a code, ``z`` the width of the encoder's output.
  """

  init: Callable[[Key], Params]
  encode: Callable[[Params, Array], tuple[Array, Array]]  # images -> indices [B, h*w] int32, latent [B, h, w, e]
  decode: Callable[..., Array]  # (params, indices [B, h*w], grid=None) -> images, not clamped; grid (h, w) unless square
  decode_latent: Callable[[Params, Array], Array]  # quantised latent [B, h, w, e] -> images, not clamped
  features: Callable[[Params, Array], Array]  # images -> encoder output [B, h, w, z] before the projection to codes
  codebook: Callable[[Params], Array]  # stored rows [V, e]


def square_grid(num_tokens: int) -> tuple[int, int]:
  """``(side, side)`` of a square image with ``num_tokens`` tokens.

  Raises:
    ValueError: if the number is not a square.
  """
  side = round(num_tokens**0.5)
  if side * side != num_tokens:
    raise ValueError(f"Must have a square number of tokens or a grid, we instead got {num_tokens} tokens")
  return side, side


def to_uint8(images: Array) -> Array:
  """Pixels from [-1, 1] to 0..255: ``truncate(clamp(127.5 x + 128, 0, 255))`` (FoundationVision/LlamaGen)."""
  return jnp.clip(127.5 * images.astype(jnp.float32) + 128.0, 0.0, 255.0).astype(jnp.uint8)


def truncate_to_uint8(images: Array) -> Array:
  """Pixels from [-1, 1] to 0..255: ``truncate(255 (clamp(x, -1, 1) + 1) / 2)`` (Chameleon, deepseek-ai/Janus)."""
  return (127.5 * (jnp.clip(images.astype(jnp.float32), -1.0, 1.0) + 1.0)).astype(jnp.uint8)


def from_uint8(pixels: Array) -> Array:
  """Pixels from 0..255 to [-1, 1] float32: ``2 x / 255 - 1``."""
  return 2.0 * pixels.astype(jnp.float32) / 255.0 - 1.0
