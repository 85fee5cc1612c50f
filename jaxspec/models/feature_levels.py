"""Features of several layers of one network, as EAGLE-3 (arXiv 2503.01840, section 3.1) and DFlash (arXiv 2602.06036) read
them."""

from __future__ import annotations

import functools

import jax.numpy as jnp

from jaxspec.core.types import ModelFns, ModelOutput


@functools.cache
def with_levels(model: ModelFns, levels: tuple[int, ...]) -> ModelFns:
  """The network whose features are also those of layers below the last.

  Args:
    model: a network with `ModelFns.layers`.
    levels: ascending numbers of blocks below each level, from 0 (the embeddings) to the network's depth. Without levels the
      network is returned as it is.
  Returns:
    A network whose features are ``[B, T, (L + 1) D]``: the hidden states above ``levels[0]``, ``levels[1]``, ... blocks, and
    the features after the final norm. Logits and caches are unchanged.
  Raises:
    ValueError: for a network that cannot be divided, or levels that it does not have.
  """
  if not levels:
    return model
  if (layers := model.layers) is None:
    raise ValueError("Must have a network whose layers can be read one by one for features of several levels")
  if list(levels) != sorted(levels) or not 0 <= levels[0] <= levels[-1] <= layers.num_layers:
    raise ValueError(f"Must have ascending levels from 0 to {layers.num_layers}, we instead got {levels}")

  def apply(params, inputs, cache=None, *, positions=None, mask=None, inject=None, logits_at=None, slot=None):
    x, context = layers.embed(params, inputs, cache, positions=positions, mask=mask, inject=inject, slot=slot)
    found = []
    for first, last in zip((0, *levels), (*levels, layers.num_layers)):
      x, cache = layers.blocks(params, x, context, cache, first, last)
      found.append(x)
    output: ModelOutput = layers.head(params, x, logits_at)
    return output._replace(features=jnp.concatenate([*found[:-1], output.features], axis=-1)), cache

  return model._replace(apply=apply, layers=None)
