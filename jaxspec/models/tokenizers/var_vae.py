"""VAR's image tokenizer: maps of codes from coarse to fine (arXiv 2404.02905, FoundationVision/VAR).

1. encoder: residual levels, each half the size of the one before, attention at the smallest and in the middle, then a 3x3
   ``quant_conv``;
2. residual quantisation over scales (`jaxspec.models.tokenizers.scale_quantizer`);
3. decoder: a 3x3 ``post_quant_conv``, the middle, the mirrored levels with one more residual block each.

Encoder and decoder are those of `jaxspec.models.tokenizers.kl_vae`, with one convolution for queries, keys and values.
Images are channels-last in [-1, 1]; the decoder's output is not clamped. Submodules carry the names of the official state
dict, a list index joined to its list by an underscore.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from jaxspec.core.types import Array, Key, Params
from jaxspec.models.nn import scales
from jaxspec.models.nn.call import call
from jaxspec.models.nn.config_checks import published
from jaxspec.models.nn.conv import DEFAULT_GROUPS, Conv, FusedAttnBlock
from jaxspec.models.nn.levels import Levels
from jaxspec.models.tokenizers.kl_vae import Decoder, Encoder
from jaxspec.models.tokenizers.scale_quantizer import ScaleQuantizer, scale_inputs
from jaxspec.models.tokenizers.vqgan import VQGAN


@dataclasses.dataclass(frozen=True)
class VARVAEConfig(Levels):
  """Architecture of one tokenizer; the defaults are the released one at 256 pixels.

  Attributes:
    base_channels: channels of the first level.
    multipliers: channels of each level in units of ``base_channels``; every level but the last halves the image.
    num_res_blocks: residual blocks of an encoder level; a decoder level has one more.
    codebook_size: number of codes ``V``.
    codebook_dim: width of a code, and channels of the latent image.
    num_phis: convolutions that the scales share.
    sides: side of the map of every scale. The weights do not depend on it: the released file serves both lists of
      `jaxspec.models.nn.scales.PUBLISHED_SIDES`.
    num_groups: groups of every group norm.
    dtype: compute dtype of the convolutions; norms, attention weights and the quantisation are computed in float32.
  """

  base_channels: int = 160
  multipliers: tuple[int, ...] = (1, 1, 2, 2, 4)
  num_res_blocks: int = 2
  codebook_size: int = 4096
  codebook_dim: int = 32
  num_phis: int = 4
  sides: tuple[int, ...] = scales.PUBLISHED_SIDES[256]
  num_groups: int = DEFAULT_GROUPS
  dtype: str = "float32"

  def __post_init__(self):
    scales.check_sides(self.sides)
    self.check_levels("num_res_blocks", "codebook_size", "codebook_dim", "num_groups")
    if self.num_phis < 2:
      raise ValueError(f"Must have num_phis of at least 2, we instead got {self.num_phis}")

  @property
  def attention_levels(self) -> tuple[int, ...]:
    """Levels with attention after each residual block: the smallest one."""
    return (len(self.multipliers) - 1,)

  @property
  def encoded_channels(self) -> int:
    """Output channels of the encoder."""
    return self.codebook_dim

  @property
  def image_size(self) -> int:
    """Side of the images in pixels."""
    return self.factor * self.sides[-1]

  @classmethod
  def named(cls, name: str, **overrides) -> VARVAEConfig:
    """A published tokenizer, one of `PUBLISHED_TOKENIZERS`.

    Raises:
      ValueError: for an unknown name.
    """
    fields: dict[str, Any] = dict(sides=scales.PUBLISHED_SIDES[published(PUBLISHED_TOKENIZERS, name, "a tokenizer")])
    return cls(**fields | overrides)


# name: side of the images in pixels
PUBLISHED_TOKENIZERS = {"VAR-256": 256, "VAR-512": 512}


class VARVAE(VQGAN):
  """The tokenizer; see the module docstring. Call it through `var_vae_fns`."""

  config: VARVAEConfig

  def setup(self):
    cfg = self.config
    self.encoder = Encoder(cfg, FusedAttnBlock)
    self.decoder = Decoder(cfg, cfg.attention_levels, FusedAttnBlock)
    self.quantize = ScaleQuantizer(cfg.codebook_size, cfg.codebook_dim, cfg.sides, cfg.num_phis)
    self.quant_conv = Conv(cfg.codebook_dim)
    self.post_quant_conv = Conv(cfg.codebook_dim)

  def encode(self, images: Array) -> tuple[Array, Array]:
    """Indices ``[B, L]`` and the latent images."""
    latent = self.latent(images)
    return self.quantize.encode(latent), latent

  def value(self, indices: Array, scale: int) -> Array:
    return self.quantize.value(indices, scale)

  def totals(self, indices: Array) -> list[Array]:
    return self.quantize.totals(indices)

  def __call__(self, images: Array) -> Array:
    return self.decode_latent(self.quantize(self.latent(images)))


class ScaleTokenizerFns(NamedTuple):
  """A tokenizer of scales as pure functions; the counterpart of `jaxspec.models.tokenizers.tokenizer_fns.TokenizerFns`.

  Images are ``[B, S, S, 3]`` float in [-1, 1]. A row has the tokens ``L`` of all scales, scale after scale and raster order
  inside each; ``H`` is the side of the last scale and ``C`` the width of a code. The sum over the values of scales is the
  quantised latent image.
  """

  init: Callable[[Key], Params]
  encode: Callable[[Params, Array], tuple[Array, Array]]  # images -> indices [B, L] int32, latent [B, H, H, C]
  decode: Callable[[Params, Array], Array]  # indices [B, L] -> images, not clamped
  decode_latent: Callable[[Params, Array], Array]  # sum [B, H, H, C], also over the first scales only -> images, not clamped
  codebook: Callable[[Params], Array]  # rows [V, C]
  value: Callable[[Params, Array, int], Array]  # (indices [B, side^2] of a scale, scale) -> [B, H, H, C] float32, a summand
  totals: Callable[[Params, Array], list[Array]]  # indices [B, L] -> the sums after every scale
  inputs: Callable[[Params, Array], Array]  # indices [B, L] -> what a network reads: [B, L - 1, C] float32, from scale 1 on
  sides: tuple[int, ...]


@functools.cache
def var_vae_fns(config: VARVAEConfig) -> ScaleTokenizerFns:
  """Pure functions of one tokenizer; the same object for equal configs, so that jit caches hit."""
  module, sides = VARVAE(config), config.sides
  num_tokens = scales.starts(sides)[-1]

  def init(key: Key) -> Params:
    return module.init(key, jnp.zeros((1, config.image_size, config.image_size, 3), jnp.float32))["params"]

  def encode(params: Params, images: Array) -> tuple[Array, Array]:
    shape = (config.image_size, config.image_size, 3)
    if images.shape[1:] != shape:
      raise ValueError(f"Must have images [B, {', '.join(map(str, shape))}], we instead got {list(images.shape)}")
    return call(module, params, images, method="encode")

  def totals(params: Params, indices: Array) -> list[Array]:
    if indices.ndim != 2 or indices.shape[1] != num_tokens:
      raise ValueError(f"Must have indices [B, {num_tokens}] of all scales, we instead got {list(indices.shape)}")
    return call(module, params, indices, method="totals")

  def inputs(params: Params, indices: Array) -> Array:
    read = [scale_inputs(total, side) for total, side in zip(totals(params, indices), sides[1:])]
    return jnp.concatenate(read, axis=1)

  def decode_latent(params: Params, total: Array) -> Array:
    return call(module, params, total, method="decode_latent")

  return ScaleTokenizerFns(
    init=init,
    encode=encode,
    decode=lambda params, indices: decode_latent(params, totals(params, indices)[-1]),
    decode_latent=decode_latent,
    codebook=lambda params: params["quantize"]["embedding"]["weight"],
    value=functools.partial(call, module, method="value"),
    totals=totals,
    inputs=inputs,
    sides=sides,
  )
