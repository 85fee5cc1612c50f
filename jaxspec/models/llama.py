"""Llama: autoregressive language models with rotary positions and grouped queries (arXiv 2302.13971, 2407.21783).

1. token embeddings;
2. pre-norm blocks: grouped-query attention with rotary positions (`rope_text`), then SwiGLU;
3. final RMSNorm, output matrix (or the token table, tied), float32 logits.

Submodules carry the names of the Hugging Face state dict. Networks of the same shape are read too: SmolLM2, TinyLlama.
"""

from __future__ import annotations

import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxspec.models import kv_cache
from jaxspec.models.attention import attend
from jaxspec.models.language import extend_cache, fold_heads, heads_of, language_fns, read_inputs, wanted
from jaxspec.models.linear import Embedding, Linear
from jaxspec.models.norm import RMSNorm
from jaxspec.models.rope_text import Rope, rope_table, rotate_halves
from jaxspec.types import Array, ModelFns, ModelOutput, PyTree


@dataclasses.dataclass(frozen=True)
class LlamaConfig:
  """Architecture of one Llama network.

  Attributes:
    num_kv_heads: key/value heads; None is one for every query head.
    head_size: None is ``dim / num_heads``.
    max_positions: longest text the network is meant for.
    rope: frequencies of the rotary positions; a dict with its fields does too.
    end_ids: tokens that end a text.
  """

  vocab_size: int = 32000
  dim: int = 4096
  num_layers: int = 32
  num_heads: int = 32
  num_kv_heads: int | None = None
  head_size: int | None = None
  ffn_hidden: int = 11008
  norm_eps: float = 1e-6
  max_positions: int = 2048
  rope: Rope = Rope()
  attention_bias: bool = False
  mlp_bias: bool = False
  tie_embeddings: bool = False
  end_ids: tuple[int, ...] = (2,)
  dtype: str = "float32"

  def __post_init__(self):
    if isinstance(self.rope, dict):
      object.__setattr__(self, "rope", _rope_of(self.rope))
    if self.head_size is None and self.dim % self.num_heads:
      raise ValueError(f"Must have a width divisible by the heads, we instead got {self.dim} over {self.num_heads}")
    if self.head_dim % 2:
      raise ValueError(f"Must have an even head size, we instead got {self.head_dim}")
    if self.num_heads % self.kv_heads:
      raise ValueError(f"Must have heads divisible by kv heads, we instead got {self.num_heads} and {self.kv_heads}")

  @property
  def head_dim(self) -> int:
    return self.head_size or self.dim // self.num_heads

  @property
  def kv_heads(self) -> int:
    return self.num_kv_heads or self.num_heads


def _rope_of(fields: dict) -> Rope:
  known = {field.name for field in dataclasses.fields(Rope)}
  if unknown := sorted(set(fields) - known):
    raise ValueError(f"Must have fields known to rope, we instead got {', '.join(unknown)}")
  return Rope(**fields)


class Attention(nn.Module):
  """Causal attention with grouped queries."""

  config: LlamaConfig

  @nn.compact
  def __call__(self, x: Array, table: Array, mask: Array, cache: tuple[Array, Array] | None, start: Array, causal: bool):
    cfg = self.config
    project = lambda heads, name: heads_of(Linear(heads * cfg.head_dim, bias=cfg.attention_bias, name=name)(x), heads)
    q = rotate_halves(project(cfg.num_heads, "q_proj"), table)  # [B, T, H, size]
    k = fold_heads(rotate_halves(project(cfg.kv_heads, "k_proj"), table))  # [B * Hkv, T, size]
    v = fold_heads(project(cfg.kv_heads, "v_proj"))
    k, v, cache = extend_cache(cache, k, v, start)
    out = attend(q.swapaxes(1, 2), k, v, mask, causal=causal).swapaxes(1, 2)
    out = out.reshape(*x.shape[:2], cfg.num_heads * cfg.head_dim)
    return Linear(cfg.dim, bias=cfg.attention_bias, name="o_proj")(out), cache


class MLP(nn.Module):
  """SwiGLU: ``down(silu(gate x) * up x)``."""

  config: LlamaConfig

  @nn.compact
  def __call__(self, x: Array) -> Array:
    bias = self.config.mlp_bias
    gate = Linear(self.config.ffn_hidden, bias=bias, name="gate_proj")(x)
    up = Linear(self.config.ffn_hidden, bias=bias, name="up_proj")(x)
    return Linear(self.config.dim, bias=bias, name="down_proj")(jax.nn.silu(gate) * up)


class Block(nn.Module):
  """Pre-norm transformer block."""

  config: LlamaConfig

  @nn.compact
  def __call__(self, x: Array, table: Array, mask: Array, cache: tuple[Array, Array] | None, start: Array, causal: bool):
    eps = self.config.norm_eps
    attended, cache = Attention(self.config, name="self_attn")(
      RMSNorm(eps, name="input_layernorm")(x), table, mask, cache, start, causal
    )
    x = x + attended
    return x + MLP(self.config, name="mlp")(RMSNorm(eps, name="post_attention_layernorm")(x)), cache


class Llama(nn.Module):
  """The transformer; see the module docstring. Call it through `llama_fns`."""

  config: LlamaConfig

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
    text = read_inputs(inputs, cache, positions, mask, slot)
    embed = Embedding(cfg.vocab_size, cfg.dim, name="embed_tokens")
    x = embed(text.ids).astype(cfg.dtype)  # [B, T, D]
    if inject is not None:
      x = x + inject.astype(x.dtype)
    table = rope_table(cfg.rope, text.places, cfg.head_dim)
    k, v = [], []
    for i in range(cfg.num_layers):
      layer_cache = None if cache is None else (cache.k[i], cache.v[i])
      x, layer_cache = Block(cfg, name=f"layers_{i}")(x, table, text.mask, layer_cache, text.start, text.causal)
      if layer_cache is not None:
        k.append(layer_cache[0])
        v.append(layer_cache[1])
    features = RMSNorm(cfg.norm_eps, name="norm")(x)
    head = embed.logits if cfg.tie_embeddings else Linear(cfg.vocab_size, name="lm_head")
    logits = head(wanted(features, logits_at)).astype(jnp.float32)
    new_cache = None if cache is None else kv_cache.KVCache(tuple(k), tuple(v), text.key_mask)
    return ModelOutput(logits, features), new_cache


@functools.cache
def llama_fns(config: LlamaConfig) -> ModelFns:
  """Pure functions of one Llama network; the same object for equal configs, so that jit caches hit."""
  return language_fns(
    Llama(config), num_layers=config.num_layers, kv_heads=config.kv_heads, head_dim=config.head_dim, dtype=config.dtype
  )
