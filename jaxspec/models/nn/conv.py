"""Convolutional blocks of VQGAN-style image tokenizers: residual block, attention, change of resolution.

Images are channels-last; convolution weights are ``[kh, kw, in, out]``. Blocks that get codes have norms that depend on them
(`SpatialNorm`). Submodules carry the names of the usual state
dicts (``norm1``, ``conv1``, ``nin_shortcut``, ``proj_out``, ...).
"""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxspec.core.types import Array

DEFAULT_GROUPS = 32
_NORM_EPS = 1e-6


class Conv(nn.Module):
  """Square convolution with bias; ``padding`` is that of `jax.lax.conv_general_dilated`.

  ``exact`` computes with full precision whatever the default precision of products is.
  """

  features: int
  size: int = 3
  stride: int = 1
  padding: str | tuple[tuple[int, int], ...] = "SAME"
  exact: bool = False

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
      precision=jax.lax.Precision.HIGHEST if self.exact else None,
    )
    return out + bias.astype(x.dtype).reshape(1, 1, 1, -1)


class GroupNorm(nn.Module):
  """Group norm over contiguous channel groups, biased variance, eps 1e-6, in float32."""

  num_groups: int = DEFAULT_GROUPS

  @nn.compact
  def __call__(self, x: Array) -> Array:
    batch, height, width, channels = x.shape
    weight = self.param("weight", nn.initializers.ones, (channels,), jnp.float32).astype(jnp.float32)
    bias = self.param("bias", nn.initializers.zeros, (channels,), jnp.float32).astype(jnp.float32)
    groups = x.astype(jnp.float32).reshape(batch, height * width, self.num_groups, channels // self.num_groups)
    centred = groups - jnp.mean(groups, axis=(1, 3), keepdims=True)
    variance = jnp.mean(jnp.square(centred), axis=(1, 3), keepdims=True)
    normed = (centred * jax.lax.rsqrt(variance + _NORM_EPS)).reshape(x.shape)
    return (normed * weight.reshape(1, 1, 1, -1) + bias.reshape(1, 1, 1, -1)).astype(x.dtype)


class SpatialNorm(nn.Module):
  """Group norm whose scale and bias at every pixel are linear in the code there (MoVQ, arXiv 2209.09002)."""

  num_groups: int = DEFAULT_GROUPS

  @nn.compact
  def __call__(self, x: Array, codes: Array) -> Array:
    """Normed ``x [B, H, W, C]``; ``codes [B, h, w, e]`` cover the image, H and W are multiples of h and w."""
    normed = GroupNorm(self.num_groups, name="norm_layer")(x)
    scale, bias = (Conv(x.shape[-1], size=1, name=name)(codes.astype(x.dtype)) for name in ("conv_y", "conv_b"))
    times = x.shape[1] // codes.shape[1], x.shape[2] // codes.shape[2]
    return normed * enlarged(scale, *times) + enlarged(bias, *times)


def normed(x: Array, codes: Array | None, num_groups: int, name: str) -> Array:
  """A norm of the calling module: `GroupNorm`, or with codes `SpatialNorm`."""
  return GroupNorm(num_groups, name=name)(x) if codes is None else SpatialNorm(num_groups, name=name)(x, codes)


def enlarged(x: Array, rows: int, columns: int) -> Array:
  """``x [B, H, W, C]`` with every pixel ``rows`` times below itself and ``columns`` times beside itself."""
  batch, height, width, channels = x.shape
  repeated = jnp.broadcast_to(x[:, :, None, :, None, :], (batch, height, rows, width, columns, channels))
  return repeated.reshape(batch, rows * height, columns * width, channels)


class ResBlock(nn.Module):
  """``x + conv2(swish(norm2(conv1(swish(norm1(x))))))``; a 1x1 convolution on the skip where the channels change."""

  features: int
  num_groups: int = DEFAULT_GROUPS

  @nn.compact
  def __call__(self, x: Array, codes: Array | None = None) -> Array:
    h = Conv(self.features, name="conv1")(jax.nn.silu(normed(x, codes, self.num_groups, "norm1")))
    h = Conv(self.features, name="conv2")(jax.nn.silu(normed(h, codes, self.num_groups, "norm2")))
    if x.shape[-1] != self.features:
      x = Conv(self.features, size=1, name="nin_shortcut")(x)
    return x + h


class AttnBlock(nn.Module):
  """One attention head over all positions of the image, added to its input."""

  num_groups: int = DEFAULT_GROUPS

  @nn.compact
  def __call__(self, x: Array, codes: Array | None = None) -> Array:
    batch, height, width, channels = x.shape
    h = normed(x, codes, self.num_groups, "norm")
    q, k, v = (y.reshape(batch, height * width, channels) for y in self.project(h))
    scores = jnp.einsum("bqc,bkc->bqk", q, k).astype(jnp.float32) * channels**-0.5
    weights = jax.nn.softmax(scores, axis=-1).astype(x.dtype)
    h = jnp.einsum("bqk,bkc->bqc", weights, v).reshape(x.shape)
    return x + Conv(channels, size=1, name="proj_out")(h)

  def project(self, h: Array) -> tuple[Array, ...]:
    """Queries, keys and values, each of the shape of ``h``."""
    return tuple(Conv(h.shape[-1], size=1, name=name)(h) for name in "qkv")


class FusedAttnBlock(AttnBlock):
  """An `AttnBlock` with one convolution for queries, keys and values, in this order."""

  def project(self, h: Array) -> tuple[Array, ...]:
    """See `AttnBlock.project`."""
    return tuple(jnp.split(Conv(3 * h.shape[-1], size=1, name="qkv")(h), 3, axis=-1))


class Downsample(nn.Module):
  """Stride-2 convolution; the zero padding is on the right and at the bottom only."""

  @nn.compact
  def __call__(self, x: Array) -> Array:
    return Conv(x.shape[-1], stride=2, padding=((0, 1), (0, 1)), name="conv")(x)


class Upsample(nn.Module):
  """Every pixel doubled in both directions, then a convolution."""

  @nn.compact
  def __call__(self, x: Array) -> Array:
    return Conv(x.shape[-1], name="conv")(enlarged(x, 2, 2))


class Level(nn.Module):
  """Residual blocks at one resolution, each followed by attention if configured, then a change of resolution."""

  features: int
  num_res_blocks: int
  attention: bool = False
  resample: type[nn.Module] | None = None
  num_groups: int = DEFAULT_GROUPS
  block_name: str = "res"
  attn_block: type[AttnBlock] = AttnBlock

  @nn.compact
  def __call__(self, x: Array, codes: Array | None = None) -> Array:
    for i in range(self.num_res_blocks):
      x = ResBlock(self.features, self.num_groups, name=f"{self.block_name}_{i}")(x, codes)
      if self.attention:
        x = self.attn_block(self.num_groups, name=f"attn_{i}")(x, codes)
    if self.resample is not None:
      x = self.resample(name=self.resample.__name__.lower())(x)
    return x


def middle(
  x: Array,
  names: tuple[str, str, str],
  num_groups: int = DEFAULT_GROUPS,
  attn_block: type[AttnBlock] = AttnBlock,
  codes: Array | None = None,
) -> Array:
  """Residual block, attention and residual block of the calling module, with their names."""
  x = ResBlock(x.shape[-1], num_groups, name=names[0])(x, codes)
  x = attn_block(num_groups, name=names[1])(x, codes)
  return ResBlock(x.shape[-1], num_groups, name=names[2])(x, codes)


def check_images(images: Array, factor: int) -> None:
  """Raises a ValueError unless ``images`` is ``[B, H, W, 3]`` with sides divisible by ``factor``."""
  if images.ndim != 4 or images.shape[-1] != 3 or images.shape[1] % factor or images.shape[2] % factor:
    raise ValueError(f"Must have images [B, H, W, 3] with sides divisible by {factor}, we instead got {list(images.shape)}")
