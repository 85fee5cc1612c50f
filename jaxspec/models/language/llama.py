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

from jaxspec.core.types import Array, ModelFns, ModelOutput
from jaxspec.models.language.language import language_fns, language_trunk, read_inputs
from jaxspec.models.nn.causal import Attention, LayerCache, Positions, pre_norm
from jaxspec.models.nn.config_checks import HeadSizes
from jaxspec.models.nn.linear import Embedding, Linear
from jaxspec.models.nn.mlp import SwiGLU
from jaxspec.models.nn.norm import RMSNorm
from jaxspec.models.nn.rope_text import Rope, rope_table, rotate_halves
from jaxspec.models.nn.transformer import Transformer, enter, read_out
from jaxspec.models.trunk import declare


@dataclasses.dataclass(frozen=True)
class LlamaConfig(HeadSizes):
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
    self.check_heads(2)


def _rope_of(fields: dict) -> Rope:
  known = {field.name for field in dataclasses.fields(Rope)}
  if unknown := sorted(set(fields) - known):
    raise ValueError(f"Must have fields known to rope, we instead got {', '.join(unknown)}")
  return Rope(**fields)


class Block(nn.Module):
  """Pre-norm transformer block."""

  config: LlamaConfig

  @nn.compact
  def __call__(self, x: Array, at: Positions, cache: LayerCache):
    cfg = self.config
    norm1, norm2 = (RMSNorm(cfg.norm_eps, name=name) for name in ("input_layernorm", "post_attention_layernorm"))
    sizes, bias = (cfg.num_heads, cfg.kv_heads, cfg.head_dim), cfg.attention_bias
    attention = Attention(*sizes, rotate_halves, bias=bias, output_bias=bias, name="self_attn")
    return pre_norm(x, at, cache, norm1, attention, norm2, SwiGLU(cfg.ffn_hidden, bias=cfg.mlp_bias, name="mlp"))


class Llama(Transformer):
  """The transformer; see the module docstring. Call it through `llama_fns`."""

  config: LlamaConfig

  def setup(self):
    cfg = self.config
    self.embed_tokens = Embedding(cfg.vocab_size, cfg.dim)
    self.layers = [Block(cfg) for _ in range(cfg.num_layers)]
    self.norm = RMSNorm(cfg.norm_eps)
    if cfg.head_map:
      self.head_map = Linear(cfg.dim, bias=True)
    if not cfg.tie_embeddings:
      self.lm_head = Linear(cfg.vocab_size)

  def embed(self, inputs, cache=None, positions=None, mask=None, inject=None, slot=None) -> tuple[Array, Positions]:
    cfg = self.config
    ids, text_positions, at = read_inputs(inputs, cache, positions, mask, slot)
    at = dataclasses.replace(at, rotation=rope_table(cfg.rope, text_positions, cfg.head_dim))
    return enter(self.embed_tokens(ids), cfg.dtype, inject), at

  def head(self, x: Array, logits_at: Array | None = None) -> ModelOutput:
    features = self.head_map(self.norm(x)) if self.config.head_map else self.norm(x)
    return read_out(features, self.embed_tokens.logits if self.config.tie_embeddings else self.lm_head, logits_at)


@functools.cache
def llama_fns(config: LlamaConfig) -> ModelFns:
  """Pure functions of one Llama network; the same object for equal configs, so that jit caches hit."""
  return language_fns(Llama(config))


TRUNK = language_trunk(llama_fns, "embed_tokens")
declare("llama", LlamaConfig, TRUNK)
