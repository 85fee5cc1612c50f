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
from collections.abc import Callable
from typing import Any, Protocol, cast

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxspec.core.mesh import constrain
from jaxspec.core.types import Array, Key, ModelFns, ModelOutput, Params, PyTree
from jaxspec.models.conditions import Caption, ClassLabels, Prefixed
from jaxspec.models.nn import kv_cache
from jaxspec.models.nn.causal import (
  LayerCache,
  Positions,
  SwiGLU,
  attend_cached,
  lens_of,
  read_positions,
  run_blocks,
  transformer_fns,
  wanted,
)
from jaxspec.models.nn.config_checks import published
from jaxspec.models.nn.linear import Embedding, Linear
from jaxspec.models.nn.norm import RMSNorm
from jaxspec.models.nn.rope import rope_2d, rotate
from jaxspec.models.trunk import Tables, Trunk, declare


@dataclasses.dataclass(frozen=True)
class LlamaGenConfig:
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
    if self.dim % self.num_heads or self.head_dim % 4:
      raise ValueError(f"Must have a head size divisible by 4, we instead got width {self.dim} over {self.num_heads} heads")
    if self.num_heads % self.kv_heads:
      raise ValueError(f"Must have heads divisible by kv heads, we instead got {self.num_heads} and {self.kv_heads}")
    if self.model_type == "c2i" and self.prefix_len != 1:
      raise ValueError(f"Must have prefix_len 1 for class-conditional models, we instead got {self.prefix_len}")

  @property
  def grid(self) -> int:
    return round(self.num_tokens**0.5)

  @property
  def head_dim(self) -> int:
    return self.dim // self.num_heads

  @property
  def kv_heads(self) -> int:
    return self.num_kv_heads or self.num_heads

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


class BlockConfig(Protocol):
  """What `Attention` and `feed_forward` read of a config."""

  @property
  def dim(self) -> int: ...
  @property
  def num_heads(self) -> int: ...
  @property
  def kv_heads(self) -> int: ...
  @property
  def head_dim(self) -> int: ...
  @property
  def ffn_hidden(self) -> int: ...
  @property
  def tensor_parallel(self) -> bool: ...


class Attention(nn.Module):
  """Causal attention with a fused query/key/value matrix and optional grouped queries."""

  config: BlockConfig

  @nn.compact
  def __call__(self, x: Array, table: Array, at: Positions, cache: LayerCache):
    cfg = self.config
    heads, kv_heads, size = cfg.num_heads, cfg.kv_heads, cfg.head_dim
    split = lambda flat: flat.reshape(*x.shape[:2], -1, size)
    if cfg.tensor_parallel:
      q, k, v = (split(Linear(n * size, name=name)(x)) for n, name in ((heads, "wq"), (kv_heads, "wk"), (kv_heads, "wv")))
    else:
      qkv = split(Linear((heads + 2 * kv_heads) * size, name="wqkv")(x))
      q, k, v = jnp.split(qkv, [heads, heads + kv_heads], axis=2)
    out, cache = attend_cached(rotate(q, table), rotate(k, table), v, at, cache)
    return Linear(cfg.dim, name="wo")(out), cache


def feed_forward(config: BlockConfig) -> SwiGLU:
  """The MLP of a block, to be called once in it."""
  return SwiGLU(config.ffn_hidden, ("w1", "w3", "w2"), name="feed_forward")


@nn.jit  # all layers of a network are traced once
class Block(nn.Module):
  """Pre-norm transformer block."""

  config: LlamaGenConfig

  @nn.compact
  def __call__(self, x: Array, table: Array, at: Positions, cache: LayerCache):
    cfg = self.config
    normed = RMSNorm(cfg.norm_eps, name="attention_norm")(x)
    attended, cache = Attention(cfg, name="attention")(normed, table, at, cache)
    x = x + attended
    return x + feed_forward(cfg)(RMSNorm(cfg.norm_eps, name="ffn_norm")(x)), cache


class ClassEmbedding(nn.Module):
  """Class table with one more row, the unconditional class."""

  config: LlamaGenConfig

  @nn.compact
  def __call__(self, condition: ClassLabels) -> Array:
    return Embedding(self.config.num_classes + 1, self.config.dim, name="embedding_table")(condition.labels[:, None])


class CaptionMLP(nn.Module):
  """``fc2(gelu_tanh(fc1(x)))``; zero features stay exactly zero."""

  config: LlamaGenConfig

  @nn.compact
  def __call__(self, x: Array) -> Array:
    return Linear(self.config.dim, name="fc2")(jax.nn.gelu(Linear(self.config.dim, name="fc1")(x), approximate=True))


class CaptionEmbedding(nn.Module):
  """Caption features to condition tokens; holds the unconditional features, which the official training never changes."""

  config: LlamaGenConfig

  @nn.compact
  def __call__(self, condition: Caption) -> Array:
    cfg = self.config
    self.param(
      "uncond_embedding", nn.initializers.normal(cfg.caption_dim**-0.5), (cfg.prefix_len, cfg.caption_dim), jnp.float32
    )
    return CaptionMLP(cfg, name="cap_proj")(jnp.asarray(condition.features)[:, : cfg.prefix_len])


class LlamaGen(nn.Module):
  """The transformer; see the module docstring. Call it through `llamagen_fns`."""

  config: LlamaGenConfig
  lens: bool = False

  @nn.compact
  def __call__(
    self,
    inputs: PyTree,
    cache: kv_cache.KVCache | None,
    positions: Array | None,
    mask: Array | None = None,
    inject: Array | None = None,
    logits_at: Array | None = None,
    slot: Array | None = None,
  ):
    cfg = self.config
    x = constrain(self._embed(inputs).astype(cfg.dtype))  # [B, T, D]
    if inject is not None:
      x = x + inject.astype(x.dtype)
    condition = inputs.condition if isinstance(inputs, Prefixed) else inputs
    valid = jnp.asarray(condition.mask)[:, : cfg.prefix_len].astype(bool) if isinstance(condition, Caption) else None
    at = read_positions(x.shape[1], cache, positions, mask, slot, valid)
    table = rope_2d(
      at.positions,
      prefix_len=cfg.prefix_len,
      grid=cfg.grid,
      head_dim=cfg.head_dim,
      base=cfg.rope_base,
      prefix_keys=cfg.prefix_keys,
    )
    below = []

    def block(i, x, layer):
      below.extend([x] if i else [])
      return Block(cfg, name=f"layers_{i}")(x, table, at, layer)

    x, cache = run_blocks(block, cfg.num_layers, x, cache, at.key_mask)
    norm, output = RMSNorm(cfg.norm_eps, name="norm"), Linear(cfg.vocab_size, std=0.0, name="output")
    features = norm(x)
    logits = constrain(output(wanted(features, logits_at)).astype(jnp.float32))
    lens = lens_of(below, lambda layer: output(norm(layer)), logits, logits_at) if self.lens else None
    return ModelOutput(logits, features, lens=lens), cache

  def _embed(self, inputs: PyTree) -> Array:
    cfg = self.config
    embedding = ClassEmbedding if cfg.model_type == "c2i" else CaptionEmbedding
    embed_condition = cast(Callable[[Any], Array], embedding(cfg, name="cls_embedding"))  # of one of the two
    embed_tokens = Embedding(cfg.vocab_size, cfg.dim, name="tok_embeddings")
    if isinstance(inputs, Prefixed):
      return jnp.concatenate([embed_condition(inputs.condition), embed_tokens(inputs.tokens)], axis=1)
    if isinstance(inputs, ClassLabels | Caption):
      return embed_condition(inputs)
    return embed_tokens(inputs)


@functools.cache
def llamagen_fns(config: LlamaGenConfig, *, lens: bool = False) -> ModelFns:
  """Pure functions of one LlamaGen network; the same object for equal configs, so that jit caches hit.

  Args:
    lens: also return `ModelOutput.lens`: norm and output matrix applied to the layers below the last (the "logit lens").
      A compiled program computes them only if they are read.
  """
  module = LlamaGen(config, lens)

  def init(key: Key) -> Params:
    batch = 1
    if config.model_type == "c2i":
      condition = ClassLabels(jnp.zeros((batch,), jnp.int32))
    else:
      features = jnp.zeros((batch, config.prefix_len, config.caption_dim))
      condition = Caption(features, jnp.ones((batch, config.prefix_len), bool))
    inputs = Prefixed(condition, jnp.zeros((batch, 1), jnp.int32))
    positions = jnp.arange(config.prefix_len + 1)[None]
    return module.init(key, inputs, None, positions)["params"]

  def null_condition(params: Params, condition: PyTree) -> PyTree:
    if isinstance(condition, ClassLabels):
      return ClassLabels(jnp.full_like(condition.labels, config.num_classes))
    table = params["cls_embedding"]["uncond_embedding"].astype(condition.features.dtype)
    features = jnp.broadcast_to(table[None], (condition.features.shape[0], *table.shape))
    # The unconditional half keeps its partner's mask (as officially trained and sampled).
    return Caption(features, condition.mask)

  prefix_len = lambda condition: config.prefix_len
  return transformer_fns(module, init, prefix_len, null_condition, num_layers=config.num_layers, kv_heads=config.kv_heads)


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
