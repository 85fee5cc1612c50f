"""Conditional execution without copies of updated buffers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp

from jaxspec.core.types import Array

State = TypeVar("State")


def run_if(condition: Array, function: Callable[[State], State], state: State) -> State:
  """Returns ``function(state)`` if ``condition []`` is True, else ``state`` without running the function.

  This is ``lax.cond(condition, function, identity, state)`` as a loop of at most one trip. A loop updates its buffers in
  place. A conditional copies every buffer that one of its branches updates: here all caches, in every round.

  The carry holds a counter instead of a flag. XLA hoists nothing out of a loop with a known trip count of one, so that
  weights would be rounded again in every round.
  """

  def once(carry: tuple[Array, State]) -> tuple[Array, State]:
    return carry[0] - 1, function(carry[1])

  return jax.lax.while_loop(lambda carry: carry[0] > 0, once, (condition.astype(jnp.int32), state))[1]
