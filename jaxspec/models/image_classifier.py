"""Two classifiers on one image encoder: for the drawing style and for the group of the concept."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax.numpy as jnp

from jaxspec.models.image_encoder import ImageEncoder, ImageEncoderConfig
from jaxspec.models.linear import Linear
from jaxspec.types import Array, Key, Params


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageClassifierConfig(ImageEncoderConfig):
  """Architecture of a classifier, and the names of its classes in the order of the logits."""

  styles: tuple[str, ...]
  groups: tuple[str, ...]

  def __post_init__(self):
    super().__post_init__()
    if min(len(self.styles), len(self.groups)) < 2:
      raise ValueError(f"Must have two styles and two groups at least, we instead got {self.styles}, {self.groups}")


class ClassLogits(NamedTuple):
  """Logits of a classifier."""

  style: Array  # [B, len(styles)] float32
  group: Array  # [B, len(groups)] float32


class ImageClassifierFns(NamedTuple):
  """Pure functions of a classifier."""

  init: Callable[[Key], Params]
  embed: Callable[[Params, Array], Array]  # images [B, H, W, 3] in [-1, 1] -> [B, embed_dim], root mean square 1
  classify: Callable[[Params, Array], ClassLogits]  # images -> logits


class ImageClassifier(nn.Module):
  """The network; call it through `image_classifier_fns`."""

  config: ImageClassifierConfig

  def setup(self):
    cfg = self.config
    self.image = ImageEncoder(cfg)
    self.style = Linear(len(cfg.styles), std=0.1 * cfg.embed_dim**-0.5)
    self.group = Linear(len(cfg.groups), std=0.1 * cfg.embed_dim**-0.5)

  def embed(self, images: Array) -> Array:
    return self.image(images)

  def __call__(self, images: Array) -> ClassLogits:
    x = self.embed(images)
    return ClassLogits(self.style(x), self.group(x))


@functools.cache
def image_classifier_fns(config: ImageClassifierConfig) -> ImageClassifierFns:
  """Pure functions of one classifier; the same object for equal configs."""
  module = ImageClassifier(config)

  def init(key: Key) -> Params:
    return module.init(key, jnp.zeros((1, config.image_size, config.image_size, 3)))["params"]

  def embed(params: Params, images: Array) -> Array:
    return module.apply({"params": params}, images, method="embed")

  def classify(params: Params, images: Array) -> ClassLogits:
    return module.apply({"params": params}, images)

  return ImageClassifierFns(init, embed, classify)
