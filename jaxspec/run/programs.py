"""Compiled programs of a pipeline in one bounded cache."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Any

import jax

# Size of the cache, with least-recently-used eviction; a program takes about 20 MB.
KEPT = 16


class Programs:
  """A cache of at most `KEPT` values with least-recently-used eviction."""

  def __init__(self):
    self._kept: dict[Hashable, Any] = {}

  def __len__(self) -> int:
    return len(self._kept)

  def __contains__(self, key: Hashable) -> bool:
    return key in self._kept

  def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
    """The value of a key, made if it is missing."""
    value = self._kept.pop(key) if key in self._kept else make()
    self._kept[key] = value
    if len(self._kept) > KEPT:
      del self._kept[next(iter(self._kept))]
    return value

  def compiled(
    self, key: Hashable, make: Callable[[], Callable[..., Any]], *inputs: Any, **jit: Any
  ) -> tuple[Callable[..., Any], float]:
    """A program for inputs of these shapes, and the seconds of tracing and compiling it, 0 if it was cached.

    Args:
      key: everything static in the program; shapes and dtypes of ``inputs`` are added.
      make: returns the function to compile.
      jit: as for `jax.jit`.
    """
    leaves, tree = jax.tree.flatten(inputs)
    start, missing = time.perf_counter(), []

    def compile_it():
      missing.append(key)
      return jax.jit(make(), **jit).lower(*inputs).compile()

    program = self.get((key, tree, tuple(map(jax.typeof, leaves))), compile_it)
    return program, time.perf_counter() - start if missing else 0.0
