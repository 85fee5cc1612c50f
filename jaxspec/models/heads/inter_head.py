"""The Inter-Head on the trunk of an edge network: centre logits and radii (CIAR, arXiv 2603.25463, equation 3).

  c = W_c h + b_c,   r = min(softplus(W_r h + b_r), max_radius).

The trunk is the first layers of the cloud's network, of any family that declares a `jaxspec.models.trunk.Trunk`. W_c of head
0 is the trunk's own output matrix. Further heads have separate matrices, so H heads cost ``2 H`` output matrices. All radii
start at `INITIAL_RADIUS`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxspec.core.types import Array, Cache, Intervals, Key, ModelFns, ModelOutput, Params, PyTree
from jaxspec.intervals.heads import check_combination
from jaxspec.models.heads.interval_features import IntervalFeaturesConfig, interval_features_fns
from jaxspec.models.nn.call import call
from jaxspec.models.nn.causal import wanted
from jaxspec.models.nn.linear import affine, linear
from jaxspec.models.trunk import Trunk, family_of_trunk, first_layers, trunk_config, trunk_of

INITIAL_RADIUS = 0.5
MAX_RADIUS = 10.0


@dataclasses.dataclass(frozen=True)
class InterHeadConfig:
  """Architecture of an edge network: its trunk and its heads.

  Attributes:
    trunk: config of the transformer below the heads.
    num_heads: heads H.
    combination: combination of several heads, see `jaxspec.intervals.heads`.
    max_radius: upper limit of radii.
    features: interval features for the cloud, with parameters ``params["features"]``; None for none.
    trunk_family: family of the trunk; not needed if ``trunk`` is a config object.
  """

  trunk: Any
  num_heads: int = 1
  combination: str = "ensemble"
  max_radius: float = MAX_RADIUS
  features: IntervalFeaturesConfig | None = None
  trunk_family: str = "llamagen"

  def __post_init__(self):
    if isinstance(self.trunk, dict):  # from a checkpoint's JSON
      object.__setattr__(self, "trunk", trunk_config(self.trunk_family, self.trunk))
    if isinstance(self.features, dict):
      object.__setattr__(self, "features", IntervalFeaturesConfig(**self.features))
    object.__setattr__(self, "trunk_family", family_of_trunk(self.trunk))
    check_combination(self.combination)
    if self.num_heads < 1:
      raise ValueError(f"Must have num_heads of at least 1, we instead got {self.num_heads}")
    if not self.max_radius > 0:
      raise ValueError(f"Must have max_radius above 0, we instead got {self.max_radius}")

  def __getattr__(self, name: str) -> Any:
    """The trunk's fields, except ``dtype``, to compare the sizes of an edge network with those of its cloud."""
    if name.startswith("_") or name in ("trunk", "dtype"):
      raise AttributeError(name)
    return getattr(self.trunk, name)

  @property
  def drawn(self) -> int:
    """``V``, the number of drawn ids."""
    return _trunk(self.trunk).head_fields(self.trunk)["vocab_size"]


class InterHead(nn.Module):
  """Centre and radius of every head from features; call it through `inter_head_fns`."""

  num_heads: int
  vocab: int
  max_radius: float

  @nn.compact
  def __call__(self, features: Array, logits: Array) -> Intervals:
    """Features ``[B, T, D]`` and the trunk's logits ``[B, T, V]`` to `Intervals` ``[B, T, H, V]``."""
    heads, size, width = self.num_heads, self.vocab, features.shape[-1]
    zeros = nn.initializers.zeros
    start = nn.initializers.constant(math.log(math.expm1(INITIAL_RADIUS)))
    centre_bias = self.param("centre_bias", zeros, (heads, size), jnp.float32)
    radius_weight = self.param("radius_weight", zeros, (heads * size, width), jnp.float32)
    radius_bias = self.param("radius_bias", start, (heads, size), jnp.float32)
    split = lambda x: x.reshape(*x.shape[:-1], heads, size)
    if heads > 1:
      centre_weight = self.param("centre_weight", nn.initializers.normal(0.02), ((heads - 1) * size, width), jnp.float32)
      others = linear(features, centre_weight.astype(features.dtype)).astype(jnp.float32)
      logits = jnp.concatenate([logits, others], axis=-1)
    centre = split(logits) + centre_bias[None, None]
    raw = affine(features, radius_weight, radius_bias.reshape(-1)).astype(jnp.float32)
    return Intervals(centre, jnp.minimum(jax.nn.softplus(split(raw)), self.max_radius))


def with_inter_head(trunk: ModelFns, vocab: int, *, num_heads: int = 1, max_radius: float = MAX_RADIUS) -> ModelFns:
  """Adds an Inter-Head to any trunk that returns logits and features; the output of the network then has `Intervals`.

  Parameters are ``{"trunk": ..., "head": ...}``; other entries are not read. The output's logits are the centre of head 0.
  `jaxspec.intervals.heads.combined_logits` combines several heads and must come after guidance.
  """
  module = InterHead(num_heads, vocab, max_radius)

  def init(key: Key) -> Params:
    trunk_params = trunk.init(jax.random.fold_in(key, 0))
    width = _width(trunk, trunk_params)
    features, logits = jnp.zeros((1, 1, width)), jnp.zeros((1, 1, vocab))
    return {"trunk": trunk_params, "head": module.init(jax.random.fold_in(key, 1), features, logits)["params"]}

  def apply(params, inputs, cache=None, *, positions=None, mask=None, inject=None, logits_at=None, slot=None):
    options = dict(positions=positions, mask=mask, inject=inject, slot=slot)
    output, lens, cache = _read(trunk, params["trunk"], inputs, cache, logits_at, options)
    intervals: Intervals = call(module, params["head"], wanted(output.features, logits_at), output.logits)
    intervals = intervals._replace(lens=lens)
    return ModelOutput(intervals.centre[:, :, 0], output.features, intervals), cache

  of_trunk, null_condition = trunk.null_condition, None
  if of_trunk is not None:
    null_condition = lambda params, condition: of_trunk(params["trunk"], condition)
  return ModelFns(init, trunk.init_cache, apply, trunk.prefix_len, null_condition, trunk.compact, trunk.take, trunk.put)


def _read(
  trunk: ModelFns, params: Params, inputs: PyTree, cache: Cache | None, logits_at: Array | None, options: dict[str, Any]
) -> tuple[ModelOutput, Array | None, Cache | None]:
  """Output of the trunk, `Intervals.lens` (None of a trunk without `Layers`), and the cache.

  A compiled program computes the lens only if it is read.
  """
  if (layers := trunk.layers) is None:
    output, cache = trunk.apply(params, inputs, cache, logits_at=logits_at, **options)
    return output, None, cache
  x, context = layers.embed(params, inputs, cache, **options)
  outputs = []
  for i in range(layers.num_layers):
    x, cache = layers.blocks(params, x, context, cache, i, i + 1)
    outputs.append(layers.head(params, x, logits_at))
  *below, output = outputs
  logits = output.need_logits()
  none = jnp.zeros((*logits.shape[:2], 0, logits.shape[2]), jnp.float32)
  return output, jnp.stack([each.need_logits() for each in below], axis=2) if below else none, cache


def _width(trunk: ModelFns, params: Params) -> int:
  """Width of the features."""
  output, _ = jax.eval_shape(trunk.apply, params, jnp.zeros((1, 1), jnp.int32))
  return output.features.shape[-1]


def _trunk(config: Any) -> Trunk:
  return trunk_of(config)


@functools.cache
def inter_head_fns(config: InterHeadConfig) -> ModelFns:
  """Pure functions of an edge network; the same object for equal configs. The drafter computes the interval features."""
  trunk = _trunk(config.trunk).fns(config.trunk)
  fns = with_inter_head(trunk, config.drawn, num_heads=config.num_heads, max_radius=config.max_radius)
  if config.features is None:
    return fns
  phi = interval_features_fns(config.features)
  return fns._replace(init=lambda key: fns.init(key) | {"features": phi.init(jax.random.fold_in(key, 2))})


def edge_from_cloud(cloud: Any, params: Params, num_layers: int, key: Key, **head: Any):
  """Config and initial parameters of an edge network: the cloud's first layers, its norm and output matrix, and fresh heads.

  Heads after the first also start from the cloud's output matrix. Noise of a tenth of its size makes them differ.

  Args:
    cloud: the cloud's config.
    params: its parameters (`jaxspec.models.trunk.Trunk.fns`).
    num_layers: depth of the edge network; the paper takes 1, 2, 3 and 5.
    key: random key of the heads; consumed.
    head: further fields of `InterHeadConfig`.
  """
  if not 1 <= num_layers <= cloud.num_layers:
    raise ValueError(f"Must have 1 to {cloud.num_layers} layers, we instead got {num_layers}")
  short, trunk = first_layers(_trunk(cloud).fns, cloud, params, num_layers)
  config, trunk = InterHeadConfig(short, **head), jax.tree.map(jnp.copy, trunk)
  weight = _trunk(cloud).tables(config.trunk, trunk).output
  module = InterHead(config.num_heads, config.drawn, config.max_radius)
  init_key, noise_key = jax.random.split(key)
  features, logits = jnp.zeros((1, 1, weight.shape[1])), jnp.zeros((1, 1, config.drawn))
  heads = module.init(init_key, features, logits)["params"]
  if config.num_heads > 1:
    noise = jax.random.normal(noise_key, (config.num_heads - 1, *weight.shape)) * 0.1 * jnp.std(weight)
    heads["centre_weight"] = (weight[None] + noise).reshape(-1, weight.shape[1])
  return config, {"trunk": trunk, "head": heads}
