"""The image tokenizer of Chameleon, Anole and Lumina-mGPT: a VQGAN (arXiv 2012.09841) whose codes are compared as they are.

1. encoder: residual levels, each half the size of the one before, a middle with attention, ``z`` channels out;
2. ``quant_conv`` to the width of a code; the code is the nearest row of the codebook, by squared distance and without
   normalisation (unlike `jaxspec.models.tokenizers.llamagen_vq`);
3. decoder: ``post_quant_conv`` back to ``z`` channels, the middle, the mirrored levels with one more residual block each.

Encoder and decoder are those of `jaxspec.models.tokenizers.kl_vae`. Images are channels-last in [-1, 1]; the decoder's
output is not clamped. Submodules carry the names of the official state dict, a list index joined to its list by an
underscore.
"""

from __future__ import annotations

import dataclasses
import functools

import jax.numpy as jnp

from jaxspec.core.types import Array
from jaxspec.models.nn import quantizer
from jaxspec.models.nn.conv import DEFAULT_GROUPS, Conv
from jaxspec.models.nn.levels import Levels
from jaxspec.models.tokenizers.kl_vae import Decoder, Encoder
from jaxspec.models.tokenizers.tokenizer_fns import TokenizerFns
from jaxspec.models.tokenizers.vqgan import VQGAN, Codebook, vqgan_fns


@dataclasses.dataclass(frozen=True)
class ChameleonVQConfig(Levels):
  """Architecture of one tokenizer; the defaults are the released one.

  Attributes:
    base_channels: channels of the first level.
    multipliers: channels of each level in units of ``base_channels``; every level but the last halves the image.
    num_res_blocks: residual blocks of an encoder level; a decoder level has one more.
    attention_levels: encoder levels with attention after each residual block.
    z_channels: channels between the encoder or decoder and the 1x1 convolutions.
    codebook_size: number of codes ``V``.
    codebook_dim: width of a code.
    num_groups: groups of every group norm.
    dtype: compute dtype of the convolutions; norms, attention weights and codes are computed in float32.
  """

  base_channels: int = 128
  multipliers: tuple[int, ...] = (1, 1, 2, 2, 4)
  num_res_blocks: int = 2
  attention_levels: tuple[int, ...] = ()
  z_channels: int = 256
  codebook_size: int = 8192
  codebook_dim: int = 256
  num_groups: int = DEFAULT_GROUPS
  dtype: str = "float32"

  def __post_init__(self):
    self.check_levels("num_res_blocks", "z_channels", "codebook_size", "codebook_dim", "num_groups")

  @property
  def encoded_channels(self) -> int:
    """Output channels of the encoder."""
    return self.z_channels


class ChameleonVQ(VQGAN):
  """The tokenizer; see the module docstring. Call it through `chameleon_vq_fns`."""

  config: ChameleonVQConfig

  def setup(self):
    self.encoder = Encoder(self.config)
    self.decoder = Decoder(self.config)
    self.quantize = Codebook(self.config)
    self.quant_conv = Conv(self.config.codebook_dim, size=1)
    self.post_quant_conv = Conv(self.config.z_channels, size=1)

  def __call__(self, images: Array) -> Array:
    return self.decode_latent(self.quantize(jnp.zeros(self.latent(images).shape[:-1], jnp.int32)))


@functools.cache
def chameleon_vq_fns(config: ChameleonVQConfig) -> TokenizerFns:
  """Pure functions of one tokenizer; the same object for equal configs, so that jit caches hit."""
  return vqgan_fns(ChameleonVQ(config), quantizer.nearest_rows, quantizer.rows)
