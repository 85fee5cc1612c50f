"""Bytes of what a decode holds, from shapes alone: one definition for refusals before a run and for plans of hardware."""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax

from jaxspec.types import Cache, PyTree

# Arrays of the size of the logits that a round holds at once: the logits and two temporaries of their processing.
LOGIT_ARRAYS = 3


def tree_bytes(tree: PyTree) -> int:
  """Bytes of all arrays, or shapes of arrays, of a tree."""
  return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def cache_shapes(init_cache: Callable[[int, int], Cache], rows: int, slots: int) -> Cache:
  """The shapes of a cache; nothing is allocated."""
  return jax.eval_shape(functools.partial(init_cache, rows, slots))


def logits_bytes(rows: int, inputs: int, vocab_size: int) -> int:
  """Logits of ``inputs`` inputs of ``rows`` rows in float32, with their temporaries."""
  return LOGIT_ARRAYS * 4 * rows * inputs * vocab_size
