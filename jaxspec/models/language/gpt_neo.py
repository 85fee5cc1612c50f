"""GPT-Neo: autoregressive language models with alternating global and local attention (EleutherAI, 2021).

1. token plus learned position embeddings;
2. pre-norm blocks: attention without a factor on the scores (the released weights were trained so), every second layer
   over the newest ``window_size`` positions only, then a tanh-GELU MLP;
3. final layer norm; the output matrix is the token table unless it is untied; float32 logits.

Submodules carry the names of the released state dict. Source: the GPT-Neo weights on the Hugging Face hub
(EleutherAI/gpt-neo-125m, -1.3B, -2.7B) and the model of that name in the transformers library.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxspec.core.mesh import constrain
from jaxspec.core.types import Array, ModelFns, ModelOutput, PyTree
from jaxspec.models.language.language import heads_of, language_fns, read_inputs
from jaxspec.models.nn import kv_cache
from jaxspec.models.nn.attention import window_mask
from jaxspec.models.nn.causal import LayerCache, Positions, attend_cached, run_blocks, wanted
from jaxspec.models.nn.config_checks import published
from jaxspec.models.nn.linear import Embedding, Linear
from jaxspec.models.nn.norm import LayerNorm

LAYER_KINDS = ("global", "local")


@dataclasses.dataclass(frozen=True)
class GPTNeoConfig:
  """Architecture of one GPT-Neo network.

  Attributes:
    attention_layers: ``global`` or ``local`` for every layer; empty alternates, beginning with global.
    window_size: positions that an input of a local layer sees, its own included.
    ffn_hidden: width of the MLP; None is four times ``dim``.
    end_ids: tokens that end a text.
    tensor_parallel: whether heads and hidden units are divided over a mesh (`jaxspec.core.mesh`).
  """

  vocab_size: int = 50257
  max_positions: int = 2048
  dim: int = 768
  num_layers: int = 12
  num_heads: int = 12
  attention_layers: tuple[str, ...] = ()
  window_size: int = 256
  ffn_hidden: int | None = None
  norm_eps: float = 1e-5
  tie_embeddings: bool = True
  end_ids: tuple[int, ...] = (50256,)
  dtype: str = "float32"
  tensor_parallel: bool = False

  def __post_init__(self):
    if self.dim % self.num_heads:
      raise ValueError(f"Must have a width divisible by the heads, we instead got {self.dim} over {self.num_heads}")
    if len(self.layer_kinds) != self.num_layers or set(self.layer_kinds) - set(LAYER_KINDS):
      raise ValueError(
        f"Must have {self.num_layers} attention layers, each global or local, we instead got {self.attention_layers}"
      )
    if self.window_size < 1:
      raise ValueError(f"Must have window_size of at least 1, we instead got {self.window_size}")

  @property
  def layer_kinds(self) -> tuple[str, ...]:
    return self.attention_layers or tuple(LAYER_KINDS[i % 2] for i in range(self.num_layers))

  @property
  def head_dim(self) -> int:
    return self.dim // self.num_heads

  @classmethod
  def named(cls, name: str, **overrides) -> GPTNeoConfig:
    """A published size, one of `PUBLISHED_SIZES`."""
    layers, dim, heads = published(PUBLISHED_SIZES, name)
    fields: dict[str, Any] = dict(num_layers=layers, dim=dim, num_heads=heads)
    return cls(**fields | overrides)


# name: (layers, width, heads)
PUBLISHED_SIZES = {"125M": (12, 768, 12), "1.3B": (24, 2048, 16), "2.7B": (32, 2560, 20)}


class Attention(nn.Module):
  """Causal attention with unscaled scores; only the output projection has a bias."""

  config: GPTNeoConfig

  @nn.compact
  def __call__(self, x: Array, at: Positions, cache: LayerCache):
    cfg = self.config
    project = lambda name: heads_of(Linear(cfg.dim, name=name)(x), cfg.num_heads)  # [B, T, H, size]
    out, cache = attend_cached(project("q_proj"), project("k_proj"), project("v_proj"), at, cache, scale=1.0)
    return Linear(cfg.dim, bias=True, name="out_proj")(out), cache


class MLP(nn.Module):
  """``c_proj(gelu_tanh(c_fc(x)))`` with biases."""

  config: GPTNeoConfig

  @nn.compact
  def __call__(self, x: Array) -> Array:
    hidden = Linear(self.config.ffn_hidden or 4 * self.config.dim, bias=True, name="c_fc")(x)
    return Linear(self.config.dim, bias=True, name="c_proj")(jax.nn.gelu(hidden, approximate=True))


class Block(nn.Module):
  """Pre-norm transformer block."""

  config: GPTNeoConfig

  @nn.compact
  def __call__(self, x: Array, at: Positions, cache: LayerCache):
    eps = self.config.norm_eps
    attended, cache = Attention(self.config, name="attn")(LayerNorm(eps, name="ln_1")(x), at, cache)
    x = x + attended
    return x + MLP(self.config, name="mlp")(LayerNorm(eps, name="ln_2")(x)), cache


class GPTNeo(nn.Module):
  """The transformer; see the module docstring. Call it through `gpt_neo_fns`."""

  config: GPTNeoConfig

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
    table = Embedding(cfg.vocab_size, cfg.dim, name="wte")
    x = table(ids) + Embedding(cfg.max_positions, cfg.dim, name="wpe")(text_positions)  # [B, T, D]
    x = constrain(x.astype(cfg.dtype))
    if inject is not None:
      x = x + inject.astype(x.dtype)
    seen = {"global": at}
    if "local" in cfg.layer_kinds:
      seen["local"] = dataclasses.replace(at, mask=window_mask(at.mask, at.positions, at.start, cfg.window_size, mask))
    block = lambda i, x, layer: Block(cfg, name=f"h_{i}")(x, seen[cfg.layer_kinds[i]], layer)
    x, cache = run_blocks(block, cfg.num_layers, x, cache, at.key_mask)
    features = LayerNorm(cfg.norm_eps, name="ln_f")(x)
    head = table.logits if cfg.tie_embeddings else Linear(cfg.vocab_size, name="lm_head")
    logits = constrain(head(wanted(features, logits_at)).astype(jnp.float32))
    return ModelOutput(logits, features), cache


@functools.cache
def gpt_neo_fns(config: GPTNeoConfig) -> ModelFns:
  """Pure functions of one GPT-Neo network; the same object for equal configs, so that jit caches hit."""
  return language_fns(GPTNeo(config), kv_heads=config.num_heads)
