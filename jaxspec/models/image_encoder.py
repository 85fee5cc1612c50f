"""A small encoder of small images: 64x64x3 pixels to one vector of unit root mean square.

It consists of matrix products only, so that it trains in minutes on a CPU:

1. space-to-depth by 4, a linear map to the first width;
2. at each level residual blocks ``x + linear(silu(linear(norm(depthwise(x)))))``, the layout of ConvNeXt
   (arXiv 2201.03545) with 3x3 kernels and RMSNorm; between levels space-to-depth by 2 and a linear map;
3. RMSNorm, one linear map of the whole last grid to the vector, so that the vector depends on where something is drawn.

There is no batch statistic and no dropout: an image's vector depends on that image alone.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxspec.models.linear import Linear
from jaxspec.models.norm import RMSNorm
from jaxspec.models.patch_vq import space_to_depth
from jaxspec.types import Array, Key, Params


@dataclasses.dataclass(frozen=True)
class ImageEncoderConfig:
  """Architecture of an image encoder.

  Attributes:
    image_size: side of the images in pixels.
    widths: channels of each level. The side of the first level is a quarter of the image's; each further level halves it.
    blocks: residual blocks of each level.
    expansion: hidden channels of a block per channel.
    embed_dim: length of the vector.
  """

  image_size: int = 64
  widths: tuple[int, ...] = (48, 96, 192)
  blocks: tuple[int, ...] = (1, 2, 2)
  expansion: int = 3
  embed_dim: int = 128
  norm_eps: float = 1e-6

  def __post_init__(self):
    if not len(self.widths) == len(self.blocks) > 0:
      raise ValueError(f"Must have one width and block count per level, we instead got {self.widths}, {self.blocks}")
    if self.image_size < 1 or self.image_size % self.factor:
      raise ValueError(f"Must have an image size divisible by {self.factor}, we instead got {self.image_size}")
    if self.embed_dim < 1:
      raise ValueError(f"Must have an embedding, we instead got embed_dim {self.embed_dim}")

  @property
  def factor(self) -> int:
    return 2 ** (len(self.widths) + 1)


class ImageEncoderFns(NamedTuple):
  """Pure functions of an image encoder."""

  init: Callable[[Key], Params]
  embed: Callable[[Params, Array], Array]  # images [B, H, W, 3] in [-1, 1] -> [B, embed_dim], root mean square 1


class Depthwise(nn.Module):
  """3x3 convolution of every channel by itself, written as nine shifted products.

  XLA fuses them into one pass; its grouped convolution is slow on a CPU.
  """

  @nn.compact
  def __call__(self, x: Array) -> Array:
    height, width, channels = x.shape[1:]
    weight = self.param("weight", nn.initializers.normal(1 / 3), (3, 3, channels), jnp.float32).astype(x.dtype)
    padded = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    shifted = lambda i, j: padded[:, i : i + height, j : j + width] * weight[i, j].reshape(1, 1, 1, -1)
    return sum(shifted(i, j) for i in range(3) for j in range(3))


class EncoderBlock(nn.Module):
  """``x + linear(silu(linear(norm(depthwise(x)))))``."""

  expansion: int
  eps: float

  @nn.compact
  def __call__(self, x: Array) -> Array:
    width = x.shape[-1]
    h = RMSNorm(self.eps, name="norm")(Depthwise(name="depthwise")(x))
    h = jax.nn.silu(Linear(self.expansion * width, std=width**-0.5, name="w1")(h))
    return x + Linear(width, std=0.3 * (self.expansion * width) ** -0.5, name="w2")(h)


class ImageEncoder(nn.Module):
  """The network; call it through `image_encoder_fns`."""

  config: ImageEncoderConfig

  @nn.compact
  def __call__(self, images: Array) -> Array:
    cfg = self.config
    x = space_to_depth(images)
    for level, (width, blocks) in enumerate(zip(cfg.widths, cfg.blocks)):
      x = space_to_depth(x)
      x = Linear(width, std=x.shape[-1] ** -0.5, name=f"down_{level}")(x)
      for i in range(blocks):
        x = EncoderBlock(cfg.expansion, cfg.norm_eps, name=f"level_{level}_block_{i}")(x)
    x = RMSNorm(cfg.norm_eps, name="norm")(x).reshape(x.shape[0], -1)  # [B, h w C]
    return unit_rms(Linear(cfg.embed_dim, std=x.shape[-1] ** -0.5, name="output")(x))


def unit_rms(x: Array) -> Array:
  """Vectors ``[..., D]`` scaled to root mean square 1, so that ``x y / D`` is the cosine of the kernel distance."""
  x = x.astype(jnp.float32)
  return x * jax.lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + 1e-12)


@functools.cache
def image_encoder_fns(config: ImageEncoderConfig) -> ImageEncoderFns:
  """Pure functions of one image encoder; the same object for equal configs."""
  module = ImageEncoder(config)

  def init(key: Key) -> Params:
    return module.init(key, jnp.zeros((1, config.image_size, config.image_size, 3)))["params"]

  def embed(params: Params, images: Array) -> Array:
    return module.apply({"params": params}, images)

  return ImageEncoderFns(init, embed)
