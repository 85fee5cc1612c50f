"""Jacobi windows whose first positions have several drafts (proactive drafting of SJD-PAC, arXiv 2603.18599, made exact).

The main drafts of a window are those of `jaxspec.drafters.jacobi_drafter`. The first ``depth`` positions have ``branch - 1``
siblings more, drawn from the row of the position without the tokens that it has, one after the other. They are drawn from
this row whether the main draft was kept or redrawn: from the residual of a redrawn one they would not follow their proposal.
All parents of a level have the same candidates, so a window with ``branch`` K has K^l drafts at level l up to ``depth``, and
behind them the main drafts alone.

The next rows are those after the accepted path. Where the path ended, its first child continues it to level ``depth``; the
main drafts follow.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.core import rng
from jaxspec.core.token_axes import at_position
from jaxspec.core.types import Array, Cursor, Draft, Drafter, Key, PyTree, Verdict
from jaxspec.drafters.jacobi_drafter import JacobiDrafter, JacobiState
from jaxspec.sampling.logit_processing import sample


class WindowTree(NamedTuple):
  """The tree of a window of ``K`` levels: nodes 0 to K - 1 are the main drafts, then come the siblings by level.

  Attributes:
    parents: ``[nodes]`` int32, -1 for the root.
    level: ``[nodes]`` int32 from 0.
    rank: ``[nodes]`` int32, which candidate of its level a node is; 0 is the main draft.
    onward: ``[nodes + 1, K + 1]`` int32, input of the pass (0 is the root) that continues node i - 1 at each level.
  """

  parents: np.ndarray
  level: np.ndarray
  rank: np.ndarray
  onward: np.ndarray


def num_nodes(window: int, branch: int, depth: int) -> int:
  """Drafts of a window with siblings."""
  return window + sum(branch**level - 1 for level in range(1, depth + 1))


@functools.cache
def window_tree(window: int, branch: int, depth: int) -> WindowTree:
  """The tree of these sizes. A node of the first ``depth`` levels is a number with a digit in base ``branch`` per level."""
  nodes = [(level, 0) for level in range(1, window + 1)]
  nodes += [(level, code) for level in range(1, depth + 1) for code in range(1, branch**level)]
  index = {node: number for number, node in enumerate(nodes)} | {(0, 0): -1}
  onward = np.zeros((len(nodes) + 1, window + 1), np.int32)
  for (level, code), number in index.items():
    for further in range(level, window + 1):
      onward[number + 1, further] = 1 + index[further, code * branch ** (further - level) if further <= depth else 0]
  return WindowTree(
    parents=np.asarray([index[level - 1, code // branch] for level, code in nodes], np.int32),
    level=np.asarray([level - 1 for level, _ in nodes], np.int32),
    rank=np.asarray([code % branch for _, code in nodes], np.int32),
    onward=onward,
  )


@dataclasses.dataclass(frozen=True)
class JacobiTreeDrafter(Drafter):
  """Drafter of windows with siblings; needs a verifier with ``feedback_fn=target_logits`` and a rule for sampled trees.

  Attributes:
    main: the drafter of the main drafts.
    branch: candidates of a position, the main draft included.
    depth: leading positions with siblings.
  Raises:
    ValueError: for sizes out of range.
  """

  main: JacobiDrafter
  branch: int
  depth: int

  calls_per_round = 0

  def __post_init__(self):
    if self.branch < 1:
      raise ValueError(f"Must have a branch of at least 1, we instead got {self.branch}")
    if not 1 <= self.depth <= self.main.window:
      raise ValueError(f"Must have a depth from 1 to the window of {self.main.window}, we instead got {self.depth}")

  @property
  def window(self) -> int:
    return num_nodes(self.main.window, self.branch, self.depth)

  @property
  def tree(self) -> WindowTree:
    return window_tree(self.main.window, self.branch, self.depth)

  def init(self, params: PyTree, keys: Key, condition: PyTree, max_len: int, prefill: Verdict) -> tuple[JacobiState, None]:
    return self.main.init(params, keys, condition, max_len, prefill)

  def read(self, params: PyTree, state: JacobiState, cursor: Cursor) -> JacobiState:
    return self.main.read(params, state, cursor)

  def draft(self, params: PyTree, keys: Key, state: JacobiState, cursor: Cursor) -> tuple[Draft, JacobiState, tuple]:
    chain, state, trace = self.main.draft(params, keys, state, cursor)
    leading = chain.proposal[:, : self.depth]
    candidates = [chain.tokens[:, : self.depth]]
    for number in range(1, self.branch):
      # Offsets after those of the main drafts.
      first = 2 * self.main.window + (number - 1) * self.depth
      draw = jnp.stack([rng.uniform(keys, first + level) for level in range(self.depth)], axis=1)
      candidates.append(_another(leading, candidates, draw))
    stacked = jnp.stack(candidates, axis=2)  # [B, depth, branch]
    siblings = slice(self.main.window, None)
    tokens = stacked[:, self.tree.level[siblings], self.tree.rank[siblings]]
    parents = jnp.broadcast_to(self.tree.parents[None], (tokens.shape[0], self.window))
    tokens = jnp.concatenate([chain.tokens, tokens], axis=1)
    return Draft.tree(tokens, parents, chain.num_drafted, 0, proposal=chain.proposal), state, trace

  def commit(
    self, params: PyTree, state: JacobiState, cursor: Cursor, draft: Draft, trace: tuple, verdict: Verdict
  ) -> JacobiState:
    if not draft.is_tree:  # the target drew alone
      return self.main.commit(params, state, cursor, draft, trace, verdict)
    window, accepted = self.main.window, verdict.num_accepted[:, None]
    end = at_position(jnp.pad(verdict.path, ((0, 0), (1, 0)), constant_values=-1), verdict.num_accepted)  # [B]
    level = jnp.arange(window + 1)[None]
    row = jnp.where(level <= accepted, jnp.pad(verdict.path + 1, ((0, 0), (1, 0))), jnp.asarray(self.tree.onward)[end + 1])
    on_path = jnp.take_along_axis(draft.tokens, verdict.path, axis=1)
    tokens = jnp.where(level[:, :-1] < accepted, on_path, draft.tokens[:, :window])
    chain = Draft.chain(tokens, draft.proposal, draft.num_drafted, draft.num_calls)
    feedback = jnp.take_along_axis(verdict.feedback, row[..., None], axis=1)
    return self.main.commit(
      params, state, cursor, chain, trace, verdict._replace(feedback=feedback, path=verdict.path[:, :0])
    )


def _another(logits: Array, taken: list[Array], draw: Array) -> Array:
  """One more token ``[B, L]`` of the distributions ``logits [B, L, V]`` without those ``taken``.

  A distribution without another token gives the first one again, which no rule tests twice.
  """
  used = functools.reduce(jnp.logical_or, (jax.nn.one_hot(tokens, logits.shape[-1], dtype=bool) for tokens in taken))
  rest = jnp.where(used, -jnp.inf, logits)
  exists = jnp.any(jnp.isfinite(rest), axis=-1)
  return jnp.where(exists, sample(jnp.where(exists[..., None], rest, logits), draw), taken[0])
