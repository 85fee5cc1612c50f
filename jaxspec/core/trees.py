"""Geometry of draft trees, as pure functions of the parent indices.

The nodes of a tree are the ``K`` tokens of a `Draft`; ``parents[b, i]`` is the node that node i continues, or -1 if it
continues the newest committed token (the root, which is not a node). A node comes after its parent (``parents[b, i] < i``),
and the children of one node are visited in the order of their indices. A chain is the tree with ``parents = [-1, 0, 1,
...]``. A chain has no parents, ``[B, 0]`` (`Draft.is_tree`), and needs no masks.

No function loops over levels. Ancestors come from repeated squaring of a matrix; other quantities follow from them.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxspec.core.token_axes import at_position
from jaxspec.core.types import Array, Draft, Verdict


def parents_of(draft: Draft) -> Array:
  """Parents ``[B, K]`` int32 of a tree or of a chain."""
  if draft.is_tree:
    return draft.parents
  rows, window = draft.tokens.shape[:2]
  return jnp.broadcast_to(jnp.arange(-1, window - 1, dtype=jnp.int32)[None], (rows, window))


def ancestors(parents: Array) -> Array:
  """``[B, K, K]`` bool: entry (i, j) is True if node j is node i or an ancestor of it."""
  size = parents.shape[1]
  node = jnp.arange(size)[None, None]
  reach = ((parents[..., None] == node) | (node == node.swapaxes(1, 2))).astype(jnp.float32)
  # Each squaring doubles the length of followed paths; a path has at most K - 1 steps.
  for _ in range(max(size - 2, 0).bit_length()):
    reach = jnp.minimum(jnp.einsum("bij,bjk->bik", reach, reach), 1.0)
  return reach > 0.5


def depths(reach: Array) -> Array:
  """Depth ``[B, K]`` int32 of every node from its `ancestors`; children of the root have depth 1."""
  return jnp.sum(reach.astype(jnp.int32), axis=-1)


def earlier_siblings(parents: Array) -> Array:
  """``[B, K, K]`` bool: entry (i, j) is True if node j has the same parent as node i and is visited before it."""
  node = jnp.arange(parents.shape[1])
  before = node[None, :] < node[:, None]  # [K, K]
  return (parents[:, :, None] == parents[:, None, :]) & before[None]


def layout(draft: Draft) -> tuple[Array, Array | None]:
  """Positions and mask for a pass of a network over ``[root, nodes ...]``.

  Returns:
    Positions ``[B or 1, K + 1]`` int32 relative to the root (depths), and a mask ``[B, K + 1, K + 1]`` bool, True where an
    input may attend to another; None is a causal chain.
  """
  rows, window = draft.tokens.shape[:2]
  if not draft.is_tree:
    return jnp.arange(window + 1, dtype=jnp.int32)[None], None
  reach = ancestors(draft.parents)
  root = jnp.zeros((rows, 1), jnp.int32)
  # Every node attends to the root; the root attends to itself only.
  mask = jnp.pad(reach, ((0, 0), (1, 0), (1, 0)))
  return jnp.concatenate([root, depths(reach)], axis=1), mask.at[:, :, 0].set(True)


def path_nodes(on_path: Array, depth: Array, length: int) -> Array:
  """Nodes of a path in order of depth.

  Args:
    on_path: ``[B, K]`` bool, at most one node of each depth.
    depth: ``[B, K]`` int32, from `depths`.
    length: static number ``L`` of nodes to return.
  Returns:
    ``[B, L]`` int32; entries after the end of the path are 0.
  """
  node = jnp.arange(on_path.shape[1], dtype=jnp.int32)[None, None]
  position = jnp.arange(1, length + 1, dtype=jnp.int32)[None, :, None]
  return jnp.sum(jnp.where(on_path[:, None] & (depth[:, None] == position), node, 0), axis=-1)


def accepted_tokens(draft: Draft, verdict: Verdict) -> Array:
  """Tokens of the draft ``[B, K]``, or of its path ``[B, L]``, where the leading ``num_accepted`` are accepted."""
  if not draft.is_tree:
    return draft.tokens
  return jnp.take_along_axis(draft.tokens, verdict.path, axis=1)


def ended_by_rejection(draft: Draft, verdict: Verdict) -> Array:
  """``[B]`` bool: the last accepted token (or the root) had drafted successors, and all of them were rejected."""
  room = verdict.num_accepted < draft.num_drafted
  if not draft.is_tree:
    return room
  last = at_position(verdict.path, jnp.maximum(verdict.num_accepted - 1, 0))
  last = jnp.where(verdict.num_accepted > 0, last, -1)
  return room & jnp.any(draft.parents == last[:, None], axis=1)


def path_features(features: Array, path: Array) -> Array:
  """Features of a network at the root and along a path.

  Args:
    features: ``[B, K + 1, D]`` at ``[root, nodes ...]``.
    path: ``[B, L]`` nodes.
  Returns:
    ``[B, L + 1, D]``.
  """
  inputs = jnp.pad(path + 1, ((0, 0), (1, 0)))
  return jax.vmap(lambda row, at: row[at])(features, inputs)
