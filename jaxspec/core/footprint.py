"""Bytes of a decode from shapes alone, for checks before a run and for plans of hardware."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import jax

from jaxspec.core.types import Cache, PyTree

# Arrays of the size of the logits in a round: the logits and two temporaries of their processing.
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


def available_bytes() -> int | None:
  """Free memory of the decoding device; None if unknown."""
  device = jax.devices()[0]
  if device.platform != "cpu":
    stats = device.memory_stats() or {}
    return stats["bytes_limit"] - stats["bytes_in_use"] if {"bytes_limit", "bytes_in_use"} <= stats.keys() else None
  found = []
  try:
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    found.append(int(fields["MemAvailable"].split()[0]) * 1024)
    found.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
  except (OSError, ValueError, KeyError):
    pass  # not Linux, or no limit on this process
  return min(found, default=None)
