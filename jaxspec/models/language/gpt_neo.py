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

from jaxspec.core.types import Array, ModelFns, ModelOutput
from jaxspec.models.language.language import language_fns, language_trunk, read_inputs
from jaxspec.models.nn.attention import window_mask
from jaxspec.models.nn.causal import Attention, LayerCache, Positions, pre_norm
from jaxspec.models.nn.config_checks import HeadSizes, published
from jaxspec.models.nn.linear import Embedding, Linear
from jaxspec.models.nn.mlp import MLP
from jaxspec.models.nn.norm import LayerNorm
from jaxspec.models.nn.transformer import Transformer, enter, read_out
from jaxspec.models.trunk import declare

LAYER_KINDS = ("global", "local")


@dataclasses.dataclass(frozen=True)
class GPTNeoConfig(HeadSizes):
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
    self.check_heads()
    if len(self.layer_kinds) != self.num_layers or set(self.layer_kinds) - set(LAYER_KINDS):
      raise ValueError(
        f"Must have {self.num_layers} attention layers, each global or local, we instead got {self.attention_layers}"
      )
    if self.window_size < 1:
      raise ValueError(f"Must have window_size of at least 1, we instead got {self.window_size}")

  @property
  def layer_kinds(self) -> tuple[str, ...]:
    return self.attention_layers or tuple(LAYER_KINDS[i % 2] for i in range(self.num_layers))

  @classmethod
  def named(cls, name: str, **overrides) -> GPTNeoConfig:
    """A published size, one of `PUBLISHED_SIZES`."""
    layers, dim, heads = published(PUBLISHED_SIZES, name)
    fields: dict[str, Any] = dict(num_layers=layers, dim=dim, num_heads=heads)
    return cls(**fields | overrides)


# name: (layers, width, heads)
PUBLISHED_SIZES = {"125M": (12, 768, 12), "1.3B": (24, 2048, 16), "2.7B": (32, 2560, 20)}


class Block(nn.Module):
  """Pre-norm transformer block: attention with unscaled scores and a bias at its output alone, and a tanh-GELU MLP."""

  config: GPTNeoConfig

  @nn.compact
  def __call__(self, x: Array, at: Positions, cache: LayerCache):
    cfg, names = self.config, ("q_proj", "k_proj", "v_proj", "out_proj")
    norm1, norm2 = (LayerNorm(cfg.norm_eps, name=name) for name in ("ln_1", "ln_2"))
    attention = Attention(cfg.num_heads, cfg.kv_heads, cfg.head_dim, names=names, output_bias=True, scale=1.0, name="attn")
    mlp = MLP(cfg.ffn_hidden or 4 * cfg.dim, names=("c_fc", "c_proj"), name="mlp")
    return pre_norm(x, at, cache, norm1, attention, norm2, mlp)


class GPTNeo(Transformer):
  """The transformer; see the module docstring. Call it through `gpt_neo_fns`."""

  config: GPTNeoConfig

  def setup(self):
    cfg = self.config
    self.wte = Embedding(cfg.vocab_size, cfg.dim)
    self.wpe = Embedding(cfg.max_positions, cfg.dim)
    self.h = [Block(cfg) for _ in range(cfg.num_layers)]
    self.ln_f = LayerNorm(cfg.norm_eps)
    if not cfg.tie_embeddings:
      self.lm_head = Linear(cfg.vocab_size)

  def embed(self, inputs, cache=None, positions=None, mask=None, inject=None, slot=None) -> tuple[Array, Positions]:
    cfg = self.config
    ids, text_positions, at = read_inputs(inputs, cache, positions, mask, slot)
    if "local" in cfg.layer_kinds:
      local = window_mask(at.mask, at.positions, at.start, cfg.window_size, mask)
      at = dataclasses.replace(at, local_mask=local)
    return enter(self.wte(ids) + self.wpe(text_positions), cfg.dtype, inject), at

  def block(self, i: int, x: Array, at: Positions, cache: LayerCache) -> tuple[Array, LayerCache]:
    if self.config.layer_kinds[i] == "local":
      at = dataclasses.replace(at, mask=at.local_mask)
    return self.h[i](x, at, cache)

  def head(self, x: Array, logits_at: Array | None = None) -> ModelOutput:
    return read_out(self.ln_f(x), self.wte.logits if self.config.tie_embeddings else self.lm_head, logits_at)


@functools.cache
def gpt_neo_fns(config: GPTNeoConfig) -> ModelFns:
  """Pure functions of one GPT-Neo network; the same object for equal configs, so that jit caches hit."""
  return language_fns(GPTNeo(config))


TRUNK = language_trunk(gpt_neo_fns, "wte")
declare("gpt_neo", GPTNeoConfig, TRUNK)
