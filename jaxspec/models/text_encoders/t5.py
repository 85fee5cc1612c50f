"""The encoder of T5 1.1 and Flan-T5 (arXiv 1910.10683): texts to features of every token.

1. token table, not scaled;
2. pre-norm blocks without biases: bidirectional attention whose scores have no scale but a learned bias of the distance
   between key and query, then a gated tanh-GELU; one table of biases serves all blocks;
3. final RMS norm.

Distances fall into buckets: one for each short distance, then buckets that grow like the logarithm, for keys before and
after the query apart. Float16 overflows in this network; bfloat16 does not.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.core.types import Array, Key, Params
from jaxspec.models.nn.call import call
from jaxspec.models.nn.config_checks import published
from jaxspec.models.nn.linear import Embedding, Linear
from jaxspec.models.nn.norm import RMSNorm

# dim, heads of 64, ffn_hidden, layers
PUBLISHED_SIZES = {
  "small": (512, 6, 1024, 8),
  "base": (768, 12, 2048, 12),
  "large": (1024, 16, 2816, 24),
  "xl": (2048, 32, 5120, 24),
  "xxl": (4096, 64, 10240, 24),
}


@dataclasses.dataclass(frozen=True)
class T5Config:
  """Architecture of the encoder; the defaults are flan-t5-xl.

  Attributes:
    dim: width of the features.
    head_size: width of a head; all heads together need not be as wide as ``dim``.
    num_buckets: buckets of distances, half of them for keys after the query.
    max_distance: distance from which on all fall into the last bucket.
  """

  vocab_size: int = 32128
  dim: int = 2048
  num_layers: int = 24
  num_heads: int = 32
  head_size: int = 64
  ffn_hidden: int = 5120
  num_buckets: int = 32
  max_distance: int = 128
  norm_eps: float = 1e-6

  def __post_init__(self):
    if self.num_buckets % 4 or self.num_buckets < 4:
      raise ValueError(f"Must have a number of buckets divisible by 4, we instead got {self.num_buckets}")
    if self.max_distance <= self.num_buckets // 4:
      raise ValueError(f"Must have max_distance above {self.num_buckets // 4}, we instead got {self.max_distance}")

  @classmethod
  def named(cls, name: str) -> T5Config:
    """Config of a published size (`PUBLISHED_SIZES`), of T5 1.1 and of Flan-T5.

    Raises:
      ValueError: for an unknown name.
    """
    dim, num_heads, ffn_hidden, num_layers = published(PUBLISHED_SIZES, name)
    return cls(dim=dim, num_heads=num_heads, ffn_hidden=ffn_hidden, num_layers=num_layers)


@functools.cache
def bucket_starts(num_buckets: int, max_distance: int) -> tuple[int, ...]:
  """The shortest distance of every bucket but bucket 0, in integers: ``num_buckets / 2 - 1`` of them.

  With ``exact = num_buckets / 4`` distances below ``exact`` have buckets of their own. A longer distance n is in bucket
  ``exact + floor(exact ln(n / exact) / ln(max_distance / exact))``, at most the last. Some starts are exact powers, where
  the logarithm of a floating-point number may fall on either side.
  """
  exact = num_buckets // 4
  starts, distance = list(range(1, exact + 1)), exact
  for step in range(1, exact):
    while (distance**exact) * exact**step < max_distance**step * exact**exact:
      distance += 1
    starts.append(distance)
  return tuple(starts)


def distance_buckets(distance: np.ndarray, num_buckets: int, max_distance: int) -> np.ndarray:
  """Buckets of ``key - query``, int32; keys after the query have the second half of the buckets."""
  of_length = np.searchsorted(bucket_starts(num_buckets, max_distance), np.abs(distance), side="right")
  return (of_length + np.where(distance > 0, num_buckets // 2, 0)).astype(np.int32)


class T5Fns(NamedTuple):
  """Pure functions of a T5 encoder.

  ``apply`` takes ids ``[B, T]`` int32 and a mask ``[B, T]`` bool, True on tokens; every row must have one. It returns
  features ``[B, T, dim]`` in the dtype of the weights; those of padding mean nothing.
  """

  init: Callable[[Key], Params]
  apply: Callable[[Params, Array, Array], Array]


class T5Attention(nn.Module):
  """Attention of all positions to all tokens; ``bias [1 or B, H, T, T]`` float32 has minus infinity at padding."""

  config: T5Config

  @nn.compact
  def __call__(self, x: Array, bias: Array) -> Array:
    cfg = self.config
    batch, length, _ = x.shape
    heads = lambda name: Linear(cfg.num_heads * cfg.head_size, name=name)(x).reshape(batch, length, cfg.num_heads, -1)
    q, k, v = heads("q"), heads("k"), heads("v")  # [B, T, H, size]
    scores = jnp.einsum("bthd,bshd->bhts", q, k, preferred_element_type=jnp.float32) + bias
    weights = jax.nn.softmax(scores, axis=-1).astype(x.dtype)
    out = jnp.einsum("bhts,bshd->bthd", weights, v).reshape(batch, length, -1)
    return Linear(cfg.dim, name="o")(out)


class T5Encoder(nn.Module):
  """The network; call it through `t5_fns`."""

  config: T5Config

  @nn.compact
  def __call__(self, ids: Array, mask: Array) -> Array:
    cfg = self.config
    norm = lambda name, x: RMSNorm(cfg.norm_eps, name=name)(x)
    x = Embedding(cfg.vocab_size, cfg.dim, std=1.0, name="shared")(ids)  # [B, T, D]
    position = np.arange(ids.shape[1])
    buckets = distance_buckets(position[None] - position[:, None], cfg.num_buckets, cfg.max_distance)  # [T, T]
    bias = Embedding(cfg.num_buckets, cfg.num_heads, name="relative_attention_bias")(buckets)  # [T, T, H]
    bias = bias.transpose(2, 0, 1)[None].astype(jnp.float32)
    bias = jnp.where(mask.astype(bool)[:, None, None, :], bias, -jnp.inf)  # [B, H, T, T]
    for i in range(cfg.num_layers):
      x = x + T5Attention(cfg, name=f"block_{i}_attention")(norm(f"block_{i}_attention_norm", x), bias)
      hidden = norm(f"block_{i}_ffn_norm", x)
      gate = jax.nn.gelu(Linear(cfg.ffn_hidden, name=f"block_{i}_wi_0")(hidden), approximate=True)
      x = x + Linear(cfg.dim, name=f"block_{i}_wo")(gate * Linear(cfg.ffn_hidden, name=f"block_{i}_wi_1")(hidden))
    return norm("final_layer_norm", x)


@functools.cache
def t5_fns(config: T5Config) -> T5Fns:
  """Pure functions of one encoder; the same object for equal configs."""
  module = T5Encoder(config)

  def init(key: Key) -> Params:
    return module.init(key, jnp.zeros((1, 2), jnp.int32), jnp.ones((1, 2), bool))["params"]

  def apply(params: Params, ids: Array, mask: Array) -> Array:
    return call(module, params, ids, mask)

  return T5Fns(init, apply)
