"""Janus-Pro: a Llama network with a second input and a second output for images (arXiv 2501.17811, deepseek-ai/Janus).

1. tokens of a prompt: the token table of the language model; image codes: a table of their own, then an MLP (the aligner);
2. the blocks and the final norm of `jaxspec.models.language.llama`, with positions that count text and image alike;
3. an MLP over the image codes with one hidden layer, float32 logits. The output matrix of texts is not part of it.

The tokens that are drawn are image codes from 0. They are not ids of the text vocabulary. Submodules carry the names of the
official state dict.
"""

from __future__ import annotations

import dataclasses
import functools

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from jaxspec.core.types import Array, ModelFns, ModelOutput, Params
from jaxspec.models.conditions import Prefixed, Prompt, align_right
from jaxspec.models.language.language import read_inputs
from jaxspec.models.language.llama import Block, LlamaConfig
from jaxspec.models.nn.call import call
from jaxspec.models.nn.causal import Positions
from jaxspec.models.nn.config_checks import HeadSizes, check_whole, published
from jaxspec.models.nn.linear import Embedding, Linear
from jaxspec.models.nn.mlp import gelu
from jaxspec.models.nn.norm import RMSNorm
from jaxspec.models.nn.rope_text import Rope, rope_table
from jaxspec.models.nn.transformer import Transformer, enter, read_out, transformer_fns

_IDS = ("begin_text", "begin_image", "pad")


@dataclasses.dataclass(frozen=True)
class JanusConfig(HeadSizes):
  """Architecture of one network, and what its prompts are written with. The defaults are Janus-Pro-7B.

  Attributes:
    vocab_size: image codes ``V``, the tokens that are drawn.
    text_vocab_size: rows of the token table of prompts.
    num_kv_heads: number of key/value heads; None is one for every query head.
    max_positions: longest sequence of training. Released files have the limit of the language model instead.
    code_dim: width of the table of image codes.
    aligner_depth: matrices of the aligner.
    head_hidden: width of the hidden layer of the output.
    rows: rows of codes of an image, and ``columns`` codes of a row.
    begin_text: id that begins every prompt.
    begin_image: id that ends every prompt.
    pad: id that stands for a token of the prompt in the unconditional partner.
    user: role before the text of a prompt, and ``assistant`` the role after it.
    tensor_parallel: whether heads and hidden units are divided over a mesh (`jaxspec.core.mesh`).
  """

  vocab_size: int = 16384
  text_vocab_size: int = 102400
  dim: int = 4096
  num_layers: int = 30
  num_heads: int = 32
  num_kv_heads: int | None = None
  ffn_hidden: int = 11008
  norm_eps: float = 1e-6
  rope_theta: float = 10000.0
  max_positions: int = 4096
  code_dim: int = 8
  aligner_depth: int = 2
  head_hidden: int = 4096
  rows: int = 24
  columns: int = 24
  begin_text: int = 100000
  begin_image: int = 100016
  pad: int = 100002
  user: str = "<|User|>"
  assistant: str = "<|Assistant|>"
  dtype: str = "float32"
  tensor_parallel: bool = False

  def __post_init__(self):
    check_whole(self, _IDS)
    self.check_heads(2)
    for name in _IDS:
      if (id := getattr(self, name)) >= self.text_vocab_size:
        raise ValueError(f"Must have {name} below {self.text_vocab_size}, we instead got {id}")
    _ = self.language  # refuses an impossible base

  @classmethod
  def named(cls, name: str, **overrides) -> JanusConfig:
    """A published size: ``1B`` or ``7B``."""
    return cls(**published(PUBLISHED, name) | overrides)

  @property
  def grid(self) -> tuple[int, int]:
    """Rows and columns of the codes of an image."""
    return self.rows, self.columns

  @property
  def language(self) -> LlamaConfig:
    """The language model whose blocks it has."""
    names = ("dim", "num_layers", "num_heads", "num_kv_heads", "ffn_hidden", "norm_eps", "dtype", "tensor_parallel")
    return LlamaConfig(rope=Rope(self.rope_theta), **{name: getattr(self, name) for name in names})


PUBLISHED = {
  "1B": dict(dim=2048, num_layers=24, num_heads=16, ffn_hidden=5632, head_hidden=2048),
  "7B": {},
}


class Aligner(nn.Module):
  """MLP from the width of a code to that of the blocks; activations have the odd numbers among its layers."""

  config: JanusConfig

  @nn.compact
  def __call__(self, x: Array) -> Array:
    for i in range(self.config.aligner_depth):
      x = Linear(self.config.dim, bias=True, name=f"layers_{2 * i}")(gelu(x) if i else x)
    return x


class ImageHead(nn.Module):
  """MLP from hidden states to the logits of codes."""

  config: JanusConfig

  def setup(self):
    self.output_mlp_projector = Linear(self.config.head_hidden, bias=True)
    self.vision_head = Linear(self.config.vocab_size, bias=True)

  def features(self, x: Array) -> Array:
    """The hidden layer ``[..., E]``, of which the logits are an affine map."""
    return gelu(self.output_mlp_projector(x))

  def logits(self, features: Array) -> Array:
    """Logits ``[..., V]`` of the hidden layer."""
    return self.vision_head(features)


class Janus(Transformer):
  """The transformer; see the module docstring. Call it through `janus_fns`. Features are the hidden layer of its output."""

  config: JanusConfig

  def setup(self):
    cfg = self.config
    self.embed_tokens = Embedding(cfg.text_vocab_size, cfg.dim)
    self.gen_embed = Embedding(cfg.vocab_size, cfg.code_dim)
    self.gen_aligner = Aligner(cfg)
    self.layers = [Block(cfg.language) for _ in range(cfg.num_layers)]
    self.norm = RMSNorm(cfg.norm_eps)
    self.gen_head = ImageHead(cfg)

  def embed(self, inputs, cache=None, positions=None, mask=None, inject=None, slot=None) -> tuple[Array, Positions]:
    cfg = self.config
    ids, text_positions, at = read_inputs(inputs, cache, positions, mask, slot)
    at = dataclasses.replace(at, rotation=rope_table(cfg.language.rope, text_positions, cfg.head_dim))
    prompt = inputs.condition if isinstance(inputs, Prefixed) else inputs
    length = prompt.tokens.shape[1] if isinstance(prompt, Prompt) else 0  # of the prompt; image codes come after it
    parts = []
    if length:
      parts.append(self.embed_tokens(ids[:, :length]).astype(cfg.dtype))
    if length < ids.shape[1]:
      parts.append(self.embed_codes(ids[:, length:]))
    return enter(jnp.concatenate(parts, axis=1), cfg.dtype, inject), at

  def embed_codes(self, codes: Array) -> Array:
    """Input embeddings ``[..., D]`` of image codes, in the compute dtype."""
    return self.gen_aligner(self.gen_embed(codes).astype(self.config.dtype))

  def head(self, x: Array, logits_at: Array | None = None) -> ModelOutput:
    return read_out(self.gen_head.features(self.norm(x)), self.gen_head.logits, logits_at)


@functools.cache
def janus_fns(config: JanusConfig) -> ModelFns:
  """Pure functions over image codes; the same object for equal configs, so that jit caches hit."""
  sample = Prefixed(Prompt(np.zeros((1, 1), np.int32), np.ones((1, 1), bool)), np.zeros((1, 1), np.int32))
  null_condition = lambda params, prompt: null_prompt(config, prompt)
  return transformer_fns(Janus(config), sample, lambda prompt: prompt.tokens.shape[1], null_condition)


def code_embeddings(config: JanusConfig, params: Params) -> Array:
  """Input embeddings ``[V, D]`` of all image codes."""
  return call(Janus(config), params, jnp.arange(config.vocab_size), method="embed_codes")


def null_prompt(config: JanusConfig, prompt: Prompt) -> Prompt:
  """The unconditional partner of prompts ``[B, P]``: ``pad`` in place of all tokens but the first and the last.

  It has the length and the positions of the prompt, and attention sees its pads (``generation_inference.py`` of the official
  code). Padding of the batch stays hidden.
  """
  tokens, mask = align_right(prompt)
  index = jnp.arange(tokens.shape[1])[None]
  is_end = (index == jnp.argmax(mask, axis=1, keepdims=True)) | (index == tokens.shape[1] - 1)
  return Prompt(jnp.where(mask & ~is_end, config.pad, tokens), mask)
