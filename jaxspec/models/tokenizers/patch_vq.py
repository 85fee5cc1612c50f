"""A small convolutional VQ tokenizer for small images: 96x96x3 pixels to 12x12 indices, or other sizes.

The encoder-quantiser-decoder scheme is VQ-VAE (arXiv 1711.00937) with l2-normalised codes (improved VQGAN,
arXiv 2110.04627). The network is our own. Every halving is a space-to-depth, so no convolution runs at the full resolution,
and the whole tokenizer is cheap enough to train on a CPU.

1. space-to-depth by 2, 3x3 convolution to the first width, residual blocks;
2. for each further width: space-to-depth by 2, 1x1 convolution, residual blocks;
3. RMSNorm, 1x1 convolution to ``code_dim`` channels, nearest code on the unit sphere;
4. the decoder mirrors it: 3x3 convolution, residual blocks, 1x1 convolution and depth-to-space, 3x3 convolution to
   the pixels.

A residual block is ``x + conv(silu(conv(norm(x))))``; its second convolution starts at zero.
"""

from __future__ import annotations

import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxspec.core.types import Array, Key, Params
from jaxspec.models.nn import quantizer
from jaxspec.models.nn.call import call
from jaxspec.models.tokenizers.tokenizer_fns import TokenizerFns, square_grid


@dataclasses.dataclass(frozen=True)
class PatchVQConfig:
  """Architecture of one patch tokenizer.

  Attributes:
    image_size: side of the images in pixels; the convolutions also take other multiples of `factor`.
    widths: channels after each halving, outermost first; ``2 ** len(widths)`` pixels become one token.
    encoder_blocks: residual blocks of each level, outermost first.
    decoder_blocks: the same for the decoder, outermost first.
    num_codes: rows of the codebook.
    code_dim: channels of a code.
    encoder_kernel: side of the encoder's convolutions. With 1 a token depends on its own pixels alone, so that equal patches
      have equal tokens wherever they are, and a flat area has one token.
  """

  image_size: int = 64
  widths: tuple[int, ...] = (48, 96)
  encoder_blocks: tuple[int, ...] = (1, 2)
  decoder_blocks: tuple[int, ...] = (2, 3)
  num_codes: int = 512
  code_dim: int = 8
  encoder_kernel: int = 3
  norm_eps: float = 1e-6
  dtype: str = "float32"

  def __post_init__(self):
    if not len(self.widths) == len(self.encoder_blocks) == len(self.decoder_blocks) > 0:
      raise ValueError(
        "Must have one width, encoder block count and decoder block count per level, we instead got "
        f"{self.widths}, {self.encoder_blocks}, {self.decoder_blocks}"
      )
    if self.image_size % self.factor:
      raise ValueError(f"Must have an image size divisible by {self.factor}, we instead got {self.image_size}")
    if self.encoder_kernel < 1 or self.encoder_kernel % 2 == 0:
      raise ValueError(f"Must have an encoder kernel of odd size, we instead got {self.encoder_kernel}")
    if self.num_codes < 2 or self.code_dim < 1:
      raise ValueError(f"Must have codes to choose from, we instead got {self.num_codes} of size {self.code_dim}")

  @property
  def factor(self) -> int:
    return 2 ** len(self.widths)

  @property
  def grid(self) -> int:
    return self.image_size // self.factor

  @property
  def num_tokens(self) -> int:
    return self.grid**2


def space_to_depth(x: Array) -> Array:
  """``[B, H, W, C]`` to ``[B, H/2, W/2, 4C]``."""
  b, h, w, c = x.shape
  return x.reshape(b, h // 2, 2, w // 2, 2, c).transpose(0, 1, 3, 2, 4, 5).reshape(b, h // 2, w // 2, 4 * c)


def depth_to_space(x: Array) -> Array:
  """``[B, H, W, 4C]`` to ``[B, 2H, 2W, C]``, the inverse of `space_to_depth`."""
  b, h, w, c = x.shape
  return x.reshape(b, h, w, 2, 2, c // 4).transpose(0, 1, 3, 2, 4, 5).reshape(b, 2 * h, 2 * w, c // 4)


class Conv(nn.Module):
  """Square convolution with bias, stride 1, same size; kernel ``[k, k, in, out]``."""

  features: int
  size: int = 3
  zero: bool = False

  @nn.compact
  def __call__(self, x: Array) -> Array:
    init = nn.initializers.zeros if self.zero else nn.initializers.lecun_normal()
    kernel = self.param("kernel", init, (self.size, self.size, x.shape[-1], self.features), jnp.float32)
    bias = self.param("bias", nn.initializers.zeros, (self.features,), jnp.float32)
    y = jax.lax.conv_general_dilated(x, kernel.astype(x.dtype), (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return y + bias.astype(x.dtype).reshape(1, 1, 1, -1)


class ChannelNorm(nn.Module):
  """Root-mean-square norm over the channels, in float32."""

  eps: float

  @nn.compact
  def __call__(self, x: Array) -> Array:
    scale = self.param("scale", nn.initializers.ones, (x.shape[-1],), jnp.float32)
    x32 = x.astype(jnp.float32)
    x32 = x32 * jax.lax.rsqrt(jnp.mean(jnp.square(x32), axis=-1, keepdims=True) + self.eps)
    return (x32 * scale.reshape(1, 1, 1, -1)).astype(x.dtype)


class ResBlock(nn.Module):
  """``x + conv(silu(conv(norm(x))))``."""

  eps: float
  kernel: int = 3

  @nn.compact
  def __call__(self, x: Array) -> Array:
    h = Conv(x.shape[-1], self.kernel, name="conv1")(ChannelNorm(self.eps, name="norm")(x))
    return x + Conv(x.shape[-1], self.kernel, zero=True, name="conv2")(jax.nn.silu(h))


class Encoder(nn.Module):
  """Pixels ``[B, H, W, 3]`` to features ``[B, H/f, W/f, widths[-1]]``."""

  config: PatchVQConfig

  @nn.compact
  def __call__(self, x: Array) -> Array:
    cfg = self.config
    for level, (width, blocks) in enumerate(zip(cfg.widths, cfg.encoder_blocks)):
      x = Conv(width, cfg.encoder_kernel if level == 0 else 1, name=f"down_{level}")(space_to_depth(x))
      for i in range(blocks):
        x = ResBlock(cfg.norm_eps, cfg.encoder_kernel, name=f"level_{level}_block_{i}")(x)
    return ChannelNorm(cfg.norm_eps, name="norm_out")(x)


class Decoder(nn.Module):
  """Codes ``[B, h, w, code_dim]`` to pixels ``[B, f h, f w, 3]``."""

  config: PatchVQConfig

  @nn.compact
  def __call__(self, x: Array) -> Array:
    cfg = self.config
    x = Conv(cfg.widths[-1], name="conv_in")(x)
    for level in reversed(range(len(cfg.widths))):
      for i in range(cfg.decoder_blocks[level]):
        x = ResBlock(cfg.norm_eps, name=f"level_{level}_block_{i}")(x)
      x = ChannelNorm(cfg.norm_eps, name=f"norm_{level}")(x)
      last = level == 0
      x = depth_to_space(Conv(12 if last else 4 * cfg.widths[level - 1], 3 if last else 1, name=f"up_{level}")(x))
    return x


class PatchVQ(nn.Module):
  """The tokenizer; see the module docstring. Call it through `patch_vq_fns`."""

  config: PatchVQConfig

  def setup(self):
    cfg = self.config
    self.encoder = Encoder(cfg)
    self.to_code = Conv(cfg.code_dim, 1)
    self.decoder = Decoder(cfg)
    self.codebook = self.param("codebook", nn.initializers.normal(1.0), (cfg.num_codes, cfg.code_dim), jnp.float32)

  def features(self, images: Array) -> Array:
    return self.encoder(images.astype(self.config.dtype))

  def latent(self, images: Array) -> Array:
    return self.to_code(self.features(images)).astype(jnp.float32)

  def decode_latent(self, latent: Array) -> Array:
    return self.decoder(latent.astype(self.config.dtype)).astype(jnp.float32)

  def __call__(self, images: Array) -> Array:
    return self.decode_latent(quantizer.normalise(self.latent(images)))


@functools.cache
def patch_vq_fns(config: PatchVQConfig) -> TokenizerFns:
  """Pure functions of one patch tokenizer; the same object for equal configs, so that jit caches hit."""
  module = PatchVQ(config)

  def init(key: Key) -> Params:
    images = jnp.zeros((1, config.image_size, config.image_size, 3))
    return module.init(key, images)["params"]

  def encode(params: Params, images: Array) -> tuple[Array, Array]:
    latent = call(module, params, images, method="latent")  # [B, h, w, e]
    indices = quantizer.nearest_codes(latent, params["codebook"])
    return indices.reshape(images.shape[0], -1), latent

  def decode_latent(params: Params, latent: Array) -> Array:
    return call(module, params, latent, method="decode_latent")

  def decode(params: Params, indices: Array, grid: tuple[int, int] | None = None) -> Array:
    height, width = square_grid(indices.shape[1]) if grid is None else grid
    codes = quantizer.lookup(params["codebook"], indices)
    return decode_latent(params, codes.reshape(indices.shape[0], height, width, config.code_dim))

  def features(params: Params, images: Array) -> Array:
    return call(module, params, images, method="features")

  return TokenizerFns(init, encode, decode, decode_latent, features, lambda params: params["codebook"])
