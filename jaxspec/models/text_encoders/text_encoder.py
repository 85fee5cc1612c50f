"""A small learned text encoder that replaces the T5 features of the released LlamaGen models.

A bidirectional transformer over the tokens of a short prompt. Its output ``[B, P, caption_dim]`` is a `Caption` like
any other, so that networks conditioned on it and networks conditioned on T5 features are the same architecture.
Prompts are left padded; a token's position counts valid tokens only.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxspec.core.types import Array, Key, Params
from jaxspec.models.conditions import Caption
from jaxspec.models.nn.call import call
from jaxspec.models.nn.linear import Embedding, Linear
from jaxspec.models.nn.norm import RMSNorm


@dataclasses.dataclass(frozen=True)
class TextEncoderConfig:
  """Architecture of the text encoder.

  Attributes:
    max_tokens: prompt positions ``P``; longer prompts are cut.
    caption_dim: width of the features handed to the image model.
  """

  vocab_size: int = 2048
  max_tokens: int = 16
  dim: int = 192
  num_layers: int = 2
  num_heads: int = 3
  caption_dim: int = 192
  norm_eps: float = 1e-5

  def __post_init__(self):
    if self.dim % self.num_heads:
      raise ValueError(f"Must have a width divisible by the heads, we instead got {self.dim} over {self.num_heads}")


class TextEncoderFns(NamedTuple):
  """Pure functions of a text encoder."""

  init: Callable[[Key], Params]
  apply: Callable[[Params, Array, Array], Caption]  # (params, ids [B, P], mask [B, P])


class TextEncoder(nn.Module):
  """The network; call it through `text_encoder_fns`."""

  config: TextEncoderConfig

  @nn.compact
  def __call__(self, ids: Array, mask: Array) -> Array:
    cfg = self.config
    batch, length = ids.shape
    position = jnp.maximum(jnp.cumsum(mask.astype(jnp.int32), axis=1) - 1, 0)
    x = Embedding(cfg.vocab_size, cfg.dim, name="tok_embeddings")(ids)
    x = x + Embedding(cfg.max_tokens, cfg.dim, name="pos_embeddings")(position)
    # Padding sees itself, so that no softmax row is empty.
    visible = mask[:, None, None, :] | jnp.eye(length, dtype=bool)[None, None]
    size = cfg.dim // cfg.num_heads
    for i in range(cfg.num_layers):
      normed = RMSNorm(cfg.norm_eps, name=f"attention_norm_{i}")(x)
      qkv = Linear(3 * cfg.dim, name=f"wqkv_{i}")(normed).reshape(batch, length, 3, cfg.num_heads, size)
      q, k, v = (qkv[:, :, j].swapaxes(1, 2) for j in range(3))  # [B, H, P, size]
      scores = jnp.einsum("bhtd,bhsd->bhts", q, k) * size**-0.5
      weights = jax.nn.softmax(jnp.where(visible, scores, -jnp.inf), axis=-1)
      out = jnp.einsum("bhts,bhsd->bhtd", weights, v).swapaxes(1, 2).reshape(batch, length, cfg.dim)
      x = x + Linear(cfg.dim, name=f"wo_{i}")(out)
      normed = RMSNorm(cfg.norm_eps, name=f"ffn_norm_{i}")(x)
      hidden = jax.nn.gelu(Linear(4 * cfg.dim, name=f"w1_{i}")(normed), approximate=True)
      x = x + Linear(cfg.dim, name=f"w2_{i}")(hidden)
    features = Linear(cfg.caption_dim, std=cfg.dim**-0.5, name="output")(RMSNorm(cfg.norm_eps, name="norm")(x))
    return features * mask[..., None].astype(features.dtype)


@functools.cache
def text_encoder_fns(config: TextEncoderConfig) -> TextEncoderFns:
  """Pure functions of one text encoder."""
  module = TextEncoder(config)

  def init(key: Key) -> Params:
    shape = (1, config.max_tokens)
    return module.init(key, jnp.zeros(shape, jnp.int32), jnp.ones(shape, bool))["params"]

  def apply(params: Params, ids: Array, mask: Array) -> Caption:
    return Caption(call(module, params, ids, mask), mask)

  return TextEncoderFns(init, apply)
