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
import jax.numpy as jnp

from jaxspec.core.mesh import constrain
from jaxspec.core.types import Array, ModelFns, ModelOutput, PyTree
from jaxspec.models.language.language import heads_of, language_fns, read_inputs
from jaxspec.models.nn import kv_cache
from jaxspec.models.nn.causal import LayerCache, Positions, SwiGLU, attend_cached, run_blocks, wanted
from jaxspec.models.nn.linear import Embedding, Linear
from jaxspec.models.nn.norm import RMSNorm
from jaxspec.models.nn.rope_text import Rope, rope_table, rotate_halves


@dataclasses.dataclass(frozen=True)
class LlamaConfig:
  """Architecture of one Llama network.

  Attributes:
    num_kv_heads: number of key/value heads; None is one for every query head.
    head_size: None is ``dim / num_heads``.
    max_positions: longest text the network is meant for.
    rope: frequencies of the rotary positions, a `Rope` or a dict with its fields.
    head_map: whether an affine map stands between the final norm and the output matrix. Drafts that are cut out of a larger
      network have one; published networks have none.
    end_ids: tokens that end a text.
    tensor_parallel: whether heads and hidden units are divided over a mesh (`jaxspec.core.mesh`).
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
  head_map: bool = False
  end_ids: tuple[int, ...] = (2,)
  dtype: str = "float32"
  tensor_parallel: bool = False

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
  def __call__(self, x: Array, table: Array, at: Positions, cache: LayerCache):
    cfg = self.config
    project = lambda heads, name: heads_of(Linear(heads * cfg.head_dim, bias=cfg.attention_bias, name=name)(x), heads)
    q = rotate_halves(project(cfg.num_heads, "q_proj"), table)  # [B, T, H, size]
    k = rotate_halves(project(cfg.kv_heads, "k_proj"), table)  # [B, T, Hkv, size]
    out, cache = attend_cached(q, k, project(cfg.kv_heads, "v_proj"), at, cache)
    return Linear(cfg.dim, bias=cfg.attention_bias, name="o_proj")(out), cache


class Block(nn.Module):
  """Pre-norm transformer block."""

  config: LlamaConfig

  @nn.compact
  def __call__(self, x: Array, table: Array, at: Positions, cache: LayerCache):
    cfg = self.config
    normed = RMSNorm(cfg.norm_eps, name="input_layernorm")(x)
    attended, cache = Attention(cfg, name="self_attn")(normed, table, at, cache)
    x = x + attended
    mlp = SwiGLU(cfg.ffn_hidden, ("gate_proj", "up_proj", "down_proj"), cfg.mlp_bias, name="mlp")
    return x + mlp(RMSNorm(cfg.norm_eps, name="post_attention_layernorm")(x)), cache


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
    ids, text_positions, at = read_inputs(inputs, cache, positions, mask, slot)
    embed = Embedding(cfg.vocab_size, cfg.dim, name="embed_tokens")
    x = constrain(embed(ids).astype(cfg.dtype))  # [B, T, D]
    if inject is not None:
      x = x + inject.astype(x.dtype)
    table = rope_table(cfg.rope, text_positions, cfg.head_dim)
    block = lambda i, x, layer: Block(cfg, name=f"layers_{i}")(x, table, at, layer)
    x, cache = run_blocks(block, cfg.num_layers, x, cache, at.key_mask)
    features = RMSNorm(cfg.norm_eps, name="norm")(x)
    if cfg.head_map:
      features = Linear(cfg.dim, bias=True, name="head_map")(features)
    head = embed.logits if cfg.tie_embeddings else Linear(cfg.vocab_size, name="lm_head")
    logits = constrain(head(wanted(features, logits_at)).astype(jnp.float32))
    return ModelOutput(logits, features), cache


@functools.cache
def llama_fns(config: LlamaConfig) -> ModelFns:
  """Pure functions of one Llama network; the same object for equal configs, so that jit caches hit."""
  return language_fns(Llama(config), kv_heads=config.kv_heads)
