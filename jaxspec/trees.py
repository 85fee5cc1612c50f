"""Geometry of draft trees, as pure functions of the parent indices.

The nodes of a tree are the ``K`` tokens of a `Draft`; ``parents[b, i]`` is the node that node i continues, or -1 where it
continues the newest committed token (the root, which is no node). A node comes after its parent (``parents[b, i] < i``),
and the children of one node are visited in the order of their indices. A chain is the tree with ``parents = [-1, 0, 1,
...]``; `Draft.parents` None stands for it, so that chains pay for no masks.

Nothing here loops over levels: ancestors come from repeated squaring, everything else from them.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxspec.types import Array, Draft, Verdict


def parents_of(draft: Draft) -> Array:
  """Parents ``[B, K]`` int32 of a tree or of a chain."""
  if draft.parents is not None:
    return draft.parents
  rows, window = draft.tokens.shape[:2]
  return jnp.broadcast_to(jnp.arange(-1, window - 1, dtype=jnp.int32)[None], (rows, window))


def ancestors(parents: Array) -> Array:
  """``[B, K, K]`` bool: entry (i, j) is True where node j is node i or an ancestor of it."""
  size = parents.shape[1]
  node = jnp.arange(size)[None, None]
  reach = ((parents[..., None] == node) | (node == node.swapaxes(1, 2))).astype(jnp.float32)
  # Squaring doubles the steps that are followed, and no path has more than K - 1.
  for _ in range(max(size - 2, 0).bit_length()):
    reach = jnp.minimum(jnp.einsum("bij,bjk->bik", reach, reach), 1.0)
  return reach > 0.5


def depths(reach: Array) -> Array:
  """Depth ``[B, K]`` int32 of every node from its `ancestors`; children of the root have depth 1."""
  return jnp.sum(reach.astype(jnp.int32), axis=-1)


def earlier_siblings(parents: Array) -> Array:
  """``[B, K, K]`` bool: entry (i, j) is True where node j has the parent of node i and is visited before it."""
  node = jnp.arange(parents.shape[1])
  before = node[None, :] < node[:, None]  # [K, K]
  return (parents[:, :, None] == parents[:, None, :]) & before[None]


def layout(draft: Draft) -> tuple[Array, Array | None]:
  """How a network reads ``[root, nodes ...]`` in one pass.

  Returns:
    Positions ``[B or 1, K + 1]`` int32 relative to the root (depths), and the mask ``[B, K + 1, K + 1]`` bool of what each
    input sees of the others; None is a causal chain.
  """
  rows, window = draft.tokens.shape[:2]
  if draft.parents is None:
    return jnp.arange(window + 1, dtype=jnp.int32)[None], None
  reach = ancestors(draft.parents)
  root = jnp.zeros((rows, 1), jnp.int32)
  # Every node sees the root, which sees only itself.
  mask = jnp.pad(reach, ((0, 0), (1, 0), (1, 0)))
  return jnp.concatenate([root, depths(reach)], axis=1), mask.at[:, :, 0].set(True)


def path_nodes(on_path: Array, depth: Array, length: int) -> Array:
  """Nodes of a path in order of depth.

  Args:
    on_path: ``[B, K]`` bool, at most one node of each depth.
    depth: ``[B, K]`` int32, from `depths`.
    length: static number ``L`` of nodes to return.
  Returns:
    ``[B, L]`` int32; 0 behind the end of the path.
  """
  node = jnp.arange(on_path.shape[1], dtype=jnp.int32)[None, None]
  place = jnp.arange(1, length + 1, dtype=jnp.int32)[None, :, None]
  return jnp.sum(jnp.where(on_path[:, None] & (depth[:, None] == place), node, 0), axis=-1)


def kept_tokens(draft: Draft, verdict: Verdict) -> Array:
  """The tokens whose leading ``num_accepted`` are kept: those of the draft ``[B, K]``, or of its path ``[B, L]``."""
  if verdict.path is None:
    return draft.tokens
  return jnp.take_along_axis(draft.tokens, verdict.path, axis=1)


def ended_by_rejection(draft: Draft, verdict: Verdict) -> Array:
  """``[B]`` bool: the last kept token had drafted successors, and all of them were refused."""
  room = verdict.num_accepted < draft.num_drafted
  if draft.parents is None:
    return room
  last = jnp.maximum(verdict.num_accepted - 1, 0)[:, None]
  last = jnp.where(verdict.num_accepted > 0, jnp.take_along_axis(verdict.path, last, axis=1)[:, 0], -1)
  return room & jnp.any(draft.parents == last[:, None], axis=1)


def path_features(features: Array, path: Array) -> Array:
  """What a network returned at the root and along a path.

  Args:
    features: ``[B, K + 1, D]`` at ``[root, nodes ...]``.
    path: ``[B, L]`` nodes.
  Returns:
    ``[B, L + 1, D]``.
  """
  inputs = jnp.pad(path + 1, ((0, 0), (1, 0)))
  return jax.vmap(lambda row, at: row[at])(features, inputs)
