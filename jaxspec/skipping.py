"""Work that is skipped at run time without copying what it updates."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp

from jaxspec.types import Array

State = TypeVar("State")


def run_if(condition: Array, function: Callable[[State], State], state: State) -> State:
  """``function(state)`` where ``condition []`` holds, else ``state``; what is not wanted does not run.

  This is ``lax.cond(condition, function, identity, state)`` as a loop of at most one trip: a loop updates its carry in
  place, while XLA copies every buffer that a branch of a conditional updates, here all caches in every round. The loop
  counts, because XLA moves nothing out of a loop that it knows to end after one trip: weights would be rounded anew in
  every round.
  """

  def once(carry: tuple[Array, State]) -> tuple[Array, State]:
    return carry[0] - 1, function(carry[1])

  return jax.lax.while_loop(lambda carry: carry[0] > 0, once, (condition.astype(jnp.int32), state))[1]
