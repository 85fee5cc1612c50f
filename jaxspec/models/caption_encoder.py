"""An image encoder and a text encoder with a common space: the nearest caption tells what an image shows.

The scheme is CLIP (arXiv 2103.00020) with the small networks of this package. It is not a released CLIP model, and its
figures must not be called CLIP scores. A caption's vector is the mean of the text features over its tokens.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax.numpy as jnp

from jaxspec.models.image_encoder import ImageEncoder, ImageEncoderConfig, unit_rms
from jaxspec.models.text_encoder import TextEncoder, TextEncoderConfig
from jaxspec.types import Array, Key, Params


@dataclasses.dataclass(frozen=True)
class CaptionEncoderConfig(ImageEncoderConfig):
  """Architecture of both encoders.

  Attributes:
    max_tokens: caption positions ``P``; longer captions are cut.
  """

  vocab_size: int = 2048
  max_tokens: int = 16
  text_dim: int = 128
  text_layers: int = 2
  text_heads: int = 2

  def __post_init__(self):
    super().__post_init__()
    self.text  # the text encoder checks its own fields

  @property
  def text(self) -> TextEncoderConfig:
    return TextEncoderConfig(
      vocab_size=self.vocab_size,
      max_tokens=self.max_tokens,
      dim=self.text_dim,
      num_layers=self.text_layers,
      num_heads=self.text_heads,
      caption_dim=self.embed_dim,
    )


class CaptionEncoderFns(NamedTuple):
  """Pure functions of the two encoders."""

  init: Callable[[Key], Params]
  embed: Callable[[Params, Array], Array]  # images [B, H, W, 3] in [-1, 1] -> [B, embed_dim], root mean square 1
  embed_text: Callable[[Params, Array, Array], Array]  # ids [B, P], mask [B, P] -> [B, embed_dim], root mean square 1


class CaptionEncoder(nn.Module):
  """The networks; call them through `caption_encoder_fns`."""

  config: CaptionEncoderConfig

  def setup(self):
    self.image = ImageEncoder(self.config)
    self.text = TextEncoder(self.config.text)

  def embed(self, images: Array) -> Array:
    return self.image(images)

  def embed_text(self, ids: Array, mask: Array) -> Array:
    features = self.text(ids, mask)  # [B, P, E], zero at padding
    return unit_rms(jnp.sum(features, axis=1) / jnp.maximum(jnp.sum(mask, axis=1, keepdims=True), 1))

  def __call__(self, images: Array, ids: Array, mask: Array) -> tuple[Array, Array]:
    return self.embed(images), self.embed_text(ids, mask)


@functools.cache
def caption_encoder_fns(config: CaptionEncoderConfig) -> CaptionEncoderFns:
  """Pure functions of one pair of encoders; the same object for equal configs."""
  module = CaptionEncoder(config)

  def init(key: Key) -> Params:
    images = jnp.zeros((1, config.image_size, config.image_size, 3))
    shape = (1, config.max_tokens)
    return module.init(key, images, jnp.zeros(shape, jnp.int32), jnp.ones(shape, bool))["params"]

  def embed(params: Params, images: Array) -> Array:
    return module.apply({"params": params}, images, method="embed")

  def embed_text(params: Params, ids: Array, mask: Array) -> Array:
    return module.apply({"params": params}, ids, mask, method="embed_text")

  return CaptionEncoderFns(init, embed, embed_text)
