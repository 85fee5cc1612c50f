"""Groups of codes that count as one, for scores of the edge's uncertainty.

Large codebooks hold many nearly equal codes. An edge that hesitates between them is certain of the image, but entropy,
largest probability and interval widths call it uncertain. A score on merged codes adds up the probabilities of each group
first. If the groups are the codes that a finer codebook splits, it is the score before the split. It is in none of the four
papers.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxspec.core.types import Array, Intervals

_BLOCK = 1 << 24  # most distances of a block


class Groups(NamedTuple):
  """A partition of ``V`` codes into ``M`` groups.

  Attributes:
    of_code: ``[V]`` int32 group of each code.
    first: ``[M]`` int32 smallest code of each group.
  """

  of_code: Array
  first: Array


def groups_within(codebook: Array, distance: float, *, normalise: bool = True) -> Groups:
  """Groups of codes that are linked by steps of at most a distance (single linkage).

  Args:
    codebook: ``[V, C]`` rows of the image tokenizer's codebook.
    distance: largest Euclidean length of a step.
    normalise: scale rows to unit length first, like the LlamaGen decoder.
  Raises:
    ValueError: for a negative distance, or if fewer than 2 groups remain.
  """
  from scipy.sparse import coo_array, csgraph  # few decodes merge codes

  if not distance >= 0:
    raise ValueError(f"Must have a distance of at least 0, we instead got {distance}")
  rows = np.asarray(codebook, np.float32)
  if normalise:
    rows = rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), 1e-12)
  size, norms = len(rows), np.sum(rows * rows, axis=-1)
  near, step = [], max(1, _BLOCK // len(rows))
  for start in range(0, size, step):
    block = slice(start, start + step)
    squared = norms[block, None] + norms[None] - 2 * rows[block] @ rows.T
    first, second = np.nonzero(squared <= distance**2 + 1e-5 * norms.max())
    # The products above are rounded; these differences are not.
    gap = rows[first + start] - rows[second]
    within = np.sum(gap * gap, axis=-1) <= np.float32(distance) ** 2 * (1 + 1e-5)
    near.append(np.stack([first[within] + start, second[within]]))
  links = np.concatenate(near, axis=1)
  graph = coo_array((np.ones(links.shape[1], bool), tuple(links)), shape=(size, size))
  count, of_code = csgraph.connected_components(graph, directed=False)
  if count < 2:
    raise ValueError(f"Must have a distance that leaves at least 2 groups of codes, we instead got {distance:g}")
  first = np.full(count, size, np.int32)
  np.minimum.at(first, of_code, np.arange(size, dtype=np.int32))
  return Groups(jnp.asarray(of_code, jnp.int32), jnp.asarray(first))


def merge(intervals: Intervals, groups: Groups) -> Intervals:
  """Intervals for the logits of groups.

  The logit of a group is the log of its summed exponentials, so that its probability is the sum of its codes'. Its radius is
  the farther of the two ends that it reaches when its codes move by their radii together. With one radius in a group that is
  this radius, and the interval is exact; else it contains the exact one.

  Args:
    intervals: leaves ``[..., V]``.
  Returns:
    Leaves ``[..., M]``.
  """
  centre, radius, lens = intervals
  logits = _log_sum(centre, groups)
  # A group whose codes are all excluded stays excluded, with a radius of 0.
  finite = jnp.where(jnp.isneginf(logits), 0.0, logits)
  reach = lambda moved, sign: jnp.where(jnp.isneginf(logits), 0.0, sign * (_log_sum(moved, groups) - finite))
  farther = jnp.maximum(reach(centre + radius, 1.0), reach(centre - radius, -1.0))
  return Intervals(logits, jnp.maximum(farther, 0.0), None if lens is None else _log_sum(lens, groups))


def _log_sum(logits: Array, groups: Groups) -> Array:
  """Log of the sum of exponentials of each group, ``[..., V]`` to ``[..., M]``; -inf for a group of excluded codes."""
  shape = (*logits.shape[:-1], groups.first.shape[0])
  largest = jnp.full(shape, -jnp.inf, logits.dtype).at[..., groups.of_code].max(logits)
  shift = jnp.where(jnp.isneginf(largest), 0.0, largest)
  total = jnp.zeros(shape, logits.dtype).at[..., groups.of_code].add(jnp.exp(logits - shift[..., groups.of_code]))
  return jnp.where(jnp.isneginf(largest), -jnp.inf, shift + jnp.log(jnp.maximum(total, jnp.finfo(logits.dtype).tiny)))
