"""Interval features: the edge's features of a token for the cloud (CIAR, arXiv 2603.25463, section 3.2.2).

  f^I = phi(f, the edge's bounds),   cloud input = E(token) + f^I,

where f is the edge's feature at the position that drew the token. With all bounds as input a linear phi would have ``(2 V +
D) D`` weights, and its input would be larger than any image. Therefore phi runs on the edge and only f^I is sent, as
float16. Source ``token`` reads (f, l_x, u_x, s_x, U) of the drawn token x; source ``all`` reads (f, l, u) of the whole
vocabulary. In both cases phi has two layers. The last one starts at zero, so an untrained phi changes nothing.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxspec.core.types import Array, Intervals, Key, Params
from jaxspec.intervals.heads import check_combination, head_weights, mean_over_heads
from jaxspec.intervals.inter_fuse import Bounds, inter_fuse
from jaxspec.intervals.interval_uncertainty import Uncertainty
from jaxspec.models.nn.call import call
from jaxspec.models.nn.linear import Linear

SOURCES = ("token", "all")
# Which tokens have features: none, those of a window, those that the edge accepted locally, or both.
INJECT = ("none", "window", "accepted", "both")


@dataclasses.dataclass(frozen=True)
class IntervalFeaturesConfig:
  """Sizes of phi.

  Attributes:
    width: width of the output, equal to that of the cloud's embeddings.
    input_width: width D of the edge's features.
    vocab: number of tokens, read by source ``all`` only.
    hidden: width of the one hidden layer.
    source: ``token`` or ``all``.
    combination: combination of several heads, see `jaxspec.intervals.heads`.
  """

  width: int
  input_width: int
  vocab: int
  hidden: int = 256
  source: str = "token"
  combination: str = "ensemble"

  def __post_init__(self):
    check_combination(self.combination)
    if self.source not in SOURCES:
      raise ValueError(f"Must have a source in {', '.join(SOURCES)}, we instead got {self.source!r}")
    if min(self.width, self.input_width, self.vocab, self.hidden) < 1:
      raise ValueError(f"Must have sizes of at least 1, we instead got {self}")


class IntervalFeaturesFns(NamedTuple):
  """Pure functions of phi."""

  init: Callable[[Key], Params]
  # (params, intervals [..., H, V], features [..., D], tokens [...] int32) -> [..., width] float32
  apply: Callable[[Params, Intervals, Array, Array], Array]
  width: int


class _Phi(nn.Module):
  config: IntervalFeaturesConfig

  @nn.compact
  def __call__(self, x: Array) -> Array:
    hidden = jax.nn.silu(Linear(self.config.hidden, bias=True, name="fc1")(x))
    return Linear(self.config.width, std=0.0, name="fc2")(hidden)


def token_input(intervals: Intervals, tokens: Array, combination: str) -> Array:
  """``[..., 4]`` (l_x, u_x, s_x, U) of the drawn ``tokens [...]``; heads are averaged as in their common distribution."""
  bounds, centre = _common(intervals, combination)
  of_token = lambda values: jnp.take_along_axis(values, tokens[..., None], axis=-1)
  uncertainty = Uncertainty()(bounds.width)[..., None]
  return jnp.concatenate([of_token(bounds.lower), of_token(bounds.upper), of_token(centre), uncertainty], axis=-1)


def _common(intervals: Intervals, combination: str) -> tuple[Bounds, Array]:
  """Bounds and centre probabilities ``[..., V]`` of all heads together."""
  weights = head_weights(intervals.centre, combination)
  bounds = Bounds(*(mean_over_heads(x, weights) for x in inter_fuse(intervals.centre, intervals.radius)))
  return bounds, mean_over_heads(jax.nn.softmax(intervals.centre, axis=-1), weights)


@functools.cache
def interval_features_fns(config: IntervalFeaturesConfig) -> IntervalFeaturesFns:
  """Functions of phi; the same object for equal configs."""
  module = _Phi(config)
  size = config.input_width + (4 if config.source == "token" else 2 * config.vocab)

  def init(key: Key) -> Params:
    return module.init(key, jnp.zeros((1, size)))["params"]

  def apply(params: Params, intervals: Intervals, features: Array, tokens: Array) -> Array:
    if config.source == "token":
      said = token_input(intervals, tokens, config.combination)
    else:
      bounds, _ = _common(intervals, config.combination)
      said = jnp.concatenate([bounds.lower, bounds.upper], axis=-1)
    x = jnp.concatenate([features.astype(jnp.float32), said.astype(jnp.float32)], axis=-1)
    return call(module, params, x)

  return IntervalFeaturesFns(init, apply, config.width)


def as_sent(features: Array) -> Array:
  """float32 features rounded to float16, as in messages; values that are not finite in float16 become 0."""
  rounded = features.astype(jnp.float16).astype(jnp.float32)
  return jnp.where(jnp.isfinite(rounded), rounded, 0.0)
