"""LlamaGen: autoregressive image transformers, class- and text-conditional (arXiv 2406.06525).

The sequence is ``[condition (P), image token 0, image token 1, ...]`` in raster order; the output at position
``P - 1 + i`` is the distribution of image token i.

1. condition -> P embeddings (a class row, or caption features through a tanh-GELU MLP);
2. pre-norm blocks: attention with 2-D rotary positions and causal mask, then SwiGLU;
3. final RMSNorm, output matrix, float32 logits.

Submodules carry the names of the official state dict.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from jaxspec.core.types import Array, ModelFns, ModelOutput, Params, PyTree
from jaxspec.models.conditions import Caption, ClassLabels, Prefixed
from jaxspec.models.nn.causal import Attention, LayerCache, Positions, pre_norm, read_positions
from jaxspec.models.nn.config_checks import HeadSizes, published
from jaxspec.models.nn.linear import Embedding, Linear
from jaxspec.models.nn.mlp import MLP, SwiGLU
from jaxspec.models.nn.norm import RMSNorm
from jaxspec.models.nn.rope import rope_2d, rotate
from jaxspec.models.nn.transformer import Transformer, enter, read_out, transformer_fns
from jaxspec.models.trunk import Tables, Trunk, declare


@dataclasses.dataclass(frozen=True)
class LlamaGenConfig(HeadSizes):
  """Architecture of one LlamaGen transformer.

  Attributes:
    prefix_len: condition tokens ``P``: 1 for classes, 120 for T5 captions.
    num_tokens: image tokens ``N``; a perfect square.
    tensor_parallel: whether heads and hidden units are divided over a mesh (`jaxspec.core.mesh`). Queries, keys and values
      then have matrices of their own, because a part of the fused one would be queries alone.
    prefix_keys: whether condition positions have queries and keys. In the official networks these are zero, so a condition
      acts through the mean of its values. With them a small network learns much sooner to read its caption.
  """

  model_type: str = "c2i"
  num_layers: int = 12
  dim: int = 768
  num_heads: int = 12
  num_kv_heads: int | None = None
  vocab_size: int = 16384
  num_tokens: int = 256
  prefix_len: int = 1
  num_classes: int = 1000
  caption_dim: int = 2048
  multiple_of: int = 256
  ffn_dim_multiplier: float | None = None
  rope_base: float = 10000.0
  norm_eps: float = 1e-5
  prefix_keys: bool = False
  dtype: str = "float32"
  tensor_parallel: bool = False

  def __post_init__(self):
    if self.model_type not in ("c2i", "t2i"):
      raise ValueError(f"Must have model_type 'c2i' or 't2i', we instead got {self.model_type!r}")
    if self.grid**2 != self.num_tokens:
      raise ValueError(f"Must have a square number of image tokens, we instead got {self.num_tokens}")
    self.check_heads(4)
    if self.model_type == "c2i" and self.prefix_len != 1:
      raise ValueError(f"Must have prefix_len 1 for class-conditional models, we instead got {self.prefix_len}")

  @property
  def grid(self) -> int:
    return round(self.num_tokens**0.5)

  @property
  def ffn_hidden(self) -> int:
    hidden = int(2 * (4 * self.dim) / 3)
    if self.ffn_dim_multiplier is not None:
      hidden = int(self.ffn_dim_multiplier * hidden)
    return -(-hidden // self.multiple_of) * self.multiple_of

  @property
  def fused(self) -> dict[str, dict[str, slice]]:
    """Matrices that files hold and this network has in parts: the names of the parts, and their rows."""
    if not self.tensor_parallel:
      return {}
    q, k = self.num_heads * self.head_dim, self.kv_heads * self.head_dim
    return {"wqkv": {"wq": slice(0, q), "wk": slice(q, q + k), "wv": slice(q + k, q + 2 * k)}}

  @classmethod
  def named(cls, name: str, **overrides) -> LlamaGenConfig:
    """A published size, one of `PUBLISHED_SIZES`; text-conditional ones get 120 condition tokens."""
    layers, dim, heads = published(PUBLISHED_SIZES, name)
    fields: dict[str, Any] = dict(num_layers=layers, dim=dim, num_heads=heads)
    if overrides.get("model_type") == "t2i":
      fields["prefix_len"] = 120
    return cls(**fields | overrides)


# name: (layers, width, heads)
PUBLISHED_SIZES = {
  "GPT-B": (12, 768, 12),
  "GPT-L": (24, 1024, 16),
  "GPT-XL": (36, 1280, 20),
  "GPT-XXL": (48, 1536, 24),
  "GPT-XXXL": (48, 2560, 40),
  "GPT-1B": (22, 2048, 32),
  "GPT-3B": (24, 3200, 32),
  "GPT-7B": (32, 4096, 32),
}


def attention_of(config: HeadSizes, *, fused: bool = True) -> Attention:
  """Attention as all networks of this family have it."""
  names, matrix = ("wq", "wk", "wv", "wo"), "wqkv" if fused else None
  return Attention(config.num_heads, config.kv_heads, config.head_dim, rotate, names, matrix, name="attention")


def feed_forward(hidden: int) -> SwiGLU:
  """The MLP of a block."""
  return SwiGLU(hidden, ("w1", "w3", "w2"), name="feed_forward")


@nn.jit  # all layers of a network are traced once
class Block(nn.Module):
  """Pre-norm transformer block."""

  config: LlamaGenConfig

  @nn.compact
  def __call__(self, x: Array, at: Positions, cache: LayerCache):
    cfg = self.config
    norm1, norm2 = (RMSNorm(cfg.norm_eps, name=name) for name in ("attention_norm", "ffn_norm"))
    attention = attention_of(cfg, fused=not cfg.tensor_parallel)
    return pre_norm(x, at, cache, norm1, attention, norm2, feed_forward(cfg.ffn_hidden))


class ClassEmbedding(nn.Module):
  """Class table with one more row, the unconditional class."""

  config: LlamaGenConfig

  @nn.compact
  def __call__(self, condition: ClassLabels) -> Array:
    return Embedding(self.config.num_classes + 1, self.config.dim, name="embedding_table")(condition.labels[:, None])


class CaptionEmbedding(nn.Module):
  """Caption features to condition tokens; zero features stay exactly zero.

  It holds the unconditional features, which the official training never changes.
  """

  config: LlamaGenConfig

  @nn.compact
  def __call__(self, condition: Caption) -> Array:
    cfg = self.config
    self.param(
      "uncond_embedding", nn.initializers.normal(cfg.caption_dim**-0.5), (cfg.prefix_len, cfg.caption_dim), jnp.float32
    )
    return MLP(cfg.dim, cfg.dim, bias=False, name="cap_proj")(jnp.asarray(condition.features)[:, : cfg.prefix_len])


class LlamaGen(Transformer):
  """The transformer; see the module docstring. Call it through `llamagen_fns`."""

  config: LlamaGenConfig

  def setup(self):
    cfg = self.config
    self.cls_embedding: nn.Module = (ClassEmbedding if cfg.model_type == "c2i" else CaptionEmbedding)(cfg)
    self.tok_embeddings = Embedding(cfg.vocab_size, cfg.dim)
    self.layers = [Block(cfg) for _ in range(cfg.num_layers)]
    self.norm = RMSNorm(cfg.norm_eps)
    self.output = Linear(cfg.vocab_size, std=0.0)

  def embed(self, inputs, cache=None, positions=None, mask=None, inject=None, slot=None) -> tuple[Array, Positions]:
    cfg = self.config
    condition = inputs.condition if isinstance(inputs, Prefixed) else inputs
    if isinstance(inputs, Prefixed):
      x = jnp.concatenate([self.cls_embedding(condition), self.tok_embeddings(inputs.tokens)], axis=1)
    elif isinstance(inputs, ClassLabels | Caption):
      x = self.cls_embedding(inputs)
    else:
      x = self.tok_embeddings(inputs)
    valid = jnp.asarray(condition.mask)[:, : cfg.prefix_len].astype(bool) if isinstance(condition, Caption) else None
    at = read_positions(x.shape[1], cache, positions, mask, slot, valid)
    return enter(x, cfg.dtype, inject), rotated(cfg, at)

  def head(self, x: Array, logits_at: Array | None = None) -> ModelOutput:
    return read_out(self.norm(x), self.output, logits_at)


def rotated(cfg: LlamaGenConfig, at: Positions) -> Positions:
  """Positions with their rotary angles."""
  table = rope_2d(
    at.positions,
    prefix_len=cfg.prefix_len,
    grid=cfg.grid,
    head_dim=cfg.head_dim,
    base=cfg.rope_base,
    prefix_keys=cfg.prefix_keys,
  )
  return dataclasses.replace(at, rotation=table)


@functools.cache
def llamagen_fns(config: LlamaGenConfig) -> ModelFns:
  """Pure functions of one LlamaGen network; the same object for equal configs, so that jit caches hit."""

  def null_condition(params: Params, condition: PyTree) -> PyTree:
    if isinstance(condition, ClassLabels):
      return ClassLabels(jnp.full_like(condition.labels, config.num_classes))
    table = params["cls_embedding"]["uncond_embedding"].astype(condition.features.dtype)
    features = jnp.broadcast_to(table[None], (condition.features.shape[0], *table.shape))
    # The unconditional half keeps its partner's mask (as officially trained and sampled).
    return Caption(features, condition.mask)

  condition = ClassLabels(np.zeros((1,), np.int32))
  if config.model_type == "t2i":
    features = np.zeros((1, config.prefix_len, config.caption_dim), np.float32)
    condition = Caption(features, np.ones(features.shape[:2], bool))
  sample = Prefixed(condition, np.zeros((1, 1), np.int32))
  return transformer_fns(LlamaGen(config), sample, lambda condition: config.prefix_len, null_condition, packs=True)


# Condition positions are part of a head's sequence: the public drafters were trained so.
_FIELDS_OF_HEADS = (
  "dim", "num_heads", "num_kv_heads", "ffn_hidden", "vocab_size", "num_tokens", "prefix_len", "rope_base", "dtype",
)  # fmt: skip
TRUNK = Trunk(
  fns=llamagen_fns,
  params=lambda config, params: params,
  tables=lambda config, params: Tables(params["tok_embeddings"]["weight"], params["output"]["weight"]),
  head_fields=lambda config: {name: getattr(config, name) for name in _FIELDS_OF_HEADS},
)
declare("llamagen", LlamaGenConfig, TRUNK)
