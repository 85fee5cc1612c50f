"""Classifier-free guidance as a wrapper: a guided model is a model, for drafts and targets alike."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxspec.models.conditions import Pairs, Prefixed
from jaxspec.types import Array, ModelFns, ModelOutput, Params, PyTree


class Guided(NamedTuple):
  """Parameters of a guided model."""

  model: Params
  scale: Array  # [] float32; 1 is the conditional model alone (but costs both halves: leave the wrapper out)


FEATURES = ("both", "combined")


@functools.cache
def guided(model: ModelFns, *, interval: int = -1, features: str = "both") -> ModelFns:
  """The model whose logits are ``u + (c - u) * scale`` of its conditional and unconditional halves.

  Both halves run as one batch ``[all conditional; all unconditional]`` over the same tokens.

  Args:
    model: a model with a `ModelFns.null_condition`.
    interval: the official ``cfg_interval``; with ``k >= 0`` only image tokens ``0 .. k + 1`` are guided and the
      conditional logits are used from then on; -1 guides always.
    features: ``both`` returns those of both halves, ``[B, T, 2 D]``, for a drafter that is guided itself; ``combined``
      guides them as the logits, ``[B, T, D]``: behind a linear output matrix they are the features of the guided law, and
      a drafter that continues them needs no second half.
  Raises:
    ValueError: if the model has no unconditional partner, or for other ``features``.
  """
  if features not in FEATURES:
    raise ValueError(f"Must have features in {', '.join(FEATURES)}, we instead got {features!r}")
  if model.null_condition is None:
    raise ValueError("Must have a model with an unconditional condition to guide it")

  def twice(x):
    return x if x is None or x.shape[0] == 1 else jnp.concatenate([x, x])

  def apply(params: Guided, inputs, cache=None, *, positions, mask=None, inject=None, logits_at=None, slot=None):
    output, cache = model.apply(
      params.model,
      _both_halves(model, params.model, inputs),
      cache,
      positions=twice(positions),
      mask=twice(mask),
      inject=None if inject is None else jnp.concatenate([inject, inject]),
      logits_at=twice(logits_at),
      slot=twice(slot),
    )

    def combine(halves, where):
      cond, uncond = jnp.split(halves, 2)
      mixed = uncond + (cond - uncond) * params.scale.astype(halves.dtype)
      if interval < 0:
        return mixed
      token = where - (model.prefix_len(inputs) - 1)
      return jnp.where((token <= interval + 1)[..., None], mixed, cond)

    logits = combine(output.logits, positions if logits_at is None else positions[:, :1] + logits_at[:, None])
    if features == "combined":
      return ModelOutput(logits, combine(output.features, positions)), cache
    return ModelOutput(logits, jnp.concatenate(jnp.split(output.features, 2), axis=-1)), cache

  def init_cache(batch: int, max_len: int):
    return model.init_cache(2 * batch, max_len)

  def init(key):
    return Guided(model.init(key), jnp.float32(1.0))

  compact = None
  if model.compact is not None:
    # A single row must double too: cache rows are counted by the rows of ``path``.
    double = lambda x: jnp.concatenate([x, x])
    compact = lambda cache, slot, path: model.compact(cache, double(slot), double(path))
  return ModelFns(init, init_cache, apply, model.prefix_len, None, compact)


def _both_halves(model: ModelFns, params: Params, inputs: PyTree) -> PyTree:
  stack = lambda a, b: jax.tree.map(lambda x, y: jnp.concatenate([x, y]), a, b)
  if isinstance(inputs, Prefixed):
    return Prefixed(
      stack(inputs.condition, model.null_condition(params, inputs.condition)), stack(inputs.tokens, inputs.tokens)
    )
  if isinstance(inputs, Pairs):
    return Pairs(stack(inputs.tokens, inputs.tokens), jnp.concatenate(jnp.split(inputs.features, 2, axis=-1)))
  if isinstance(inputs, jax.Array):
    return jnp.concatenate([inputs, inputs])
  return stack(inputs, model.null_condition(params, inputs))
