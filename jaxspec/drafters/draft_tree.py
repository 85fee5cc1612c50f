"""Grows a draft tree level by level and selects its best nodes (EAGLE-2, arXiv 2406.16858, section 4.1).

1. The ``k`` likeliest tokens at the root form the first level of candidates and the first beam. The score of a candidate is
   the sum of the log-probabilities on its path.
2. A pass over the beam gives each node its ``k`` likeliest continuations as candidates. The best ``k`` of these ``k * k``
   are the next beam. This is done ``depth`` times.
3. The best ``total`` of all ``k + depth * k * k`` candidates form the tree, in the order of their creation.

Ranks are stable by (score, index). A score never exceeds that of the parent, and the parent has the smaller index. The
parent of a selected node is therefore selected too, even on ties (a draft probability of 1). All shapes are static.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxspec.core.types import Array


class Level(NamedTuple):
  """The candidates of one pass."""

  tokens: Array  # [B, M] int32
  scores: Array  # [B, M] float32
  parents: Array  # [B, M] int32, parent of each candidate in the beam; 0 at the root


class Beam(NamedTuple):
  """Nodes of one pass of the drafter."""

  tokens: Array  # [B, k] int32
  scores: Array  # [B, k] float32
  choice: Array  # [B, k] int32, index of each node among the candidates of its level
  parents: Array  # [B, k] int32, parent of each node in the previous beam
  mask: Array  # [B, k, rounds * k] bool: ancestor-or-self among the nodes of all beams so far, in the order of the passes


class Tree(NamedTuple):
  """The selected nodes."""

  tokens: Array  # [B, total] int32
  parents: Array  # [B, total] int32, -1 at the root
  num_levels: Array  # [B] int32


def first_level(logits: Array, top_k: int) -> Level:
  """Candidates after the root from its processed logits ``[B, V]``."""
  scores, tokens = _likeliest(logits, top_k)
  return Level(tokens, scores, jnp.zeros_like(tokens))


def next_level(logits: Array, beam: Beam) -> Level:
  """Candidates after every node of a beam from their processed logits ``[B, k, V]``."""
  rows, top_k = beam.tokens.shape
  scores, tokens = _likeliest(logits, top_k)  # [B, k, k]
  scores = beam.scores[..., None] + scores
  parents = jnp.broadcast_to(jnp.arange(top_k, dtype=jnp.int32)[None, :, None], tokens.shape)
  flat = lambda x: x.reshape(rows, top_k * top_k)
  return Level(flat(tokens), flat(scores), flat(parents))


def next_beam(level: Level, beam: Beam | None, top_k: int) -> Beam:
  """The best ``top_k`` candidates of a level; ``beam`` is its parent beam, None for the root."""
  scores, choice = jax.lax.top_k(level.scores, top_k)  # equal scores: smaller index first
  pick = lambda x: jnp.take_along_axis(x, choice, axis=1)
  parents = pick(level.parents)
  mask = jnp.broadcast_to(jnp.eye(top_k, dtype=bool)[None], (scores.shape[0], top_k, top_k))
  if beam is not None:
    mask = jnp.concatenate([jnp.take_along_axis(beam.mask, parents[..., None], axis=1), mask], axis=2)
  return Beam(pick(level.tokens), scores, choice, parents, mask)


def prune(levels: list[Level], choices: list[Array], total: int) -> Tree:
  """Selects the best ``total`` candidates of all levels; ``choices[i]`` is that of the beam chosen from ``levels[i]``, the
  parent of ``levels[i + 1]``."""
  tokens = jnp.concatenate([level.tokens for level in levels], axis=1)  # [B, M]
  scores = jnp.concatenate([level.scores for level in levels], axis=1)
  # Parents as indices among all candidates.
  parents, first = [jnp.full_like(levels[0].parents, -1)], 0
  for level, choice, made in zip(levels[1:], choices, levels):
    parents.append(jnp.take_along_axis(first + choice, level.parents, axis=1))
    first += made.tokens.shape[1]
  parents = jnp.concatenate(parents, axis=1)
  depth = jnp.concatenate([jnp.full((level.tokens.shape[1],), i + 1, jnp.int32) for i, level in enumerate(levels)])

  kept = jnp.sort(jax.lax.top_k(scores, total)[1], axis=1)  # [B, total]
  row = jnp.arange(kept.shape[0])[:, None]
  node = jnp.zeros_like(parents).at[row, kept].set(jnp.arange(total, dtype=jnp.int32)[None])
  parent = parents[row, kept]
  parent = jnp.where(parent < 0, -1, node[row, jnp.maximum(parent, 0)])
  return Tree(tokens[row, kept], parent, jnp.max(depth[kept], axis=1))


def _likeliest(logits: Array, top_k: int) -> tuple[Array, Array]:
  """Log-probabilities and tokens ``[..., k]`` of the likeliest continuations.

  Raises:
    ValueError: if there are fewer than ``top_k`` tokens.
  """
  if logits.shape[-1] < top_k:
    raise ValueError(f"Must have top_k of at most the {logits.shape[-1]} tokens there are, we instead got {top_k}")
  log_p = jax.nn.log_softmax(logits, axis=-1)
  _, tokens = jax.lax.top_k(log_p, top_k)
  # Log-probabilities are gathered by index, because reading the values of `top_k` compiles to a full sort on a CPU.
  return jnp.take_along_axis(log_p, tokens, axis=-1), tokens.astype(jnp.int32)
