"""Classifier-free guidance as a wrapper: a guided model is a model, for drafts and targets alike.

Other tokens are guided by their own networks: continuous ones in `jaxspec.models.continuous_fns`, scales in
`jaxspec.sampling.scale_network`, denoising steps in `jaxspec.models.dit.dit`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxspec.core.packing import PackedPositions
from jaxspec.core.short_repr import short_repr
from jaxspec.core.token_axes import over_rows
from jaxspec.core.types import Array, Intervals, ModelFns, ModelOutput, Params, PyTree
from jaxspec.models.conditions import Context, Pairs, Prefixed
from jaxspec.models.nn import kv_cache

# Features of a guided model: those of both halves side by side, or guided like the logits.
FEATURES = ("both", "combined")
# Radius of guided logits: that of the conditional half, or interval arithmetic |s| r_c + |s - 1| r_u.
RADIUS_RULES = ("conditional", "arithmetic")


class Guided(NamedTuple):
  """Parameters of a guided model."""

  __repr__ = short_repr

  model: Params
  # [] float32, or [B] with one for each row; 1 is the conditional model (at the cost of both halves: omit the wrapper)
  scale: Array


@functools.cache
def guided(model: ModelFns, *, interval: int = -1, features: str = "both", radius: str = "conditional") -> ModelFns:
  """The model whose logits are ``u + (c - u) * scale`` of its conditional and unconditional halves.

  Both halves run as one batch ``[all conditional; all unconditional]`` over the same tokens.

  Args:
    model: a model with a `ModelFns.null_condition`.
    interval: the official ``cfg_interval``. With ``k >= 0`` only image tokens ``0 .. k + 1`` are guided; later tokens use
      the conditional logits. -1 guides all tokens.
    features: ``both`` returns the features of both halves, ``[B, T, 2 D]``, for a guided drafter. ``combined`` guides them
      like the logits, ``[B, T, D]``. The output matrix is linear, so these are the features of the guided distribution, and
      a drafter that continues them needs no second half.
    radius: one of `RADIUS_RULES`, for networks with an Inter-Head. Interval arithmetic gives the exact worst case, which is
      about 14 times as wide at scale 7.5.
  Raises:
    ValueError: if the model has no unconditional partner, for other ``features``, or for an unknown rule.
  """
  if features not in FEATURES:
    raise ValueError(f"Must have features in {', '.join(FEATURES)}, we instead got {features!r}")
  if radius not in RADIUS_RULES:
    raise ValueError(f"Must have a radius rule in {', '.join(RADIUS_RULES)}, we instead got {radius!r}")
  if (null_condition := model.null_condition) is None:
    raise ValueError("Must have a model with an unconditional condition to guide it")

  def twice(x: PyTree) -> PyTree:
    if x is None or isinstance(x, PackedPositions):
      return x
    return x if x.shape[0] == 1 else jnp.concatenate([x, x])

  def apply(params: Guided, inputs, cache=None, *, positions, mask=None, inject=None, logits_at=None, slot=None):
    output, cache = model.apply(
      params.model,
      _both_halves(null_condition, params.model, inputs),
      cache,
      positions=twice(positions),
      mask=twice(mask),
      inject=None if inject is None else jnp.concatenate([inject, inject]),
      logits_at=twice(logits_at),
      slot=twice(slot),
    )
    is_guided = lambda where: None if interval < 0 else where - (model.prefix_len(inputs) - 1) <= interval + 1
    scale_of = lambda values: over_rows(params.scale, values).astype(values.dtype)
    mix = lambda values, guides: _mix(values, scale_of(values), guides)
    positions = positions.positions if isinstance(positions, PackedPositions) else positions
    guides = is_guided(positions if logits_at is None else positions[:, :1] + logits_at[:, None])  # [B or 1, T]
    if features == "combined":
      returned = mix(output.features, is_guided(positions))
    else:
      returned = jnp.concatenate(jnp.split(output.features, 2), axis=-1)
    intervals = output.intervals
    if intervals is not None:
      half_width, of_null = jnp.split(intervals.radius, 2)
      if radius == "arithmetic":
        scale = over_rows(params.scale, half_width)
        widest = jnp.abs(scale) * half_width + jnp.abs(scale - 1) * of_null
        half_width = _where(guides, widest, half_width)
      lens = None if intervals.lens is None else mix(intervals.lens, guides)
      intervals = Intervals(mix(intervals.centre, guides), half_width, lens)
    # Networks of continuous tokens have no logits. Their distribution is guided after the features.
    logits = None if output.logits is None else mix(output.logits, guides)
    return ModelOutput(logits, returned, intervals), cache

  def init_cache(batch: int, max_len: int):
    return model.init_cache(2 * batch, max_len)

  def init(key):
    return Guided(model.init(key), jnp.float32(1.0))

  # A single row must double too: cache rows are counted by the rows of ``path``, or of ``slots``.
  double = lambda x: jnp.concatenate([x, x])
  # Conditional rows come first, in a table too.
  halves = lambda cache, slots: jnp.concatenate([slots, slots + kv_cache.num_rows(cache) // 2])
  guided = ModelFns(init, init_cache, apply, model.prefix_len, packs=model.packs)
  if (compact := model.compact) is not None:
    guided = guided._replace(compact=lambda cache, slot, path: compact(cache, double(slot), double(path)))
  if (take := model.take) is not None:
    guided = guided._replace(take=lambda cache, slots: take(cache, halves(cache, slots)))
  if (put := model.put) is not None:

    def put_halves(cache, rows, slots, start=None, width=None):
      return put(cache, rows, halves(cache, slots), None if start is None else double(start), width)

    guided = guided._replace(put=put_halves)
  return guided


def _mix(both: Array, scale: Array, guides: Array | None) -> Array:
  cond, uncond = jnp.split(both, 2)
  return _where(guides, uncond + (cond - uncond) * scale, cond)


def _where(guides: Array | None, yes: Array, no: Array) -> Array:
  """``yes`` where ``guides [B or 1, T]`` is True or None, else ``no``; both are ``[B, T, ...]``."""
  return yes if guides is None else jnp.where(guides.reshape(*guides.shape, *[1] * (yes.ndim - 2)), yes, no)


def _both_halves(null_condition: Callable[[Params, PyTree], PyTree], params: Params, inputs: PyTree) -> PyTree:
  stack = lambda a, b: jax.tree.map(lambda x, y: jnp.concatenate([x, y]), a, b)
  if isinstance(inputs, Prefixed):
    return Prefixed(stack(inputs.condition, null_condition(params, inputs.condition)), stack(inputs.tokens, inputs.tokens))
  if isinstance(inputs, Pairs):
    return Pairs(stack(inputs.tokens, inputs.tokens), jnp.concatenate(jnp.split(inputs.features, 2, axis=-1)))
  if isinstance(inputs, Context):
    return Context(jnp.concatenate(jnp.split(inputs.features, 2, axis=-1)))
  if isinstance(inputs, jax.Array):
    return jnp.concatenate([inputs, inputs])
  return stack(inputs, null_condition(params, inputs))
