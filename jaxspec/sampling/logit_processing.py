"""From logits to tokens: temperature, top-k, top-p in the official order, and a cheap exact draw.

The processed logits define the distribution that a lossless method reproduces, so draft and target use the same `Warp`.
All ties with the k-th largest logit survive (official rule). All ties with the last logit inside the nucleus survive too,
so the distribution does not depend on the order of ids.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxspec.core.short_repr import short_repr
from jaxspec.core.token_axes import over_rows
from jaxspec.core.token_space import LegalFn
from jaxspec.core.types import Array, Params, PyTree

_BLOCK = 128


class Sampling(NamedTuple):
  """Traced sampling parameters: changing them does not recompile. Leaves are ``[]``, or ``[B]`` with one for each row."""

  temperature: Array  # float32, clamped at 1e-5 (so 0 is greedy)
  top_p: Array  # float32; read only by a `Warp` with ``nucleus``


def sampling_params(temperature: float = 1.0, top_p: float = 1.0) -> Sampling:
  """`Sampling` from Python numbers."""
  return Sampling(jnp.float32(temperature), jnp.float32(top_p))


class ModelParams(NamedTuple):
  """Parameters of the draft side or the target side: weights, traced sampling parameters, tables of the acceptance rule."""

  __repr__ = short_repr

  model: Params
  sampling: Sampling
  rule: PyTree = ()  # arrays that the acceptance rule reads (target side only)


@dataclasses.dataclass(frozen=True)
class Warp:
  """Static part of logit processing.

  Attributes:
    top_k: keep the k largest logits (and ties); 0 keeps all.
    nucleus: apply top-p; off, it costs nothing.
    legal: legal tokens at each index of a row; None: all ids everywhere.
  """

  top_k: int = 0
  nucleus: bool = False
  legal: LegalFn | None = None

  def __post_init__(self):
    if self.top_k < 0:
      raise ValueError(f"Must have top_k >= 0, we instead got {self.top_k}")

  def __call__(self, logits: Array, sampling: Sampling, index: Array | None = None) -> Array:
    """Processed logits ``[..., V]`` float32, -inf where removed; parameters ``[B]`` belong to rows of ``[B, ..., V]``.

    Args:
      index: ``[...]`` int32, or with axes of size 1, position in its row of the token drawn from these logits; read only
        with ``legal``.
    Raises:
      ValueError: for a rule about positions without an ``index``.
    """
    logits = logits.astype(jnp.float32) / jnp.maximum(over_rows(sampling.temperature, logits), 1e-5)
    if self.legal is not None:
      if index is None:
        raise ValueError("Must have the index of every token to say what is legal there, we instead got none")
      logits = jnp.where(self.legal(index), logits, -jnp.inf)
    top_k = min(self.top_k, logits.shape[-1])
    if top_k == logits.shape[-1]:
      top_k = 0
    if top_k:
      logits = _largest(logits, top_k)
    if self.nucleus:
      logits = _nucleus(logits, over_rows(sampling.top_p, logits))
    return logits


# Jitted, so that a call outside of a program does not compile its loop each time.
@functools.partial(jax.jit, static_argnames="num")
def _largest(logits: Array, num: int) -> Array:
  """Removes logits below the ``num``-th largest: a logit stays if fewer than ``num`` are larger."""
  ranks = _ranks(jax.lax.stop_gradient(logits))
  stays = _staying(ranks, lambda larger: jnp.sum(larger, axis=-1, keepdims=True, dtype=jnp.int32) < num)
  return jnp.where(stays, logits, -jnp.inf)


@jax.jit
def _nucleus(logits: Array, top_p: Array) -> Array:
  """Removes logits after the nucleus: a logit stays if all larger ones have at most the probability ``top_p`` together.

  The most probable token always survives; so does the token with which the sum exceeds ``top_p``.
  """
  frozen = jax.lax.stop_gradient(logits)
  probs = jax.nn.softmax(frozen, axis=-1)
  mass = lambda larger: jnp.sum(jnp.where(larger, probs, 0.0), axis=-1, keepdims=True)
  stays = _staying(_ranks(frozen), lambda larger: mass(larger) <= top_p)
  return jnp.where(stays | (top_p >= 1.0), logits, -jnp.inf)


def _staying(ranks: Array, stays: Callable[[Array], Array]) -> Array:
  """The mask ``[..., V]`` bool of tokens that stay, by bisection; on a CPU much faster than a sort.

  The loop itself makes the mask, of the ranks that it reads. A compiler may compute logits once for the loop and once more
  for a comparison behind it, with another rounding (a fused multiply-add); the likeliest token would then fall below a
  bound that is its own logit.

  Args:
    ranks: ``[..., V]`` int32, see `_ranks`.
    stays: from the mask of larger tokens ``[..., V]`` bool to whether the number stays ``[..., 1]``; true for an empty mask.
  """

  def halve(_, found: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
    below, inside, mask = found
    middle = (below >> 1) + (inside >> 1) + (below & inside & 1)  # their sum may have 33 bits
    fits = stays(ranks > middle)
    return jnp.where(fits, below, middle), jnp.where(fits, middle, inside), jnp.where(fits, ranks >= middle, mask)

  # The upper bound is larger than all ranks, so that at least one step finds a number that stays.
  start = jnp.min(ranks, axis=-1, keepdims=True) - 1, jnp.max(ranks, axis=-1, keepdims=True) + 1
  return jax.lax.fori_loop(0, 32, halve, (*start, jnp.zeros(ranks.shape, bool)))[2]


def _ranks(values: Array) -> Array:
  """int32 numbers in the order of float32 numbers; the two zeros are equal."""
  bits = jax.lax.bitcast_convert_type(values, jnp.int32)
  return jnp.where(values == 0, 0, jnp.where(bits < 0, bits ^ 0x7FFFFFFF, bits))


def probabilities(logits: Array) -> Array:
  """Softmax in float32; -inf logits get exactly 0."""
  return jax.nn.softmax(logits.astype(jnp.float32), axis=-1)


def inverse_cdf(weights: Array, uniform: Array) -> Array:
  """Draws an index with probability proportional to ``weights``, from one uniform number.

  Two levels (sums of blocks of 128, then inside one block) avoid a long scan. An entry of weight 0 is never drawn.

  Args:
    weights: ``[..., V]`` float32, non-negative, not all zero.
    uniform: ``[...]`` float32 in [0, 1).
  Returns:
    ``[...]`` int32.
  """
  size = weights.shape[-1]
  blocks = -(-size // _BLOCK)
  padded = jnp.pad(weights, [(0, 0)] * (weights.ndim - 1) + [(0, blocks * _BLOCK - size)])
  padded = padded.reshape(*weights.shape[:-1], blocks, _BLOCK)
  block_mass = jnp.sum(padded, axis=-1)  # [..., blocks]
  block_end = jnp.cumsum(block_mass, axis=-1)
  target = (uniform * block_end[..., -1])[..., None]  # [..., 1]
  block = _first_above(block_end, block_mass, target)
  inside = jnp.take_along_axis(padded, block[..., None, None], axis=-2)[..., 0, :]  # [..., 128]
  start = jnp.take_along_axis(block_end - block_mass, block[..., None], axis=-1)
  return block * _BLOCK + _first_above(jnp.cumsum(inside, axis=-1), inside, target - start)


def _first_above(ends: Array, mass: Array, target: Array) -> Array:
  """First index with mass whose cumulative sum exceeds ``target``; if rounding leaves none, the last index with mass."""
  size = ends.shape[-1]
  index = jax.lax.broadcasted_iota(jnp.int32, mass.shape, mass.ndim - 1)
  first = jnp.min(jnp.where((ends > target) & (mass > 0), index, size), axis=-1)
  last = jnp.max(jnp.where(mass > 0, index, 0), axis=-1)
  return jnp.minimum(first, last)


def sample(logits: Array, uniform: Array) -> Array:
  """Draws tokens ``[...]`` int32 from processed ``logits [..., V]`` with one uniform ``[...]`` each."""
  peak = jnp.max(logits, axis=-1, keepdims=True)
  return inverse_cdf(jnp.exp(logits - peak), uniform)
