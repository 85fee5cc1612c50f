"""A masked network as an autoregressive one, in its generation order.

The "cache" of a masked network holds the known tokens and their order. Feeding an input writes a token into its slot. The
features of the next slot need a whole pass over all known tokens. Attention is bidirectional, so earlier passes cannot be
reused, and **the features after T inputs cost T passes**. These passes are T rows of one batch, each with its own prefix
(the verification prefixes of arXiv 2411.11925, Algorithm 1). With ``common_prefix`` the features of T slots cost one pass.

The encoder runs over the slots of the longest row of the batch, rounded up to one of ``num_buckets`` sizes, selected at run
time.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxspec.core.types import Array, Key, ModelFns, ModelOutput, Params
from jaxspec.models.conditions import ClassLabels, OrderedLabels
from jaxspec.models.continuous_fns import HeadFns
from jaxspec.models.mar.mar import MARFns


class KnownTokens(NamedTuple):
  """The cache; slots after a row's length are garbage and never read."""

  tokens: Array  # [B, S, C] float32, generation order, S >= L
  condition: OrderedLabels


@functools.cache
def masked_network(model: MARFns, *, common_prefix: bool = False, num_buckets: int | None = None) -> HeadFns:
  """MAR as a network of continuous tokens, conditioned on `OrderedLabels`.

  Args:
    common_prefix: T inputs have the features of the T slots after the first input, which alone is known to all of them: one
      iteration of MAR's parallel decoding. A single input has the same features as without it.
    num_buckets: static sizes of the encoder; each is compiled. None: one for every 16 tokens, at most 4, because shorter
      passes of so few tokens save less time than they take to compile.
  Raises:
    ValueError: if there is no bucket.
  """
  length = model.num_tokens
  if num_buckets is None:
    num_buckets = min(max(length // 16, 1), 4)
  if num_buckets < 1:
    raise ValueError(f"Must have at least one bucket, we instead got {num_buckets}")
  sizes = sorted({-(-length * (i + 1) // num_buckets) for i in range(num_buckets)})

  def init_cache(batch: int, max_len: int) -> KnownTokens:
    slots = max(max_len, length)
    empty = OrderedLabels(jnp.zeros((batch,), jnp.int32), jnp.zeros((batch, length), jnp.int32))
    return KnownTokens(jnp.zeros((batch, slots, model.token_dim)), empty)

  def features(params: Params, tokens: Array, condition: OrderedLabels, known: Array, ahead: int = 1) -> Array:
    """``[B, n ahead, Z]`` of the ``ahead`` slots after each prefix of ``known [B, n]`` tokens."""
    rows, count = known.shape
    repeat = lambda x: x if count == 1 else jnp.repeat(x, count, axis=0)
    known, labels, order = known.reshape(-1), repeat(condition.labels), repeat(condition.order)
    # The features of slots after the last one are garbage; their tokens are never committed.
    size = min(ahead, length)
    start = jnp.minimum(known, length - size)

    def of_size(slots: int):
      prefix = lambda x: x[:, :slots]
      return lambda: model.condition(params, repeat(prefix(tokens)), order, known, OrderedLabels(labels, order), start, size)

    bucket = jnp.searchsorted(jnp.asarray(sizes), jnp.minimum(jnp.max(known), length))
    z = jax.lax.switch(bucket, [of_size(size) for size in sizes]) if len(sizes) > 1 else of_size(length)()
    if ahead > 1:
      slot = jnp.minimum((known - start)[:, None] + jnp.arange(ahead)[None], size - 1)
      z = jnp.take_along_axis(z, slot[..., None], axis=1)
    return z.reshape(rows, count * ahead, -1)

  def apply(params, inputs, cache=None, *, positions, mask=None, inject=None, logits_at=None, slot=None):
    if mask is not None or inject is not None or cache is None:
      raise ValueError("Must have a cache, and neither mask nor inject, for a masked network")
    if isinstance(inputs, OrderedLabels):
      cache = KnownTokens(cache.tokens, OrderedLabels(inputs.labels.astype(jnp.int32), inputs.order.astype(jnp.int32)))
      known = jnp.zeros((inputs.labels.shape[0], 1), jnp.int32)
      return ModelOutput(None, features(params, cache.tokens, cache.condition, known)), cache
    first = (positions[:, 0] if slot is None else slot) - 1  # [B or 1] slot of the first input
    first = jnp.broadcast_to(first, inputs.shape[:1])
    put = lambda row, new, at: jax.lax.dynamic_update_slice_in_dim(row, new, at, axis=0)
    cache = cache._replace(tokens=jax.vmap(put)(cache.tokens, inputs.astype(jnp.float32), first))
    # The input at position p is token p - 1, after which p tokens are known.
    known = jnp.broadcast_to(positions, inputs.shape[:2])
    if common_prefix and logits_at is None:
      return ModelOutput(None, features(params, cache.tokens, cache.condition, known[:, :1], inputs.shape[1])), cache
    if logits_at is not None:
      known = jnp.take_along_axis(known, jnp.broadcast_to(logits_at[:, None], (known.shape[0], 1)), axis=1)
    return ModelOutput(None, features(params, cache.tokens, cache.condition, known)), cache

  def null_condition(params: Params, condition: OrderedLabels) -> OrderedLabels:
    return OrderedLabels(model.null_condition(params, ClassLabels(condition.labels)).labels, condition.order)

  def init(key: Key) -> Params:
    return model.init(key)

  network = ModelFns(init, init_cache, apply, lambda condition: 1, null_condition)
  return HeadFns(network, model.predictor, length, model.token_dim)
