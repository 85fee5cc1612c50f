"""What the VQGAN tokenizers share: passes between pixels, latents and codes, as a module and as pure functions.

A tokenizer has an encoder and a decoder, a convolution to the width of a code and one back, and a codebook under
``quantize.embedding.weight``. It says how codes are compared and looked up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax.numpy as jnp

from jaxspec.core.types import Array, Key, Params
from jaxspec.models.nn.call import call
from jaxspec.models.nn.conv import check_images
from jaxspec.models.nn.linear import Embedding
from jaxspec.models.tokenizers.tokenizer_fns import TokenizerFns, square_grid


class Codebook(nn.Module):
  """Keeps the codebook under its official name; the config has ``codebook_size`` and ``codebook_dim``."""

  config: Any

  def setup(self):
    self.embedding = Embedding(self.config.codebook_size, self.config.codebook_dim, std=1.0)

  def __call__(self, indices: Array) -> Array:
    return self.embedding(indices)


class VQGAN(nn.Module):
  """Passes of a tokenizer; subclasses set up ``encoder``, ``decoder``, ``quant_conv`` and ``post_quant_conv``.

  Images are ``[B, H, W, 3]`` in [-1, 1]. With ``f`` pixels of a side per token, latents are ``[B, H / f, W / f, e]``.
  """

  config: Any

  def features(self, images: Array) -> Array:
    """The encoder's output ``[B, H / f, W / f, z]``."""
    return self.encoder(images.astype(self.config.dtype))

  def latent(self, images: Array) -> Array:
    """Latents float32, before they become codes."""
    return self.quant_conv(self.features(images)).astype(jnp.float32)

  def decode_latent(self, quantised: Array) -> Array:
    """Images float32, not clamped, of quantised latents."""
    return self.decoder(self.post_quant_conv(quantised.astype(self.config.dtype))).astype(jnp.float32)


def vqgan_fns(
  module: VQGAN, nearest_fn: Callable[[Array, Array], Array], look_up_fn: Callable[[Array, Array], Array]
) -> TokenizerFns:
  """Pure functions of a tokenizer.

  Args:
    nearest_fn: ``(latent [..., e], codebook [V, e]) -> indices [...]`` int32.
    look_up_fn: ``(codebook [V, e], indices [B, N]) -> codes [B, N, e]``.
  """
  config = module.config

  def init(key: Key) -> Params:
    return module.init(key, jnp.zeros((1, config.factor, config.factor, 3), jnp.float32))["params"]

  def features(params: Params, images: Array) -> Array:
    check_images(images, config.factor)
    return call(module, params, images, method="features").astype(jnp.float32)

  def encode(params: Params, images: Array) -> tuple[Array, Array]:
    check_images(images, config.factor)
    latent = call(module, params, images, method="latent")
    return nearest_fn(latent, codebook(params)).reshape(images.shape[0], -1), latent

  def decode_latent(params: Params, quantised: Array) -> Array:
    return call(module, params, quantised, method="decode_latent")

  def decode(params: Params, indices: Array, grid: tuple[int, int] | None = None) -> Array:
    height, width = grid or square_grid(indices.shape[1])
    if height * width != indices.shape[1]:
      raise ValueError(f"Must have {height} x {width} tokens, we instead got {indices.shape[1]}")
    entries = look_up_fn(codebook(params), indices)
    return decode_latent(params, entries.reshape(indices.shape[0], height, width, config.codebook_dim))

  def codebook(params: Params) -> Array:
    return params["quantize"]["embedding"]["weight"]

  return TokenizerFns(init, encode, decode, decode_latent, features, codebook)
