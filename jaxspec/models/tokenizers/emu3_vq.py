"""The vision tokenizer of Emu3 for images: a MoVQ whose layers in time see one frame (arXiv 2409.18869).

The official tokenizer codes ``temporal_factor`` frames of a video together, and an image as that number of equal frames.

1. encoder: the residual levels of `jaxspec.models.tokenizers.kl_vae` on a frame, with attention in the named levels and in
   the middle; then convolutions over the frames, each half as many, and residual blocks with batch norms, down to one frame;
2. ``quant_conv``; the code is the nearest row of the codebook, by squared distance and without normalisation;
3. decoder: ``post_quant_conv`` of the code; the residual blocks and the convolutions over frames, on this and on the code
   itself; the middle and the mirrored levels, whose norms depend on the code (`jaxspec.models.nn.conv.SpatialNorm`).

All convolutions over frames are causal: two empty frames stand before the first one. The official code decodes
``temporal_factor`` frames of an image and returns the first. That frame depends on itself alone, so only it is computed
here, with the same result. Images are channels-last in [-1, 1]; the output is not clamped.
"""

from __future__ import annotations

import dataclasses
import functools
import math

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxspec.core.types import Array
from jaxspec.models.nn import quantizer
from jaxspec.models.nn.conv import DEFAULT_GROUPS
from jaxspec.models.nn.levels import Levels
from jaxspec.models.tokenizers.kl_vae import Decoder, Encoder
from jaxspec.models.tokenizers.tokenizer_fns import TokenizerFns
from jaxspec.models.tokenizers.vqgan import VQGAN, Codebook, vqgan_fns

_FRAMES = 3  # of the kernel of a convolution over frames
_BATCH_NORM_EPS = 1e-5


@dataclasses.dataclass(frozen=True)
class Emu3VQConfig(Levels):
  """Architecture of one tokenizer; the defaults are BAAI/Emu3-VisionTokenizer.

  Attributes:
    base_channels: channels of the first level.
    multipliers: channels of each level in units of ``base_channels``; every level but the last halves the image.
    num_res_blocks: residual blocks of an encoder level, a decoder level has one more; also residual blocks over frames.
    attention_levels: levels with attention after each residual block.
    z_channels: channels between the encoder or decoder and the codes.
    temporal_factor: frames of one code, a power of 2.
    codebook_size: number of codes ``V``.
    codebook_dim: width of a code.
    num_groups: groups of every group norm.
    dtype: compute dtype of the convolutions; norms, attention weights and codes are computed in float32.
  """

  base_channels: int = 256
  multipliers: tuple[int, ...] = (1, 2, 2, 4)
  num_res_blocks: int = 2
  attention_levels: tuple[int, ...] = (3,)
  z_channels: int = 4
  temporal_factor: int = 4
  codebook_size: int = 32768
  codebook_dim: int = 4
  num_groups: int = DEFAULT_GROUPS
  dtype: str = "float32"

  def __post_init__(self):
    self.check_levels("num_res_blocks", "z_channels", "temporal_factor", "codebook_size", "codebook_dim", "num_groups")
    if self.temporal_factor & (self.temporal_factor - 1):
      raise ValueError(f"Must have a power of 2 as temporal_factor, we instead got {self.temporal_factor}")
    if self.z_channels != self.codebook_dim:  # the blocks over frames read both
      raise ValueError(f"Must have codes of width z_channels, we instead got {self.codebook_dim} and {self.z_channels}")
    if any(not 0 <= level < len(self.multipliers) for level in self.attention_levels):
      raise ValueError(f"Must have attention levels below {len(self.multipliers)}, we instead got {self.attention_levels}")

  @property
  def encoded_channels(self) -> int:
    """Output channels of the encoder."""
    return self.z_channels

  @property
  def halvings(self) -> int:
    """Convolutions that halve or double the number of frames."""
    return int(math.log2(self.temporal_factor))


class FrameConv(nn.Module):
  """Causal convolution over ``x [B, T, H, W, C]``, stride 1 over pixels.

  Attributes:
    frames: frames of the kernel; ``size`` is its height and width.
    stride: over frames.
  """

  features: int
  frames: int = _FRAMES
  size: int = 3
  stride: int = 1

  @nn.compact
  def __call__(self, x: Array) -> Array:
    init = nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")
    weight = self.param("weight", init, (self.frames, self.size, self.size, x.shape[-1], self.features), jnp.float32)
    bias = self.param("bias", nn.initializers.zeros, (self.features,), jnp.float32)
    side = (self.size // 2, self.size // 2)
    out = jax.lax.conv_general_dilated(
      x,
      weight.astype(x.dtype),
      (self.stride, 1, 1),
      ((_FRAMES - 1, 0), side, side),
      dimension_numbers=("NDHWC", "DHWIO", "NDHWC"),
    )
    return out + bias.astype(x.dtype).reshape(1, 1, 1, 1, -1)


class BatchNorm(nn.Module):
  """Batch norm with the stored statistics, in float32."""

  @nn.compact
  def __call__(self, x: Array) -> Array:
    ones, zeros, shape = nn.initializers.ones, nn.initializers.zeros, x.shape[-1:]
    weight, bias, mean, variance = (
      self.param(name, init, shape, jnp.float32).astype(jnp.float32).reshape((1,) * (x.ndim - 1) + (-1,))
      for name, init in (("weight", ones), ("bias", zeros), ("running_mean", zeros), ("running_var", ones))
    )
    return ((x.astype(jnp.float32) - mean) * jax.lax.rsqrt(variance + _BATCH_NORM_EPS) * weight + bias).astype(x.dtype)


class FrameBlock(nn.Module):
  """``x + conv2(swish(norm2(conv1(swish(norm1(x))))))`` with batch norms and convolutions over frames."""

  @nn.compact
  def __call__(self, x: Array) -> Array:
    h = FrameConv(x.shape[-1], name="conv1")(jax.nn.silu(BatchNorm(name="norm1")(x)))
    return x + FrameConv(x.shape[-1], name="conv2")(jax.nn.silu(BatchNorm(name="norm2")(h)))


class FrameEncoder(nn.Module):
  """``temporal_factor`` equal frames ``x [B, h, w, z]`` to one frame of the same shape."""

  config: Emu3VQConfig

  @nn.compact
  def __call__(self, x: Array) -> Array:
    cfg = self.config
    x = jnp.repeat(x[:, None], cfg.temporal_factor, axis=1)
    for i in range(cfg.halvings):
      x = jax.nn.silu(FrameConv(x.shape[-1], frames=_FRAMES + 1, stride=2, name=f"time_conv_{i}")(x))
    for i in range(cfg.num_res_blocks):
      x = FrameBlock(name=f"time_res_stack_{i}")(x)
    return x[:, 0]


class FrameDecoder(nn.Module):
  """One frame ``x [B, h, w, z]`` to the first of the ``temporal_factor`` frames that it stands for."""

  config: Emu3VQConfig

  @nn.compact
  def __call__(self, x: Array) -> Array:
    cfg = self.config
    x = x[:, None]
    for i in range(cfg.num_res_blocks):
      x = FrameBlock(name=f"time_res_stack_{i}")(x)
    for i in range(cfg.halvings):  # doubling the frames leaves the first one as it is
      x = jax.nn.silu(FrameConv(x.shape[-1], name=f"time_conv_{i}")(x))
    return x[:, 0]


class Emu3VQ(VQGAN):
  """The tokenizer; see the module docstring. Call it through `emu3_vq_fns`."""

  config: Emu3VQConfig

  def setup(self):
    cfg = self.config
    self.encoder, self.frame_encoder = Encoder(cfg), FrameEncoder(cfg)
    self.decoder, self.frame_decoder = Decoder(cfg, cfg.attention_levels), FrameDecoder(cfg)
    self.quantize = Codebook(cfg)
    self.quant_conv = FrameConv(cfg.codebook_dim, size=1)
    self.post_quant_conv = FrameConv(cfg.z_channels, size=1)

  def features(self, images: Array) -> Array:
    """See `VQGAN.features`."""
    return self.frame_encoder(self.encoder(images.astype(self.config.dtype)))

  def latent(self, images: Array) -> Array:
    """See `VQGAN.latent`."""
    return self.quant_conv(self.features(images)[:, None])[:, 0].astype(jnp.float32)

  def decode_latent(self, quantised: Array) -> Array:
    """See `VQGAN.decode_latent`."""
    codes = quantised.astype(self.config.dtype)
    latent = self.post_quant_conv(codes[:, None])[:, 0]
    return self.decoder(self.frame_decoder(latent), self.frame_decoder(codes)).astype(jnp.float32)

  def __call__(self, images: Array) -> Array:
    return self.decode_latent(self.quantize(jnp.zeros(self.latent(images).shape[:-1], jnp.int32)))


@functools.cache
def emu3_vq_fns(config: Emu3VQConfig) -> TokenizerFns:
  """Pure functions of one tokenizer; the same object for equal configs, so that jit caches hit."""
  return vqgan_fns(Emu3VQ(config), quantizer.nearest_rows, quantizer.rows)
