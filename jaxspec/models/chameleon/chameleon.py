"""Chameleon: one transformer over tokens of text and of images (arXiv 2405.09818); Anole and Lumina-mGPT are built on it.

1. token embeddings, one table for text, image codes and what divides them;
2. blocks: attention with a layer norm of every query and key head, then rotary positions (half-split pairs, counted over
   text and image alike); SwiGLU. RMSNorm stands before both, or after them ("swin norm", the larger networks);
3. final RMSNorm, output matrix, float32 logits.

`chameleon_fns` reads and returns ids of the vocabulary; `jaxspec.models.chameleon.chameleon_drawing` draws images.

Submodules carry the names of the Hugging Face state dict.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import ClassVar

import flax.linen as nn
import jax.numpy as jnp

from jaxspec.core.types import Array, ModelFns
from jaxspec.models.language.image_language import ImageLanguage, ImageLanguageConfig
from jaxspec.models.language.language import language_fns
from jaxspec.models.nn.causal import Attention, LayerCache, Positions, pre_norm
from jaxspec.models.nn.mlp import SwiGLU
from jaxspec.models.nn.norm import RMSNorm, layer_norm
from jaxspec.models.nn.rope_text import rotate_halves

# How prompts and images are written: Anole's images are codes alone, Lumina-mGPT's have row ends and tokens of their size.
LAYOUTS = ("anole", "lumina")
# Where the unconditional partner of a prompt begins: a beginning of text and the image (Anole), the image (Lumina-mGPT), or
# the end of the prompt's text and the image (Lumina-mGPT in the code of SJD and GSD).
NULL_STARTS = ("text", "image", "end")

_QK_NORM_EPS = 1e-5


@dataclasses.dataclass(frozen=True)
class ChameleonConfig(ImageLanguageConfig):
  """Architecture of one network, and how images stand in its vocabulary. The defaults are Anole-7B.

  Attributes:
    num_kv_heads: number of key/value heads; None is one for every query head.
    max_positions: longest sequence the network is meant for.
    post_norm: whether norms stand after attention and MLP instead of before.
    layout: one of `LAYOUTS`.
    rows: rows of codes of an image, and ``columns`` codes of a row.
    null_start: one of `NULL_STARTS`; None is ``text`` for Anole and ``image`` for Lumina-mGPT.
    num_codes: image codes; ``first_code`` is the id of code 0, and the others follow.
    begin_text: id that begins every sequence.
    end_image: id after an image, ``begin_image`` the one before it.
    end_prompt: id after the text of a prompt.
    end_row: id after a row of codes (Lumina-mGPT).
    first_size: a side of n cells of 32 pixels has the id ``first_size + n`` (Lumina-mGPT).
    tensor_parallel: whether heads and hidden units are divided over a mesh (`jaxspec.core.mesh`).
  """

  vocab_size: int = 65536
  dim: int = 4096
  num_layers: int = 32
  num_heads: int = 32
  num_kv_heads: int | None = None
  ffn_hidden: int = 11008
  norm_eps: float = 1e-5
  rope_theta: float = 10000.0
  max_positions: int = 4096
  post_norm: bool = False
  layout: str = "anole"
  rows: int = 32
  columns: int = 32
  null_start: str | None = None
  num_codes: int = 8192
  first_code: int = 4
  begin_text: int = 0
  end_image: int = 8196
  begin_image: int = 8197
  end_prompt: int = 8710
  end_row: int = 8803
  first_size: int = 8804
  dtype: str = "float32"
  tensor_parallel: bool = False

  def __post_init__(self):
    self.check_images()
    if self.layout not in LAYOUTS:
      raise ValueError(f"Must have a layout in {', '.join(LAYOUTS)}, we instead got {self.layout!r}")
    if self.null_start not in (None, *NULL_STARTS):
      raise ValueError(f"Must have null_start in {', '.join(NULL_STARTS)}, we instead got {self.null_start!r}")
    if self.has_row_ends and (self.rows % 2 or self.columns % 2):
      raise ValueError(f"Must have even rows and columns for Lumina-mGPT, we instead got {self.rows} x {self.columns}")

  @property
  def has_row_ends(self) -> bool:
    return self.layout == "lumina"

  @property
  def end_ids(self) -> tuple[int, ...]:
    """See `ImageLanguageConfig.end_ids`."""
    return (self.end_row, self.end_image) if self.has_row_ends else ()

  @property
  def null_begins(self) -> str:
    """``null_start``, or what it is for this layout."""
    return self.null_start or ("image" if self.has_row_ends else "text")

  @property
  def null_length(self) -> int:
    """Tokens of the unconditional partner of a prompt."""
    return (1 if self.null_begins == "image" else 2) + (2 if self.has_row_ends else 0)


class HeadNorm(nn.Module):
  """Layer norm of every head of ``x [B, T, H, size]``, with a weight and a bias ``[H, size]``."""

  @nn.compact
  def __call__(self, x: Array) -> Array:
    weight = self.param("weight", nn.initializers.ones, x.shape[2:], jnp.float32)
    bias = self.param("bias", nn.initializers.zeros, x.shape[2:], jnp.float32)
    normed = layer_norm(x, _QK_NORM_EPS) * weight.astype(jnp.float32)[None, None]
    return (normed + bias.astype(jnp.float32)[None, None]).astype(x.dtype)


class Block(nn.Module):
  """Transformer block with norms before or after attention and MLP; queries and keys are normed before they are rotated."""

  config: ChameleonConfig

  @nn.compact
  def __call__(self, x: Array, at: Positions, cache: LayerCache):
    cfg = self.config
    norm1, norm2 = (RMSNorm(cfg.norm_eps, name=name) for name in ("input_layernorm", "post_attention_layernorm"))
    sizes = cfg.num_heads, cfg.kv_heads, cfg.head_dim
    attention = Attention(*sizes, rotate_halves, norm=HeadNorm, name="self_attn")
    mlp = SwiGLU(cfg.ffn_hidden, name="mlp")
    if not cfg.post_norm:
      return pre_norm(x, at, cache, norm1, attention, norm2, mlp)
    attended, cache = attention(x, at, cache)
    x = x + norm1(attended)
    return x + norm2(mlp(x)), cache


class Chameleon(ImageLanguage):
  """The transformer; see the module docstring. Call it through `chameleon_fns` or `drawing_fns`."""

  config: ChameleonConfig
  block_type: ClassVar = Block


@functools.cache
def chameleon_fns(config: ChameleonConfig) -> ModelFns:
  """Pure functions over the whole vocabulary; the same object for equal configs, so that jit caches hit."""
  return language_fns(Chameleon(config))
