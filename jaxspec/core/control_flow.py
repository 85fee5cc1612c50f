"""Conditional execution without copies of updated buffers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from jaxspec.core.types import Array, PyTree

State = TypeVar("State")


def run_if(condition: Array, function: Callable[..., State], state: State, *read: Any) -> State:
  """Returns ``function(state, *read)`` if ``condition []`` is True, else ``state`` without running the function.

  This is ``lax.cond(condition, function, identity, state)`` as a loop of at most one trip. A loop updates its buffers in
  place. A conditional copies every buffer that one of its branches updates: here all caches, in every round.

  The carry holds a counter instead of a flag. XLA hoists nothing out of a loop with a known trip count of one, so that
  weights would be rounded again in every round. What XLA does hoist it runs without regard to the condition.

  Args:
    read: arrays and random keys that change from round to round. What the function computes from them, or from the state,
      is not hoisted.
  """

  def once(carry: tuple[Array, State]) -> tuple[Array, State]:
    count, inputs = carry[0], (carry[1], *read)
    return count - 1, function(*(_after(count, inputs) if read else inputs))

  return jax.lax.while_loop(lambda carry: carry[0] > 0, once, (condition.astype(jnp.int32), state))[1]


def _after(count: Array, values: PyTree) -> PyTree:
  """The values, which depend on ``count`` from now on."""
  leaves, tree = jax.tree.flatten(values)
  impls = [jax.random.key_impl(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else None for leaf in leaves]
  plain = [leaf if impl is None else jax.random.key_data(leaf) for leaf, impl in zip(leaves, impls)]
  tied = jax.lax.optimization_barrier((count, plain))[1]
  again = [leaf if impl is None else jax.random.wrap_key_data(leaf, impl=impl) for leaf, impl in zip(tied, impls)]
  return jax.tree.unflatten(tree, again)


def put_leading(buffers: PyTree, values: PyTree) -> PyTree:
  """The buffers with ``values``, of the same or smaller shapes, as their leading entries; a loop updates them in place."""
  return jax.tree.map(lambda buffer, leaf: jax.lax.dynamic_update_slice(buffer, leaf, (0,) * leaf.ndim), buffers, values)
