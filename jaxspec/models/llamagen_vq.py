"""LlamaGen's convolutional image tokenizers VQ-16 and VQ-8 (arXiv 2406.06525, FoundationVision/LlamaGen).

1. encoder: residual levels, each half the size of the one before, attention at the smallest, ``z`` channels out;
2. ``quant_conv`` to the width of a code, nearest code on the unit sphere (`jaxspec.models.quantizer`);
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

from jaxspec.models import quantizer
from jaxspec.models.tokenizer_fns import TokenizerFns, square_grid
from jaxspec.types import Array, Key, Params

_NUM_GROUPS = 32
_NORM_EPS = 1e-6


@dataclasses.dataclass(frozen=True)
class LlamaGenVQConfig:
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
    if not self.multipliers or min(self.multipliers) < 1:
      raise ValueError(f"Must have one positive multiplier per level, we instead got {self.multipliers}")
    if self.base_channels < 1 or self.base_channels % _NUM_GROUPS:
      raise ValueError(f"Must have base_channels divisible by {_NUM_GROUPS}, we instead got {self.base_channels}")
    for name in ("num_res_blocks", "z_channels", "codebook_size", "codebook_dim"):
      if getattr(self, name) < 1:
        raise ValueError(f"Must have {name} of at least 1, we instead got {getattr(self, name)}")

  @property
  def channels(self) -> tuple[int, ...]:
    """Channels of each level, from the largest image to the smallest."""
    return tuple(self.base_channels * m for m in self.multipliers)

  @property
  def factor(self) -> int:
    """Pixels per token along one side."""
    return 2 ** (len(self.multipliers) - 1)

  @classmethod
  def named(cls, name: str, **overrides) -> LlamaGenVQConfig:
    """A published tokenizer: ``VQ-16`` or ``VQ-8``."""
    if name not in PUBLISHED_TOKENIZERS:
      raise ValueError(f"Must have a tokenizer in {', '.join(PUBLISHED_TOKENIZERS)}, we instead got {name!r}")
    return cls(**dict(multipliers=PUBLISHED_TOKENIZERS[name]) | overrides)


# name: channel multipliers
PUBLISHED_TOKENIZERS = {
  "VQ-16": (1, 1, 2, 2, 4),
  "VQ-8": (1, 2, 2, 4),
}


class Conv(nn.Module):
  """Square convolution with bias; ``padding`` is that of `jax.lax.conv_general_dilated`."""

  features: int
  size: int = 3
  stride: int = 1
  padding: str | tuple[tuple[int, int], ...] = "SAME"

  @nn.compact
  def __call__(self, x: Array) -> Array:
    init = nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")
    weight = self.param("weight", init, (self.size, self.size, x.shape[-1], self.features), jnp.float32)
    bias = self.param("bias", nn.initializers.zeros, (self.features,), jnp.float32)
    out = jax.lax.conv_general_dilated(
      x,
      weight.astype(x.dtype),
      (self.stride, self.stride),
      self.padding,
      dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    return out + bias.astype(x.dtype).reshape(1, 1, 1, -1)


class Norm(nn.Module):
  """Group norm over 32 contiguous channel groups, biased variance, eps 1e-6, in float32."""

  @nn.compact
  def __call__(self, x: Array) -> Array:
    batch, height, width, channels = x.shape
    weight = self.param("weight", nn.initializers.ones, (channels,), jnp.float32).astype(jnp.float32)
    bias = self.param("bias", nn.initializers.zeros, (channels,), jnp.float32).astype(jnp.float32)
    groups = x.astype(jnp.float32).reshape(batch, height * width, _NUM_GROUPS, channels // _NUM_GROUPS)
    centred = groups - jnp.mean(groups, axis=(1, 3), keepdims=True)
    variance = jnp.mean(jnp.square(centred), axis=(1, 3), keepdims=True)
    normed = (centred * jax.lax.rsqrt(variance + _NORM_EPS)).reshape(x.shape)
    return (normed * weight.reshape(1, 1, 1, -1) + bias.reshape(1, 1, 1, -1)).astype(x.dtype)


class ResBlock(nn.Module):
  """``x + conv2(swish(norm2(conv1(swish(norm1(x))))))``; a 1x1 convolution on the skip where the channels change."""

  features: int

  @nn.compact
  def __call__(self, x: Array) -> Array:
    h = Conv(self.features, name="conv1")(jax.nn.silu(Norm(name="norm1")(x)))
    h = Conv(self.features, name="conv2")(jax.nn.silu(Norm(name="norm2")(h)))
    if x.shape[-1] != self.features:
      x = Conv(self.features, size=1, name="nin_shortcut")(x)
    return x + h


class AttnBlock(nn.Module):
  """One attention head over all positions of the image, added to its input."""

  @nn.compact
  def __call__(self, x: Array) -> Array:
    batch, height, width, channels = x.shape
    h = Norm(name="norm")(x)
    q, k, v = (Conv(channels, size=1, name=n)(h).reshape(batch, height * width, channels) for n in "qkv")
    scores = jnp.einsum("bqc,bkc->bqk", q, k).astype(jnp.float32) * channels**-0.5
    weights = jax.nn.softmax(scores, axis=-1).astype(x.dtype)
    h = jnp.einsum("bqk,bkc->bqc", weights, v).reshape(x.shape)
    return x + Conv(channels, size=1, name="proj_out")(h)


class Downsample(nn.Module):
  """Stride-2 convolution; the zero padding is on the right and at the bottom only."""

  @nn.compact
  def __call__(self, x: Array) -> Array:
    return Conv(x.shape[-1], stride=2, padding=((0, 1), (0, 1)), name="conv")(x)


class Upsample(nn.Module):
  """Every pixel doubled in both directions, then a convolution."""

  @nn.compact
  def __call__(self, x: Array) -> Array:
    batch, height, width, channels = x.shape
    doubled = jnp.broadcast_to(x[:, :, None, :, None, :], (batch, height, 2, width, 2, channels))
    return Conv(channels, name="conv")(doubled.reshape(batch, 2 * height, 2 * width, channels))


class Level(nn.Module):
  """Residual blocks at one resolution, each followed by attention if asked, then a change of resolution."""

  features: int
  num_res_blocks: int
  attention: bool = False
  resample: type[nn.Module] | None = None

  @nn.compact
  def __call__(self, x: Array) -> Array:
    for i in range(self.num_res_blocks):
      x = ResBlock(self.features, name=f"res_{i}")(x)
      if self.attention:
        x = AttnBlock(name=f"attn_{i}")(x)
    if self.resample is not None:
      x = self.resample(name=self.resample.__name__.lower())(x)
    return x


def _middle(x: Array) -> Array:
  """The blocks ``mid_0 .. mid_2`` of the calling module."""
  x = ResBlock(x.shape[-1], name="mid_0")(x)
  x = AttnBlock(name="mid_1")(x)
  return ResBlock(x.shape[-1], name="mid_2")(x)


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
    x = _middle(x)
    return Conv(cfg.z_channels, name="conv_out")(jax.nn.silu(Norm(name="norm_out")(x)))


class Decoder(nn.Module):
  """Latents ``[B, h, w, z]`` to images ``[B, h f, w f, 3]``; ``conv_blocks_0`` is the smallest level."""

  config: LlamaGenVQConfig

  @nn.compact
  def __call__(self, x: Array) -> Array:
    cfg = self.config
    x = _middle(Conv(cfg.channels[-1], name="conv_in")(x))
    last = len(cfg.channels) - 1
    for i, features in enumerate(reversed(cfg.channels)):
      resample = Upsample if i < last else None
      x = Level(features, cfg.num_res_blocks + 1, i == 0, resample, name=f"conv_blocks_{i}")(x)
    return Conv(3, name="conv_out")(jax.nn.silu(Norm(name="norm_out")(x)))


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


class LlamaGenVQ(nn.Module):
  """The tokenizer; see the module docstring. Call it through `llamagen_vq_fns`."""

  config: LlamaGenVQConfig

  def setup(self):
    self.encoder = Encoder(self.config)
    self.decoder = Decoder(self.config)
    self.quantize = Quantize(self.config)
    self.quant_conv = Conv(self.config.codebook_dim, size=1)
    self.post_quant_conv = Conv(self.config.z_channels, size=1)

  def features(self, images: Array) -> Array:
    return self.encoder(images.astype(self.config.dtype))

  def latent(self, images: Array) -> Array:
    return self.quant_conv(self.features(images)).astype(jnp.float32)

  def codebook(self) -> Array:
    return self.quantize()

  def decode_latent(self, quantised: Array) -> Array:
    return self.decoder(self.post_quant_conv(quantised.astype(self.config.dtype))).astype(jnp.float32)

  def __call__(self, images: Array) -> Array:
    latent, rows = self.latent(images), self.codebook()
    return self.decode_latent(quantizer.lookup(rows, quantizer.nearest_codes(latent, rows)))


@functools.cache
def llamagen_vq_fns(config: LlamaGenVQConfig) -> TokenizerFns:
  """Pure functions of one tokenizer; the same object for equal configs, so that jit caches hit."""
  module = LlamaGenVQ(config)

  def call(params: Params, *args, method):
    return module.apply({"params": params}, *args, method=method)

  def check(images: Array) -> None:
    if images.ndim != 4 or images.shape[-1] != 3 or images.shape[1] % config.factor or images.shape[2] % config.factor:
      raise ValueError(
        f"Must have images [B, H, W, 3] with sides divisible by {config.factor}, we instead got {list(images.shape)}"
      )

  def init(key: Key) -> Params:
    return module.init(key, jnp.zeros((1, config.factor, config.factor, 3), jnp.float32))["params"]

  def features(params: Params, images: Array) -> Array:
    check(images)
    return call(params, images, method="features").astype(jnp.float32)

  def encode(params: Params, images: Array) -> tuple[Array, Array]:
    check(images)
    latent = call(params, images, method="latent")
    indices = quantizer.nearest_codes(latent, codebook(params))
    return indices.reshape(images.shape[0], -1), latent

  def decode_latent(params: Params, quantised: Array) -> Array:
    return call(params, quantised, method="decode_latent")

  def decode(params: Params, indices: Array, grid: tuple[int, int] | None = None) -> Array:
    height, width = grid or square_grid(indices.shape[1])
    if height * width != indices.shape[1]:
      raise ValueError(f"Must have {height} x {width} tokens, we instead got {indices.shape[1]}")
    entries = quantizer.lookup(codebook(params), indices)  # [B, h*w, e]
    return decode_latent(params, entries.reshape(indices.shape[0], height, width, config.codebook_dim))

  def codebook(params: Params) -> Array:
    return params["quantize"]["embedding"]["weight"]

  return TokenizerFns(init, encode, decode, decode_latent, features, codebook)
