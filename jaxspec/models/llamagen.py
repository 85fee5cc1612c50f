"""LlamaGen: autoregressive image transformers, class- and text-conditional (arXiv 2406.06525).

The sequence is ``[condition (P), image token 0, image token 1, ...]`` in raster order; the output at position
``P - 1 + i`` is the law of image token i.

1. condition -> P embeddings (a class row, or caption features through a tanh-GELU MLP);
2. pre-norm blocks: attention with 2-D rotary positions and causal mask, then SwiGLU;
3. final RMSNorm, output matrix, float32 logits.

Submodules carry the names of the official state dict.
"""

from __future__ import annotations

import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxspec.models import kv_cache
from jaxspec.models.attention import attend, attention_mask
from jaxspec.models.conditions import Caption, ClassLabels, Prefixed
from jaxspec.models.linear import Embedding, Linear
from jaxspec.models.norm import RMSNorm
from jaxspec.models.rope import rope_2d, rotate
from jaxspec.types import Array, Key, ModelFns, ModelOutput, Params, PyTree


@dataclasses.dataclass(frozen=True)
class LlamaGenConfig:
  """Architecture of one LlamaGen transformer.

  Attributes:
    prefix_len: condition tokens ``P``: 1 for classes, 120 for T5 captions.
    num_tokens: image tokens ``N``; a perfect square.
    prefix_keys: whether condition positions keep their queries and keys. Officially they vanish, and a condition acts
      through the mean of its values; a small network learns to read its caption much sooner with them.
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

  def __post_init__(self):
    if self.model_type not in ("c2i", "t2i"):
      raise ValueError(f"Must have model_type 'c2i' or 't2i', we instead got {self.model_type!r}")
    if self.grid**2 != self.num_tokens:
      raise ValueError(f"Must have a square number of image tokens, we instead got {self.num_tokens}")
    if self.dim % self.num_heads or self.head_dim % 4:
      raise ValueError(
        f"Must have a head size divisible by 4, we instead got width {self.dim} over {self.num_heads} heads"
      )
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

  @classmethod
  def named(cls, name: str, **overrides) -> LlamaGenConfig:
    """A published size, one of `PUBLISHED_SIZES`; text-conditional ones get 120 condition tokens."""
    if name not in PUBLISHED_SIZES:
      raise ValueError(f"Must have a size in {', '.join(PUBLISHED_SIZES)}, we instead got {name!r}")
    layers, dim, heads = PUBLISHED_SIZES[name]
    kwargs = dict(num_layers=layers, dim=dim, num_heads=heads) | overrides
    if kwargs.get("model_type") == "t2i":
      kwargs.setdefault("prefix_len", 120)
    return cls(**kwargs)


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


class Attention(nn.Module):
  """Causal attention with a fused query/key/value matrix and optional grouped queries."""

  config: LlamaGenConfig

  @nn.compact
  def __call__(self, x: Array, table: Array, mask: Array, cache: tuple[Array, Array] | None, start: Array, causal: bool):
    cfg = self.config
    batch, length, _ = x.shape
    heads, kv_heads, size = cfg.num_heads, cfg.kv_heads, cfg.head_dim
    qkv = Linear((heads + 2 * kv_heads) * size, name="wqkv")(x).reshape(batch, length, -1, size)
    q, k, v = jnp.split(qkv, [heads, heads + kv_heads], axis=2)
    q, k = rotate(q, table), rotate(k, table)

    fold = lambda y: y.swapaxes(1, 2).reshape(batch * kv_heads, length, size)
    k, v = fold(k), fold(v)  # [B * Hkv, T, size]
    if cache is not None:
      k, v = kv_cache.write(cache[0], k, start), kv_cache.write(cache[1], v, start)
      cache = (k, v)
      k, v = kv_cache.read(k), kv_cache.read(v)
    out = attend(q.swapaxes(1, 2), k, v, mask, causal=causal)
    out = out.swapaxes(1, 2).reshape(batch, length, heads * size)
    return Linear(cfg.dim, name="wo")(out), cache


class FeedForward(nn.Module):
  """SwiGLU: ``w2(silu(w1 x) * w3 x)``."""

  config: LlamaGenConfig

  @nn.compact
  def __call__(self, x: Array) -> Array:
    gate = Linear(self.config.ffn_hidden, name="w1")(x)
    up = Linear(self.config.ffn_hidden, name="w3")(x)
    return Linear(self.config.dim, name="w2")(jax.nn.silu(gate) * up)


class Block(nn.Module):
  """Pre-norm transformer block."""

  config: LlamaGenConfig

  @nn.compact
  def __call__(self, x: Array, table: Array, mask: Array, cache, start: Array, causal: bool):
    eps = self.config.norm_eps
    attended, cache = Attention(self.config, name="attention")(
      RMSNorm(eps, name="attention_norm")(x), table, mask, cache, start, causal
    )
    x = x + attended
    return x + FeedForward(self.config, name="feed_forward")(RMSNorm(eps, name="ffn_norm")(x)), cache


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
  """Caption features to condition tokens; holds the unconditional features, which are never trained officially."""

  config: LlamaGenConfig

  @nn.compact
  def __call__(self, condition: Caption) -> Array:
    cfg = self.config
    self.param(
      "uncond_embedding", nn.initializers.normal(cfg.caption_dim**-0.5), (cfg.prefix_len, cfg.caption_dim), jnp.float32
    )
    return CaptionMLP(cfg, name="cap_proj")(condition.features[:, : cfg.prefix_len])


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
    x = self._embed(inputs).astype(cfg.dtype)  # [B, T, D]
    if inject is not None:
      x = x + inject.astype(x.dtype)
    batch, length, _ = x.shape
    causal = positions is None and mask is None and cache is None  # a whole sequence from its start
    if positions is None:
      positions = jnp.arange(length)[None]

    condition = inputs.condition if isinstance(inputs, Prefixed) else inputs
    key_mask = None if cache is None else cache.key_mask
    if isinstance(condition, Caption):
      slots = length if cache is None else key_mask.shape[1]
      padding = jnp.ones((batch, slots - cfg.prefix_len), bool)
      key_mask = jnp.concatenate([condition.mask[:, : cfg.prefix_len].astype(bool), padding], axis=1)
    elif key_mask is None:
      key_mask = jnp.ones((1, length), bool)
    start = positions[:, 0] if slot is None else slot  # [B or 1]
    mask = attention_mask(positions, start, mask, key_mask)
    table = rope_2d(
      positions, prefix_len=cfg.prefix_len, grid=cfg.grid, head_dim=cfg.head_dim, base=cfg.rope_base,
      prefix_keys=cfg.prefix_keys,
    )
    k, v, below = [], [], []
    for i in range(cfg.num_layers):
      below += [x] if i else []
      layer_cache = None if cache is None else (cache.k[i], cache.v[i])
      x, layer_cache = Block(cfg, name=f"layers_{i}")(x, table, mask, layer_cache, start, causal)
      if layer_cache is not None:
        k.append(layer_cache[0])
        v.append(layer_cache[1])
    norm, output = RMSNorm(cfg.norm_eps, name="norm"), Linear(cfg.vocab_size, std=0.0, name="output")

    def wanted(values: Array) -> Array:
      if logits_at is None:
        return values
      return jnp.take_along_axis(values, jnp.broadcast_to(logits_at[:, None, None], (batch, 1, 1)), axis=1)

    features = norm(x)
    logits = output(wanted(features)).astype(jnp.float32)
    lens = None
    if self.lens:
      read = [output(norm(wanted(layer))).astype(jnp.float32) for layer in below]
      lens = jnp.stack(read, axis=2) if read else jnp.zeros((*logits.shape[:2], 0, cfg.vocab_size), jnp.float32)
    new_cache = None if cache is None else kv_cache.KVCache(tuple(k), tuple(v), key_mask)
    return ModelOutput(logits, features, lens=lens), new_cache

  def _embed(self, inputs: PyTree) -> Array:
    cfg = self.config
    embed_condition = (ClassEmbedding if cfg.model_type == "c2i" else CaptionEmbedding)(cfg, name="cls_embedding")
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
    lens: return `ModelOutput.lens` too: norm and output matrix applied to the layers below the last (the "logit lens").
      What no one reads is not computed in a compiled program.
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

  def init_cache(batch: int, max_len: int) -> kv_cache.KVCache:
    return kv_cache.init_cache(config.num_layers, batch, config.kv_heads, max_len, config.head_dim, config.dtype)

  def apply(params, inputs, cache=None, *, positions=None, mask=None, inject=None, logits_at=None, slot=None):
    return module.apply({"params": params}, inputs, cache, positions, mask, inject, logits_at, slot)

  def null_condition(params: Params, condition: PyTree) -> PyTree:
    if isinstance(condition, ClassLabels):
      return ClassLabels(jnp.full_like(condition.labels, config.num_classes))
    table = params["cls_embedding"]["uncond_embedding"].astype(condition.features.dtype)
    features = jnp.broadcast_to(table[None], (condition.features.shape[0], *table.shape))
    # The unconditional half keeps its partner's mask (as officially trained and sampled).
    return Caption(features, condition.mask)

  return ModelFns(init, init_cache, apply, lambda condition: config.prefix_len, null_condition, kv_cache.compact)

