"""Heads that draft to the right and downward in an image, a window of tokens in one pass, from features of the target.

Horizontal heads predict tokens further along the row (Medusa, arXiv 2401.10774), vertical heads the tokens
below (Hawk, arXiv 2510.25739; SSD, arXiv 2606.20543). Position p has the pair of the token at p and the target's feature at
p - 1, as in an EAGLE head (`jaxspec.models.heads.eagle_head`).

1. The state of a pair is ``s = W_fc [embedding; feature] + b``, then ``s += ffn(rmsnorm(s))``.
2. Place j of a window is the j-th position after the newest pair. Its horizontal head reads the newest state,
   ``h = (W_right s) * scale_j + shift_j``. Its vertical head r reads the state r rows above the place, ``v_r = W_r s``;
   ``v_r`` is 0 where no committed token is there.
3. ``z = h + v_1 + v_2 + ...``, then ``z += ffn(rmsnorm(z))``. The target's frozen output matrix turns z into one row of
   logits. Without this MLP the row would be the product of the rows of the heads.

Rows do not depend on the tokens that other places draw. The embedding table and the output matrix are the target's
(`jaxspec.models.heads.feature_head.borrowed`).
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Self

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from jaxspec.core.mesh import constrain
from jaxspec.core.types import Array, Key, ModelFns, ModelOutput, Params
from jaxspec.models.conditions import Pairs
from jaxspec.models.heads.feature_head import HOST_TABLES, FeatureHeadConfig
from jaxspec.models.nn.call import call
from jaxspec.models.nn.linear import Embedding, Linear
from jaxspec.models.nn.mlp import SwiGLU
from jaxspec.models.nn.norm import RMSNorm


@dataclasses.dataclass(frozen=True)
class SpatialConfig:
  """Architecture of spatial heads; widths and positions are the target's.

  Attributes:
    num_tokens: tokens ``N`` of an image.
    columns: tokens of a row of the image, including a row end.
    num_places: longest window, one horizontal head for each place.
    num_rows: vertical heads ``R``: rows above a place that it is predicted from.
  Raises:
    ValueError: for sizes that do not fit together.
  """

  dim: int = 768
  ffn_hidden: int = 2048
  vocab_size: int = 16384
  num_tokens: int = 256
  columns: int = 16
  num_places: int = 15
  num_rows: int = 2
  norm_eps: float = 1e-6
  dtype: str = "float32"

  def __post_init__(self):
    if self.columns < 2 or self.num_tokens % self.columns:
      raise ValueError(
        f"Must have tokens in rows of equal length for spatial heads, we instead got {self.num_tokens} tokens and "
        f"{self.columns} columns"
      )
    if self.num_places < 1:
      raise ValueError(f"Must have num_places of at least 1, we instead got {self.num_places}")
    rows = self.num_tokens // self.columns
    if not 1 <= self.num_rows <= rows:
      raise ValueError(f"Must have num_rows from 1 to the {rows} rows of an image, we instead got {self.num_rows}")

  @classmethod
  def of(cls, host: Any, **own: int) -> Self:
    """The config of the heads for the config of a target.

    Args:
      own: ``num_places`` and ``num_rows``.
    Raises:
      ValueError: for a target without a trunk for heads, or whose tokens have no rows.
    """
    fields = FeatureHeadConfig.of(host)
    if fields.grid == 1:
      raise ValueError(f"Must have a target that draws images for spatial heads, we instead got a {type(host).__name__}")
    same = {name: getattr(fields, name) for name in ("dim", "ffn_hidden", "vocab_size", "num_tokens")}
    return cls(columns=fields.grid, dtype=fields.dtype, **same, **own)

  @property
  def slots(self) -> int:
    """Pairs that a window may read: the newest ones, as many as ``num_rows`` rows of the image have."""
    return self.num_rows * self.columns


class SpatialHeads(nn.Module):
  """The network; see the module docstring. Call it through `spatial_fns`."""

  config: SpatialConfig

  def setup(self):
    cfg = self.config
    self.tok_embeddings = Embedding(cfg.vocab_size, cfg.dim)
    self.fc = Linear(cfg.dim, bias=True)
    self.pair_norm, self.place_norm = RMSNorm(cfg.norm_eps), RMSNorm(cfg.norm_eps)
    self.pair_mlp, self.place_mlp = (SwiGLU(cfg.ffn_hidden, ("w1", "w3", "w2")) for _ in range(2))
    self.right = Linear(cfg.dim)
    self.down = [Linear(cfg.dim) for _ in range(cfg.num_rows)]
    of_places = lambda name, init: self.param(name, init, (cfg.num_places, cfg.dim), jnp.float32)
    self.scale_embedding = of_places("scale_embedding", nn.initializers.ones)
    self.shift_embedding = of_places("shift_embedding", nn.initializers.normal(0.02))
    self.output = Linear(cfg.vocab_size)

  def states(self, pairs: Pairs) -> Array:
    """States ``[B, T, D]`` of pairs."""
    cfg = self.config
    if (width := pairs.features.shape[-1]) != cfg.dim:
      raise ValueError(f"Must have features of width {cfg.dim} in spatial heads, we instead got {width}")
    embedding = constrain(self.tok_embeddings(pairs.tokens).astype(cfg.dtype))  # the target's tables may be divided
    s = self.fc(jnp.concatenate([embedding, pairs.features.astype(cfg.dtype)], axis=-1))
    return s + self.pair_mlp(self.pair_norm(s))

  def places(self, newest: Array, above: Array, known: Array) -> ModelOutput:
    """Logits ``[B, K, V]`` of a window.

    Args:
      newest: ``[B, 1, D]`` state of the newest pair.
      above: ``[B, R, K, D]`` states of the pairs 1, 2, ..., R rows above each place.
      known: ``[B, R, K]`` bool, see `known_above`.
    """
    number = above.shape[2]
    if number > self.config.num_places:
      raise ValueError(f"Must have at most the {self.config.num_places} places of the heads, we instead got {number}")
    of_places = lambda table: table[None, :number].astype(newest.dtype)
    z = self.right(newest) * of_places(self.scale_embedding) + of_places(self.shift_embedding)
    for row, head in enumerate(self.down):
      z = z + jnp.where(known[:, row, :, None], head(above[:, row]), 0.0)
    z = z + self.place_mlp(self.place_norm(z))
    return ModelOutput(constrain(self.output(z).astype(jnp.float32)), z)

  def __call__(self, pairs: Pairs, positions: Array) -> ModelOutput:
    cfg, number = self.config, positions.shape[1]
    s = self.states(pairs)
    _, known = known_above(cfg, positions[:, 0], number)
    return self.places(s[:, :1], s[:, 1:].reshape(s.shape[0], cfg.num_rows, number, cfg.dim), known)


def known_above(config: SpatialConfig, newest: Array, num_places: int) -> tuple[Array, Array]:
  """Positions ``[B, R, K]`` of the pairs above the places of a window, and whether a committed token is there.

  Args:
    newest: ``[B]`` position of the newest pair.
  """
  rows, places = jnp.arange(config.num_rows)[None, :, None], jnp.arange(num_places)[None, None]
  above = newest[:, None, None] + 1 + places - (rows + 1) * config.columns
  return above, (above >= 0) & (above <= newest[:, None, None])


@functools.cache
def spatial_fns(config: SpatialConfig) -> ModelFns:
  """Pure functions of the heads of one config.

  ``apply`` takes `Pairs` ``[B, 1 + R K]``: the newest pair, then those one row above each place, two rows above, and so on;
  where none is known, anything. ``positions [B, K]`` are those before each place, ``positions[:, 0]`` that of the newest
  pair. It returns logits ``[B, K, V]`` and no cache. A cache from ``init_cache`` holds the pairs that later windows may read
  (`jaxspec.drafters.spatial_drafter`); it does not grow with the row.

  ``init`` gives the heads' own parameters; ``apply`` takes them with the target's tables
  (`jaxspec.models.heads.feature_head.attach`).
  """
  module = SpatialHeads(config)

  def init(key: Key) -> Params:
    pairs = 1 + config.num_rows
    sample = Pairs(np.zeros((1, pairs), np.int32), np.zeros((1, pairs, config.dim), np.float32))
    params = module.init(key, sample, np.zeros((1, 1), np.int32))["params"]
    return {name: leaf for name, leaf in params.items() if name not in HOST_TABLES}

  init.__qualname__ = "SpatialHeads"

  def init_cache(batch: int, max_len: int) -> Pairs:
    del max_len
    shape = (batch, config.slots)
    return Pairs(jnp.zeros(shape, jnp.int32), jnp.zeros((*shape, config.dim), config.dtype))

  def apply(params, inputs, cache=None, *, positions=None, mask=None, inject=None, logits_at=None, slot=None):
    if inject is not None:
      raise ValueError("Must have no injected embeddings in spatial heads, we instead got some")
    return call(module, params, inputs, positions), None

  # The target's features include the unconditional half.
  return ModelFns(init, init_cache, apply, lambda condition: 0, lambda params, condition: condition)
