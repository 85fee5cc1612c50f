"""A head that drafts a whole block in one pass, from features of three layers of its target.

It follows DFlash (arXiv 2602.06036), whose context are keys and values of the target's features, and P-EAGLE (arXiv
2602.01469), whose inputs are the last token and masks:

1. Context. Position j has the target's features there: hidden states of a low and a middle layer and the features after the
   final norm, concatenated (EAGLE-3, arXiv 2503.01840). ``c = rmsnorm(W_fc features)``.
2. Inputs of a block of K drafts: the newest committed token, then K - 1 times a learned mask embedding, at consecutive
   positions with the target's 2-D rotary angles.
3. In every layer the inputs attend to the keys and values of ``c`` at all committed positions before the block, and to all
   inputs of the block, in both directions. Then ``x += ffn(rmsnorm(x))``.
4. After the final norm the target's frozen output matrix gives one row of logits for each input: the distribution of the
   token after it. Rows do not depend on the drafted tokens of the block, so one pass gives all rows.

DFlash feeds one mask more, whose row predicts the mask's own token, and ignores the row of the newest token. Here row k is
the distribution of the token after input k, as of every other network (`jaxspec.core.types.ModelOutput`).

The cache holds keys and values of the context. Those of a block's inputs are written behind them, and overwritten.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Self

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from jaxspec.core.mesh import constrain
from jaxspec.core.types import Array, Cache, Key, ModelFns, ModelOutput, Params, PyTree
from jaxspec.models.conditions import Context, Prefixed
from jaxspec.models.heads.feature_head import HOST_TABLES, FeatureHeadConfig
from jaxspec.models.llamagen import feed_forward
from jaxspec.models.nn import kv_cache
from jaxspec.models.nn.call import call
from jaxspec.models.nn.causal import LayerCache, Positions, attend_cached, read_positions, write_cached
from jaxspec.models.nn.linear import Embedding, Linear
from jaxspec.models.nn.norm import RMSNorm
from jaxspec.models.nn.rope import rope_2d, rotate
from jaxspec.models.nn.transformer import read_out, run_blocks

MASK = -1  # the id of an unknown token


@dataclasses.dataclass(frozen=True)
class BlockHeadConfig(FeatureHeadConfig):
  """Architecture of a head. It has ``P`` positions before the first drawn token.

  Attributes:
    num_layers: blocks of the head.
    levels: layers of the target whose features it reads besides the last ones, see `jaxspec.models.feature_levels`.
  """

  num_layers: int = 2
  levels: tuple[int, ...] = (3, 6)

  def __post_init__(self):
    super().__post_init__()
    if self.num_layers < 1:
      raise ValueError(f"Must have num_layers of at least 1, we instead got {self.num_layers}")
    levels = self.levels
    if not isinstance(levels, tuple) or any(type(level) is not int for level in levels) or [*levels] != sorted(levels):
      raise ValueError(f"Must have ascending whole numbers as levels, we instead got {levels!r}")

  @property
  def feature_dim(self) -> int:
    """Width of the features of all levels."""
    return (len(self.levels) + 1) * self.dim

  @classmethod
  def of(cls, host: Any, num_layers: int = 2) -> Self:
    """The config of a head for the config of a target; it reads the layers at a quarter and at half of the target's depth.

    Raises:
      ValueError: for a target without a trunk for heads.
    """
    found = super().of(host)
    return dataclasses.replace(found, num_layers=num_layers, levels=(host.num_layers // 4, host.num_layers // 2))


class BlockAttention(nn.Module):
  """Attention of the inputs of a block to the context and to each other; both have the same matrices."""

  config: BlockHeadConfig

  def setup(self):
    cfg = self.config
    self.wq = Linear(cfg.num_heads * cfg.head_dim)
    self.wk, self.wv = (Linear(cfg.kv_heads * cfg.head_dim) for _ in range(2))
    self.wo = Linear(cfg.dim)

  def _heads(self, x: Array, number: int) -> Array:
    return x.reshape(*x.shape[:2], number, self.config.head_dim)

  def keys(self, x: Array, at: Positions) -> tuple[Array, Array]:
    """Keys and values ``[B, T, Hkv, size]`` of the context, or of inputs."""
    heads = self.config.kv_heads
    assert at.rotation is not None
    return rotate(self._heads(self.wk(x), heads), at.rotation), self._heads(self.wv(x), heads)

  def __call__(self, x: Array, at: Positions, cache: LayerCache, context: Array | None) -> tuple[Array, LayerCache]:
    length = x.shape[1]
    k, v = self.keys(x if context is None else jnp.concatenate([context, x], axis=1), at)
    assert at.rotation is not None
    q = rotate(self._heads(self.wq(x), self.config.num_heads), at.rotation[:, -length:])
    out, cache = attend_cached(q, k, v, dataclasses.replace(at, mask=at.mask[:, -length:]), cache)
    return self.wo(out), cache


class BlockLayer(nn.Module):
  """Pre-norm transformer block."""

  config: BlockHeadConfig

  def setup(self):
    cfg = self.config
    self.attention_norm, self.ffn_norm = RMSNorm(cfg.norm_eps), RMSNorm(cfg.norm_eps)
    self.attention = BlockAttention(cfg)
    self.feed_forward = feed_forward(cfg.ffn_hidden)

  def keys(self, context: Array, at: Positions) -> tuple[Array, Array]:
    """Keys and values of the context."""
    return self.attention.keys(context, at)

  def __call__(self, x: Array, at: Positions, cache: LayerCache, context: Array | None) -> tuple[Array, LayerCache]:
    attended, cache = self.attention(self.attention_norm(x), at, cache, context)
    x = x + attended
    return x + self.feed_forward(self.ffn_norm(x)), cache


class BlockHead(nn.Module):
  """The network; see the module docstring. Call it through `block_head_fns`."""

  config: BlockHeadConfig

  def setup(self):
    cfg = self.config
    self.tok_embeddings = Embedding(cfg.vocab_size, cfg.dim)
    self.mask_embedding = self.param("mask_embedding", nn.initializers.normal(0.02), (cfg.dim,), jnp.float32)
    self.fc = Linear(cfg.dim)
    self.context_norm = RMSNorm(cfg.norm_eps)
    self.layers = [BlockLayer(cfg) for _ in range(cfg.num_layers)]
    self.norm = RMSNorm(cfg.norm_eps)
    self.output = Linear(cfg.vocab_size)

  def __call__(
    self,
    inputs: PyTree,
    cache: kv_cache.KVCache | None = None,
    positions: Array | None = None,
    mask: Array | None = None,
    logits_at: Array | None = None,
    slot: Array | None = None,
  ) -> tuple[ModelOutput, Cache | None]:
    if isinstance(inputs, Context):
      assert cache is not None, "context alone is read into a cache"
      context = self._context(jnp.asarray(inputs.features))
      at = self._positions(context.shape[1], cache, positions, mask, slot)

      def write(i: int, x: Array, at: Positions, layer: LayerCache) -> tuple[Array, LayerCache]:
        assert layer is not None
        k, v = self.layers[i].keys(x, at)
        return x, write_cached(k, v, at.start, layer)

      context, cache = run_blocks(write, context, at, cache, 0, self.config.num_layers)
      return ModelOutput(None, context), cache
    context, tokens = None, inputs
    if isinstance(inputs, Prefixed):
      assert isinstance(inputs.condition, Context), "the condition of a block are the target's features"
      context, tokens = self._context(jnp.asarray(inputs.condition.features)), inputs.tokens
    length = tokens.shape[1] + (0 if context is None else context.shape[1])
    at = self._positions(length, cache, positions, mask, slot)
    block = lambda i, x, at, layer: self.layers[i](x, at, layer, context)
    x, cache = run_blocks(block, self._embed(jnp.asarray(tokens)), at, cache, 0, self.config.num_layers)
    return read_out(self.norm(x), self.output, logits_at), cache

  def _context(self, features: Array) -> Array:
    cfg = self.config
    if (width := features.shape[-1]) != cfg.feature_dim:
      raise ValueError(f"Must have features of width {cfg.feature_dim} in a block head, we instead got {width}")
    return self.context_norm(self.fc(features.astype(cfg.dtype)))

  def _embed(self, tokens: Array) -> Array:
    embedding = constrain(self.tok_embeddings(tokens).astype(self.config.dtype))  # the target's tables may be divided
    return jnp.where((tokens == MASK)[..., None], self.mask_embedding.astype(embedding.dtype)[None, None], embedding)

  def _positions(self, length: int, cache, positions, mask, slot) -> Positions:
    """Without a mask the inputs of a pass see each other."""
    cfg, mask = self.config, jnp.ones((1, length, length), bool) if mask is None else mask
    at = read_positions(length, cache, positions, mask, slot)
    table = rope_2d(
      at.positions, prefix_len=cfg.prefix_len, grid=cfg.grid, head_dim=cfg.head_dim, base=cfg.rope_base, prefix_keys=True
    )
    return dataclasses.replace(at, rotation=table)


@functools.cache
def block_head_fns(config: BlockHeadConfig) -> ModelFns:
  """Pure functions of one head.

  Inputs are a `jaxspec.models.conditions.Context`, whose keys and values go to the cache (a pass without logits), or ids
  ``[B, K]``, some of them `MASK`, or both in one pass without a cache (`Prefixed`, for training). Without a mask
  all inputs of a pass see each other.

  ``init`` gives the head's own parameters; ``apply`` takes them with the target's tables
  (`jaxspec.models.heads.feature_head.attach`).
  """
  module = BlockHead(config)

  def init(key: Key) -> Params:
    sample = Prefixed(Context(np.zeros((1, 1, config.feature_dim), np.float32)), np.zeros((1, 1), np.int32))
    params = module.init(key, sample)["params"]
    return {name: leaf for name, leaf in params.items() if name not in HOST_TABLES}

  init.__qualname__ = "BlockHead"

  def apply(params, inputs, cache=None, *, positions=None, mask=None, inject=None, logits_at=None, slot=None):
    if inject is not None:
      raise ValueError("Must have no injected embeddings in a block head, we instead got some")
    return call(module, params, inputs, cache, positions, mask, logits_at, slot)

  def init_cache(batch: int, max_len: int) -> kv_cache.KVCache:
    return kv_cache.init_cache(config.num_layers, batch, config.kv_heads, max_len, config.head_dim, config.dtype)

  null_condition = lambda params, condition: condition  # the target's features include the unconditional half
  prefix_len = lambda condition: config.prefix_len
  return ModelFns(init, init_cache, apply, prefix_len, null_condition, None, kv_cache.take, kv_cache.put)
