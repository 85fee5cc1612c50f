"""LlamaGen's convolutional image tokenizers VQ-16 and VQ-8 (arXiv 2406.06525, FoundationVision/LlamaGen).

1. encoder: residual levels, each half the size of the one before, attention at the smallest, ``z`` channels out;
2. ``quant_conv`` to the width of a code, nearest code on the unit sphere (`jaxspec.models.nn.quantizer`);
3. decoder: ``post_quant_conv`` back to ``z`` channels, then the mirrored levels with one more residual block each.

Images are channels-last in [-1, 1]; the decoder's output is not clamped. Submodules carry the names of the official
state dict, a list index joined to its list by an underscore: ``encoder.conv_blocks.0.res.1`` is
``encoder/conv_blocks_0/res_1``. Convolution weights are ``[kh, kw, in, out]``.
"""

from __future__ import annotations

import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxspec.core.types import Array
from jaxspec.models.nn import quantizer
from jaxspec.models.nn.config_checks import published
from jaxspec.models.nn.conv import DEFAULT_GROUPS, Conv, Downsample, GroupNorm, Level, Upsample, middle
from jaxspec.models.nn.levels import Levels
from jaxspec.models.tokenizers.tokenizer_fns import TokenizerFns
from jaxspec.models.tokenizers.vqgan import VQGAN, vqgan_fns


@dataclasses.dataclass(frozen=True)
class LlamaGenVQConfig(Levels):
  """Architecture of one VQ tokenizer.

  Attributes:
    base_channels: channels of the first level.
    multipliers: channels of each level in units of ``base_channels``; every level but the last halves the image.
    num_res_blocks: residual blocks of an encoder level; a decoder level has one more.
    z_channels: output channels of the encoder.
    codebook_size: number of codes ``V``.
    codebook_dim: width of a code.
    dtype: compute dtype of the convolutions; norms, attention weights and codes are computed in float32.
  """

  base_channels: int = 128
  multipliers: tuple[int, ...] = (1, 1, 2, 2, 4)
  num_res_blocks: int = 2
  z_channels: int = 256
  codebook_size: int = 16384
  codebook_dim: int = 8
  dtype: str = "float32"

  def __post_init__(self):
    self.check_levels("num_res_blocks", "z_channels", "codebook_size", "codebook_dim")
    if self.base_channels % DEFAULT_GROUPS:
      raise ValueError(f"Must have base_channels divisible by {DEFAULT_GROUPS}, we instead got {self.base_channels}")

  @classmethod
  def named(cls, name: str, **overrides) -> LlamaGenVQConfig:
    """A published tokenizer: ``VQ-16`` or ``VQ-8``."""
    return cls(**dict(multipliers=published(PUBLISHED_TOKENIZERS, name, "a tokenizer")) | overrides)


# name: channel multipliers
PUBLISHED_TOKENIZERS = {
  "VQ-16": (1, 1, 2, 2, 4),
  "VQ-8": (1, 2, 2, 4),
}


_MIDDLE = ("mid_0", "mid_1", "mid_2")


class Encoder(nn.Module):
  """Images ``[B, H, W, 3]`` to ``[B, H / f, W / f, z]``."""

  config: LlamaGenVQConfig

  @nn.compact
  def __call__(self, x: Array) -> Array:
    cfg = self.config
    x = Conv(cfg.base_channels, name="conv_in")(x)
    last = len(cfg.channels) - 1
    for i, features in enumerate(cfg.channels):
      resample = Downsample if i < last else None
      x = Level(features, cfg.num_res_blocks, i == last, resample, name=f"conv_blocks_{i}")(x)
    x = middle(x, _MIDDLE)
    return Conv(cfg.z_channels, name="conv_out")(jax.nn.silu(GroupNorm(name="norm_out")(x)))


class Decoder(nn.Module):
  """Latents ``[B, h, w, z]`` to images ``[B, h f, w f, 3]``; ``conv_blocks_0`` is the smallest level."""

  config: LlamaGenVQConfig

  @nn.compact
  def __call__(self, x: Array) -> Array:
    cfg = self.config
    x = middle(Conv(cfg.channels[-1], name="conv_in")(x), _MIDDLE)
    last = len(cfg.channels) - 1
    for i, features in enumerate(reversed(cfg.channels)):
      resample = Upsample if i < last else None
      x = Level(features, cfg.num_res_blocks + 1, i == 0, resample, name=f"conv_blocks_{i}")(x)
    return Conv(3, name="conv_out")(jax.nn.silu(GroupNorm(name="norm_out")(x)))


class Codebook(nn.Module):
  """The stored rows ``weight [V, e]``; they start with unit length and are normalised at use."""

  size: int
  features: int

  @nn.compact
  def __call__(self) -> Array:
    def init(key, shape, dtype):
      return quantizer.normalise(jax.random.uniform(key, shape, dtype, -1.0, 1.0))

    return self.param("weight", init, (self.size, self.features), jnp.float32)


class Quantize(nn.Module):
  """Keeps the codebook under its official name."""

  config: LlamaGenVQConfig

  @nn.compact
  def __call__(self) -> Array:
    return Codebook(self.config.codebook_size, self.config.codebook_dim, name="embedding")()


class LlamaGenVQ(VQGAN):
  """The tokenizer; see the module docstring. Call it through `llamagen_vq_fns`."""

  config: LlamaGenVQConfig

  def setup(self):
    self.encoder = Encoder(self.config)
    self.decoder = Decoder(self.config)
    self.quantize = Quantize(self.config)
    self.quant_conv = Conv(self.config.codebook_dim, size=1)
    self.post_quant_conv = Conv(self.config.z_channels, size=1)

  def codebook(self) -> Array:
    return self.quantize()

  def __call__(self, images: Array) -> Array:
    latent, rows = self.latent(images), self.codebook()
    return self.decode_latent(quantizer.lookup(rows, quantizer.nearest_codes(latent, rows)))


@functools.cache
def llamagen_vq_fns(config: LlamaGenVQConfig) -> TokenizerFns:
  """Pure functions of one tokenizer; the same object for equal configs, so that jit caches hit."""
  return vqgan_fns(LlamaGenVQ(config), quantizer.nearest_codes, quantizer.lookup)
