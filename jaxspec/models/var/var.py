"""VAR: images drawn scale by scale, from coarse to fine, by a class-conditional transformer (arXiv 2404.02905).

A scale is a square map of tokens (`jaxspec.models.nn.scales`), and one pass draws all tokens of a map at once. They are
independent given the maps before.

1. ``condition``: everything that depends on the class alone, once for all scales: the input of scale 0 and the vectors of
   every adaptive norm;
2. ``apply``: passes over one or more scales. Scale k > 0 reads what the earlier maps give at its resolution
   (`jaxspec.models.tokenizers.scale_quantizer.scale_inputs`), plus a vector of the scale and one of the position;
3. attention of a token reaches its own scale and all earlier ones, through a cache or a mask;
4. an adaptive norm and the output matrix, float32 logits.

With shared adaptive norms (depth 36) one matrix serves all blocks, and each adds vectors of its own. Submodules carry the
names of the official state dict, a list index joined to its list by an underscore.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax.numpy as jnp

from jaxspec.core.types import Array, Key, ModelOutput, Params
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.heads.inter_head import MAX_RADIUS, InterHead
from jaxspec.models.nn import kv_cache, scales
from jaxspec.models.nn.call import call
from jaxspec.models.nn.causal import Positions
from jaxspec.models.nn.config_checks import HeadSizes, check_whole, published
from jaxspec.models.nn.linear import Embedding, Linear
from jaxspec.models.nn.transformer import run_blocks
from jaxspec.models.var.scale_blocks import BLOCK_GAINS, HEAD_GAINS, Block, Modulation, modulated


@dataclasses.dataclass(frozen=True)
class VARConfig(HeadSizes):
  """Architecture of one transformer; the defaults are the released one of depth 16.

  Attributes:
    vocab_size: codes ``V`` of the tokenizer.
    code_dim: width ``c`` of a code.
    num_classes: classes; label ``num_classes`` is the unconditional one.
    sides: side of the map of every scale.
    qk_norm: whether queries and keys have unit length and heads a learned factor, as in all released networks.
    shared_adaln: whether one matrix makes the vectors of the adaptive norms of all blocks.
    inter_head: whether it also gives a radius for every logit (`jaxspec.models.heads.inter_head`).
    dtype: compute dtype; norms and the output matrix are float32.
  """

  depth: int = 16
  dim: int = 1024
  num_heads: int = 16
  mlp_ratio: float = 4.0
  vocab_size: int = 4096
  code_dim: int = 32
  num_classes: int = 1000
  sides: tuple[int, ...] = scales.PUBLISHED_SIDES[256]
  qk_norm: bool = True
  shared_adaln: bool = False
  inter_head: bool = False
  dtype: str = "float32"

  def __post_init__(self):
    scales.check_sides(self.sides)
    check_whole(self)
    self.check_heads()
    if self.mlp_ratio <= 0:
      raise ValueError(f"Must have a positive mlp_ratio, we instead got {self.mlp_ratio}")

  @property
  def num_tokens(self) -> int:
    """Tokens ``L`` of all scales."""
    return scales.starts(self.sides)[-1]

  @property
  def ffn_hidden(self) -> int:
    return int(self.dim * self.mlp_ratio)

  @property
  def init_std(self) -> float:
    """Deviation of initial weights."""
    return (3 * self.dim) ** -0.5

  @classmethod
  def named(cls, name: str, **overrides) -> VARConfig:
    """A published network, one of `PUBLISHED_SIZES`.

    Raises:
      ValueError: for an unknown name.
    """
    depth, pixels, shared = published(PUBLISHED_SIZES, name)
    sides = scales.PUBLISHED_SIDES[pixels]
    fields: dict[str, Any] = dict(depth=depth, dim=64 * depth, num_heads=depth, sides=sides, shared_adaln=shared)
    return cls(**fields | overrides)


# name: (depth, side of the images in pixels, shared adaptive norms); heads have 64 channels, and there are as many as blocks
PUBLISHED_SIZES = {
  "VAR-d16": (16, 256, False),
  "VAR-d20": (20, 256, False),
  "VAR-d24": (24, 256, False),
  "VAR-d30": (30, 256, False),
  "VAR-d36": (36, 512, True),
}


class Conditioned(NamedTuple):
  """What depends on the class alone, for ``B`` rows."""

  first: Array  # [B, 1, D], the input of scale 0 without the vectors of scale and position
  blocks: tuple[Array, ...]  # [B, 6, D] for every block
  head: Array  # [B, 2, D], scale and shift of the last norm

  @property
  def batch_size(self) -> int:
    return self.first.shape[0]


class VAR(nn.Module):
  """The transformer; see the module docstring. Call it through `var_fns`."""

  config: VARConfig

  def setup(self):
    cfg = self.config
    init = nn.initializers.normal(cfg.init_std)
    self.class_emb = Embedding(cfg.num_classes + 1, cfg.dim, cfg.init_std)
    self.pos_start = self.param("pos_start", init, (1, 1, cfg.dim), jnp.float32)
    self.pos_1LC = self.param("pos_1LC", init, (1, cfg.num_tokens, cfg.dim), jnp.float32)
    self.lvl_embed = Embedding(len(cfg.sides), cfg.dim, cfg.init_std)
    self.word_embed = Linear(cfg.dim, std=cfg.init_std, bias=True, exact=True)
    self.blocks = [Block(cfg) for _ in range(cfg.depth)]
    if cfg.shared_adaln:
      self.shared_ada_lin = Modulation((1.0,) * len(BLOCK_GAINS), cfg.init_std)
    self.head_nm = HeadNorm(cfg.init_std)
    self.head = Linear(cfg.vocab_size, std=0.02 * cfg.init_std, bias=True)
    if cfg.inter_head:
      self.inter_head = InterHead(1, cfg.vocab_size, MAX_RADIUS)

  def condition(self, labels: Array) -> Conditioned:
    """`Conditioned` of classes ``[B]`` int32."""
    cfg = self.config
    s = self.class_emb(labels)  # [B, D]
    first = s[:, None] + self.pos_start.astype(s.dtype)
    s = s.astype(cfg.dtype)
    shared = self.shared_ada_lin(s) if cfg.shared_adaln else None
    return Conditioned(first, tuple(block.modulation(s, shared) for block in self.blocks), self.head_nm(s))

  def read(
    self,
    conditioned: Conditioned,
    inputs: Array,
    cache: kv_cache.KVCache | None,
    first: int,
    end: int,
    logits_from: int,
  ) -> tuple[ModelOutput, kv_cache.KVCache | None]:
    """A pass over the scales ``first .. end - 1``; see `VARFns`."""
    cfg, starts = self.config, scales.starts(self.config.sides)
    start, stop = starts[first], starts[end]
    scale_of = jnp.asarray(scales.scale_of_position(cfg.sides))
    x = self.word_embed(inputs)
    if first == 0:
      x = jnp.concatenate([conditioned.first.astype(x.dtype), x], axis=1)
    x = x + self.lvl_embed(scale_of[start:stop])[None].astype(x.dtype) + self.pos_1LC[:, start:stop].astype(x.dtype)
    x = x.astype(cfg.dtype)  # [B, T, D]
    visible = scale_of[None, None, :stop] <= scale_of[None, start:stop, None]  # [1, T, stop]
    key_mask = jnp.ones((1, stop), bool) if cache is None else cache.key_mask
    at = Positions(jnp.arange(start, stop)[None], jnp.full((1,), start, jnp.int32), key_mask, visible, False)
    block = lambda i, x, at, layer: self.blocks[i](x, conditioned.blocks[i], at, layer)
    x, cache = run_blocks(block, x, at, cache, 0, cfg.depth)
    features = modulated(x, *jnp.split(conditioned.head, 2, axis=1))  # float32
    read = features[:, starts[logits_from] - start :]
    logits = self.head(read)
    if not cfg.inter_head:
      return ModelOutput(logits, features), cache
    intervals = self.inter_head(read, logits)
    return ModelOutput(intervals.centre[:, :, 0], features, intervals), cache

  def __call__(self, labels: Array, inputs: Array) -> ModelOutput:
    return self.read(self.condition(labels), inputs, None, 0, len(self.config.sides), 0)[0]


class HeadNorm(nn.Module):
  """Vectors of the last norm under their official name."""

  std: float

  def setup(self):
    self.ada_lin = Modulation(HEAD_GAINS, self.std)

  def __call__(self, s: Array) -> Array:
    return self.ada_lin(s)


class VARFns(NamedTuple):
  """One network of scales as pure functions, the counterpart of `jaxspec.core.types.ModelFns`.

  ``apply(params, conditioned, inputs, cache, *, first, end, logits_from=None)`` reads the scales ``first .. end - 1`` and
  returns a `ModelOutput` and the cache.

  * conditioned: what ``condition(params, labels)`` returned for the ``B`` rows.
  * inputs: ``[B, T, c]`` float32, what the network reads at the positions of these scales. Scale 0 has one position and no
    input, so with ``first = 0`` there is one less than positions.
  * cache: holds the scales before ``first``; slots are positions, scale after scale. Later slots are garbage that is not
    read: to go back is to read from an earlier scale again. None is a pass without one, from scale 0 on (teacher forcing).
  * first, end: static.
  * logits_from: static, the first scale with logits; ``first`` by default.
  * returns logits ``[B, positions from logits_from on, V]`` float32 and features ``[B, positions, D]`` float32.
  """

  init: Callable[[Key], Params]
  condition: Callable[[Params, ClassLabels], Conditioned]
  init_cache: Callable[[int], kv_cache.KVCache]  # rows -> empty cache of all scales
  apply: Callable[..., tuple[ModelOutput, kv_cache.KVCache | None]]
  null_condition: Callable[[Params, ClassLabels], ClassLabels]  # the unconditional partner, for guidance
  sides: tuple[int, ...]
  vocab_size: int
  code_dim: int


@functools.cache
def var_fns(config: VARConfig) -> VARFns:
  """Pure functions of one network; the same object for equal configs, so that jit caches hit."""
  module, starts = VAR(config), scales.starts(config.sides)

  def init(key: Key) -> Params:
    inputs = jnp.zeros((1, config.num_tokens - 1, config.code_dim))
    return module.init(key, jnp.zeros((1,), jnp.int32), inputs)["params"]

  def condition(params: Params, classes: ClassLabels) -> Conditioned:
    return call(module, params, classes.labels, method="condition")

  def init_cache(rows: int) -> kv_cache.KVCache:
    return kv_cache.init_cache(config.depth, rows, config.num_heads, config.num_tokens, config.head_dim, config.dtype)

  def apply(params: Params, conditioned, inputs, cache=None, *, first: int, end: int, logits_from: int | None = None):
    if not 0 <= first < end <= len(config.sides) or (cache is None and first):
      since = "from 0 " if cache is None else ""
      raise ValueError(f"Must have scales {since}within 0 to {len(config.sides)}, we instead got {first} to {end}")
    shape = (conditioned.batch_size, starts[end] - starts[first] - (first == 0), config.code_dim)
    if inputs.shape != shape:
      raise ValueError(f"Must have inputs {list(shape)} for scales {first} to {end}, we instead got {list(inputs.shape)}")
    logits_from = first if logits_from is None else logits_from
    return call(module, params, conditioned, inputs, cache, first, end, logits_from, method="read")

  def null_condition(params: Params, classes: ClassLabels) -> ClassLabels:
    return ClassLabels(jnp.full_like(classes.labels, config.num_classes))

  return VARFns(init, condition, init_cache, apply, null_condition, config.sides, config.vocab_size, config.code_dim)
