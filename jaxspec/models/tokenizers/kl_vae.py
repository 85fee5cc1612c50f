"""KL autoencoders, convolutional and variational (latent diffusion, arXiv 2112.10752): KL-16 of MAR, Stable Diffusion's.

1. encoder: residual levels, each half the size of the one before, attention in the levels named by the config, then a middle
   with attention; ``quant_conv`` gives mean and log variance of every latent pixel;
2. a latent is ``mean + std noise``; networks draw latents times a constant (`LATENT_SCALE`, `SD_LATENT_SCALE`), so that they
   have a variance of about 1;
3. decoder: ``post_quant_conv``, the middle, the mirrored levels with one more residual block each and no attention.

Images are channels-last in [-1, 1], latents channels-last too; the decoder's output is not clamped. Submodules carry the
names of the official state dict, a list index joined to its list by an underscore. ``up_0`` is the largest level.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple, Protocol

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxspec.core.types import Array, Key, Params
from jaxspec.models.nn.call import call
from jaxspec.models.nn.config_checks import published
from jaxspec.models.nn.conv import (
  DEFAULT_GROUPS,
  AttnBlock,
  Conv,
  Downsample,
  GroupNorm,
  Level,
  Upsample,
  check_images,
  middle,
  normed,
)
from jaxspec.models.nn.levels import Levels

# Latents of the released KL-16 times this have unit standard deviation.
LATENT_SCALE = 0.2325
# The same for Stable Diffusion's autoencoder, in whose latents DiT draws.
SD_LATENT_SCALE = 0.18215

_LOG_VARIANCE_RANGE = (-30.0, 20.0)


@dataclasses.dataclass(frozen=True)
class KLVAEConfig(Levels):
  """Architecture of one autoencoder.

  Attributes:
    base_channels: channels of the first level.
    multipliers: channels of each level in units of ``base_channels``; every level but the last halves the image.
    num_res_blocks: residual blocks of an encoder level; a decoder level has one more.
    attention_levels: encoder levels with attention after each residual block.
    z_channels: channels between the encoder or decoder and the 1x1 convolutions.
    latent_channels: channels of a latent.
    num_groups: groups of every group norm.
    dtype: compute dtype of the convolutions; norms and attention weights are computed in float32.
  """

  base_channels: int = 128
  multipliers: tuple[int, ...] = (1, 1, 2, 2, 4)
  num_res_blocks: int = 2
  attention_levels: tuple[int, ...] = (4,)
  z_channels: int = 16
  latent_channels: int = 16
  num_groups: int = DEFAULT_GROUPS
  dtype: str = "float32"

  def __post_init__(self):
    self.check_levels("num_res_blocks", "z_channels", "latent_channels", "num_groups")
    if any(not 0 <= level < len(self.multipliers) for level in self.attention_levels):
      raise ValueError(f"Must have attention levels below {len(self.multipliers)}, we instead got {self.attention_levels}")

  @property
  def encoded_channels(self) -> int:
    """Output channels of the encoder: means and log variances."""
    return 2 * self.z_channels

  @classmethod
  def named(cls, name: str, **overrides) -> KLVAEConfig:
    """A published autoencoder: ``KL-16`` of MAR, ``SD-VAE`` of Stable Diffusion."""
    return cls(**published(_PUBLISHED, name, "an autoencoder") | overrides)


_PUBLISHED = {
  "KL-16": {},
  "SD-VAE": dict(multipliers=(1, 2, 4, 4), attention_levels=(), z_channels=4, latent_channels=4),
}


class Posterior(NamedTuple):
  """Diagonal Gaussian distribution of the latents of a batch of images."""

  mean: Array  # [B, h, w, c] float32
  log_variance: Array  # [B, h, w, c] float32, within [-30, 20]

  @property
  def std(self) -> Array:
    return jnp.exp(0.5 * self.log_variance)

  def sample(self, noise: Array) -> Array:
    """``mean + std noise`` for standard normal ``noise [B, h, w, c]``."""
    return self.mean + self.std * noise


def posterior_of(moments: Array) -> Posterior:
  """Distribution from the encoder's ``[B, h, w, 2 c]`` moments: means, then log variances, which are clamped."""
  mean, log_variance = jnp.split(moments, 2, axis=-1)
  return Posterior(mean, jnp.clip(log_variance, *_LOG_VARIANCE_RANGE))


class Middle(nn.Module):
  """Residual block, attention, residual block at the smallest resolution."""

  num_groups: int
  attn_block: type[AttnBlock] = AttnBlock

  @nn.compact
  def __call__(self, x: Array, codes: Array | None = None) -> Array:
    return middle(x, ("block_1", "attn_1", "block_2"), self.num_groups, self.attn_block, codes)


class CoderConfig(Protocol):
  """What `Encoder` and `Decoder` read of a config; `jaxspec.models.nn.levels.Levels` has the first two."""

  @property
  def base_channels(self) -> int: ...
  @property
  def channels(self) -> tuple[int, ...]: ...
  @property
  def num_res_blocks(self) -> int: ...
  @property
  def attention_levels(self) -> tuple[int, ...]: ...
  @property
  def num_groups(self) -> int: ...
  @property
  def encoded_channels(self) -> int: ...


class Encoder(nn.Module):
  """Images ``[B, H, W, 3]`` to ``[B, H / f, W / f, encoded_channels]``; other tokenizers of this form use it too."""

  config: CoderConfig
  attn_block: type[AttnBlock] = AttnBlock

  @nn.compact
  def __call__(self, x: Array) -> Array:
    cfg = self.config
    x = Conv(cfg.base_channels, name="conv_in")(x)
    last = len(cfg.channels) - 1
    for i, features in enumerate(cfg.channels):
      resample = Downsample if i < last else None
      attention = i in cfg.attention_levels
      parts = (resample, cfg.num_groups, "block", self.attn_block)
      x = Level(features, cfg.num_res_blocks, attention, *parts, name=f"down_{i}")(x)
    x = Middle(cfg.num_groups, self.attn_block, name="mid")(x)
    return Conv(cfg.encoded_channels, name="conv_out")(jax.nn.silu(GroupNorm(cfg.num_groups, name="norm_out")(x)))


class Decoder(nn.Module):
  """Latents ``[B, h, w, z]`` to images ``[B, h f, w f, 3]``; other tokenizers of this form use it too.

  Attributes:
    attention_levels: levels with attention after each residual block; none in most tokenizers.
  """

  config: CoderConfig
  attention_levels: tuple[int, ...] = ()
  attn_block: type[AttnBlock] = AttnBlock

  @nn.compact
  def __call__(self, x: Array, codes: Array | None = None) -> Array:
    """Images of latents; with ``codes [B, h, w, e]`` all norms depend on them (`jaxspec.models.nn.conv.SpatialNorm`)."""
    cfg = self.config
    x = Middle(cfg.num_groups, self.attn_block, name="mid")(Conv(cfg.channels[-1], name="conv_in")(x), codes)
    for i, features in reversed(list(enumerate(cfg.channels))):
      parts = (Upsample if i else None, cfg.num_groups, "block", self.attn_block)
      x = Level(features, cfg.num_res_blocks + 1, i in self.attention_levels, *parts, name=f"up_{i}")(x, codes)
    return Conv(3, name="conv_out")(jax.nn.silu(normed(x, codes, cfg.num_groups, "norm_out")))


class KLVAE(nn.Module):
  """The autoencoder; see the module docstring. Call it through `kl_vae_fns`."""

  config: KLVAEConfig

  def setup(self):
    cfg = self.config
    self.encoder = Encoder(cfg)
    self.decoder = Decoder(cfg)
    self.quant_conv = Conv(2 * cfg.latent_channels, size=1)
    self.post_quant_conv = Conv(cfg.z_channels, size=1)

  def moments(self, images: Array) -> Array:
    return self.quant_conv(self.encoder(images.astype(self.config.dtype))).astype(jnp.float32)

  def decode(self, latents: Array) -> Array:
    return self.decoder(self.post_quant_conv(latents.astype(self.config.dtype))).astype(jnp.float32)

  def __call__(self, images: Array) -> Array:
    return self.decode(posterior_of(self.moments(images)).mean)


class VAEFns(NamedTuple):
  """One autoencoder as pure functions. Images are ``[B, H, W, 3]`` in [-1, 1]; latents are not scaled."""

  init: Callable[[Key], Params]
  encode: Callable[[Params, Array], Posterior]  # images -> distribution of the latents [B, H / f, W / f, c]
  decode: Callable[[Params, Array], Array]  # latents [B, h, w, c] -> images, not clamped


@functools.cache
def kl_vae_fns(config: KLVAEConfig) -> VAEFns:
  """Pure functions of one autoencoder; the same object for equal configs, so that jit caches hit."""
  module = KLVAE(config)

  def init(key: Key) -> Params:
    return module.init(key, jnp.zeros((1, config.factor, config.factor, 3), jnp.float32))["params"]

  def encode(params: Params, images: Array) -> Posterior:
    check_images(images, config.factor)
    return posterior_of(call(module, params, images, method="moments"))

  def decode(params: Params, latents: Array) -> Array:
    return call(module, params, latents, method="decode")

  return VAEFns(init, encode, decode)


def to_uint8(images: Array) -> Array:
  """Pixels from [-1, 1] to 0..255 as MAR stores them: ``round(clip(255 (x + 1) / 2, 0, 255))``."""
  return jnp.round(jnp.clip(127.5 * (images.astype(jnp.float32) + 1.0), 0.0, 255.0)).astype(jnp.uint8)
