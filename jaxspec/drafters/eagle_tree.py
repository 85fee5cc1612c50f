"""EAGLE-2: a one-layer network extrapolates the target's features and drafts a dynamic tree (arXiv 2406.16858).

One round:

1. One pass reads the last round's committed tokens and gives the distribution at the root (`drafters/eagle_state.py`).
2. ``depth`` passes extend beams of ``top_k`` nodes, whose features are the drafter's own predictions
   (`drafters/draft_tree.py`).
3. The best ``total`` candidates go to the target, which returns its features at all of them.

Beams use the cache slots after those of the committed tokens; the next round overwrites them.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from jaxspec.core.types import Array, Cache, Cursor, Draft, Drafter, Key, ModelFns, PyTree, Verdict
from jaxspec.drafters import draft_tree, eagle_state
from jaxspec.drafters.draft_tree import Beam, Level
from jaxspec.drafters.eagle_state import EagleState
from jaxspec.models.conditions import Pairs
from jaxspec.sampling.logit_processing import ModelParams, Warp


@dataclasses.dataclass(frozen=True)
class EagleTreeDrafter(Drafter):
  """Drafter of trees with ``total`` nodes.

  The verifier must return features (``target_model(..., feedback_fn=target_features)``) and take trees
  (``tree_rule(max_path=depth + 1)``).

  Attributes:
    head: the drafter network (`eagle_fns`), or its `guided` form if the target is guided.
    total: nodes of a tree, the draft window ``K``.
    top_k: width of a beam, and number of continuations of each node.
    depth: beams per round; trees have ``depth + 1`` levels.
    warp: logit processing of the scores; it changes the speed, not the distribution of the committed tokens.
  Raises:
    ValueError: for sizes that are not positive, or more nodes than there are candidates.
  """

  head: ModelFns
  total: int
  top_k: int
  depth: int
  warp: Warp

  def __post_init__(self):
    if min(self.total, self.top_k, self.depth) < 1:
      found = f"{self.total}, {self.top_k}, {self.depth}"
      raise ValueError(f"Must have total, top_k and depth of at least 1, we instead got {found}")
    if self.total > (candidates := self.top_k + self.depth * self.top_k**2):
      raise ValueError(f"Must have total of at most the {candidates} candidates of a round, we instead got {self.total}")

  @property
  def longest(self):
    return min(self.depth + 1, self.total)

  @property
  def window(self) -> int:
    return self.total

  @property
  def calls_per_round(self) -> int:
    return self.depth + 1

  def init(
    self, params: ModelParams, keys: Key, condition: PyTree, max_len: int, prefill: Verdict
  ) -> tuple[EagleState, None]:
    slots = max_len + max(self.longest, self.depth * self.top_k) + 1
    return eagle_state.start(self.head, params.model, condition, prefill, longest=self.longest, slots=slots), None

  def read(self, params: ModelParams, state: EagleState, cursor: Cursor) -> EagleState:
    _, cache = eagle_state.absorb(self.head, params.model, state, cursor)
    return state._replace(cache=cache)

  def draft(self, params: ModelParams, keys: Key, state: EagleState, cursor: Cursor) -> tuple[Draft, EagleState, tuple]:
    del keys  # candidates are deterministic
    newest, cache = eagle_state.absorb(self.head, params.model, state, cursor)
    first = draft_tree.first_level(self.warp(newest.logits, params.sampling, cursor.length), self.top_k)
    feature = newest.feature
    features = jnp.broadcast_to(feature, (feature.shape[0], self.top_k, feature.shape[2]))  # those of the beam's parents

    # One loop body for all levels, so that a pass of the head is compiled once, not once for each level.
    def extend(carry: tuple[Beam, Array, Cache], index: Array) -> tuple[tuple[Beam, Array, Cache], tuple[Level, Array]]:
      """A pass over a beam: its candidates, and the next beam."""
      beam, features, cache = carry
      positions = jnp.broadcast_to((newest.position + 1 + index)[:, None], beam.tokens.shape)
      output, cache = self.head.apply(
        params.model, Pairs(beam.tokens, features), cache, positions=positions, mask=beam.mask,
        slot=newest.position + 1 + index * self.top_k,
      )  # fmt: skip
      logits = self.warp(output.need_logits(), params.sampling, (cursor.length + 1 + index)[:, None])
      level = draft_tree.next_level(logits, beam)
      grown = draft_tree.next_beam(level, beam, self.top_k)
      grown = grown._replace(mask=grown.mask[..., self.top_k :])
      return (grown, jnp.take_along_axis(output.features, grown.parents[..., None], axis=1), cache), (level, beam.choice)

    beam = draft_tree.next_beam(first, None, self.top_k)
    # The mask has one width at all levels. Its columns before the first beam are committed tokens, which every node sees.
    before = ((0, 0), (0, 0), ((self.depth - 1) * self.top_k, 0))
    beam = beam._replace(mask=jnp.pad(beam.mask, before, constant_values=True))
    (_, _, cache), (later, choices) = jax.lax.scan(extend, (beam, features, cache), jnp.arange(self.depth, dtype=jnp.int32))
    levels = [first, *(Level(*parts) for parts in zip(*later))]
    grown = draft_tree.prune(levels, list(choices), self.total)
    found = Draft.tree(grown.tokens, grown.parents, grown.num_levels, self.calls_per_round)
    return found, state._replace(cache=cache), ()

  def commit(
    self, params: ModelParams, state: EagleState, cursor: Cursor, draft: Draft, trace: tuple, verdict: Verdict
  ) -> EagleState:
    return eagle_state.hold(state, draft, verdict)
