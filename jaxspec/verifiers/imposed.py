"""Imposed acceptance: a round computes everything, but the number of accepted drafts is given.

It measures the speed-up of a method at a given acceptance without trained weights. The tokens are meaningless.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxspec.core import rng, verdicts
from jaxspec.core.token_axes import num_leading
from jaxspec.core.types import Array, Cursor, Draft, Key, PyTree, Verdict, Verifier


@dataclasses.dataclass(frozen=True)
class Imposed:
  """The given acceptance of drafts: probabilities, or recorded lengths.

  Attributes:
    probability: conditional acceptance probability of a draft; one for all depths, or one for each depth 1 .. D. Deeper
      drafts use that of depth D.
    lengths: accepted drafts of every round of recorded rows (`jaxspec.planning.recorded_acceptance`). The key of a row
      selects one of them, which is repeated after its last round.
    lock_step: all rows of a batch accept the smallest number of drafts of any row.
  """

  probability: float | tuple[float, ...] | None = None
  lengths: tuple[tuple[int, ...], ...] = ()
  lock_step: bool = False

  def __post_init__(self):
    if (self.probability is None) == (not self.lengths):
      found = "neither" if self.probability is None else "both"
      raise ValueError(f"Must have either a probability or lengths to impose, we instead got {found}")
    probabilities = self.probability if isinstance(self.probability, tuple) else (self.probability or 0.0,)
    if not probabilities or not all(0 <= value <= 1 for value in probabilities):
      raise ValueError(f"Must have an imposed acceptance from 0 to 1, we instead got {self.probability}")
    if not all(row and min(row) >= 0 for row in self.lengths):
      raise ValueError("Must have rows of at least one round, none below 0, to impose their lengths")

  @classmethod
  def of(cls, value: Imposed | float | tuple[float, ...]) -> Imposed:
    """The same, or probabilities."""
    return value if isinstance(value, Imposed) else cls(value)

  def tables(self, rule: PyTree) -> ImposedTables:
    """Tables of the verifier in place of those of its rule."""
    if not self.lengths:
      return ImposedTables(rule, jnp.asarray(self.probability, jnp.float32), None, None)
    rounds = np.array([len(row) for row in self.lengths], np.int32)
    lengths = np.zeros((len(rounds), rounds.max()), np.int32)
    for row, found in zip(lengths, self.lengths):
      row[: len(found)] = found
    return ImposedTables(rule, None, jnp.asarray(lengths), jnp.asarray(rounds))


class ImposedTables(NamedTuple):
  """Tables of an imposed verifier; either ``probability`` or the other two are None."""

  rule: PyTree  # tables of the rule itself
  probability: Array | None  # [] or [D] float32
  lengths: Array | None  # [M, R] int32
  rounds: Array | None  # [M] int32, valid entries of each row of ``lengths``


class ImposedState(NamedTuple):
  """State of an imposed verifier."""

  inner: PyTree
  recorded: Array  # [B] int32, the recorded row that each row takes
  max_len: Array  # [] int32


@dataclasses.dataclass(frozen=True)
class ImposedVerifier(Verifier):
  """A verifier with replaced numbers of accepted drafts; its parameters have `ImposedTables` as ``rule``.

  The networks and the rule run, and the rule draws the next token. The number of accepted drafts does not depend on any
  distribution. In a tree the first nodes count as the accepted path, up to the length of the longest path, because the
  shapes of trees differ without trained weights.

  Attributes:
    verifier: of a method for discrete tokens.
    lock_step: see `Imposed`.
  """

  verifier: Verifier
  lock_step: bool = False

  def init(self, params: PyTree, keys: Key, condition: PyTree, max_len: int, window: int) -> tuple[Verdict, ImposedState]:
    tables = params.rule
    verdict, inner = self.verifier.init(params._replace(rule=tables.rule), keys, condition, max_len, window)
    recorded = jnp.zeros(keys.shape, jnp.int32)
    if tables.lengths is not None:
      most = jnp.full(keys.shape, tables.lengths.shape[0], jnp.int32)
      recorded = rng.integer(rng.imposed_keys(keys), 0, most)
    return verdict, ImposedState(inner, recorded, jnp.int32(max_len))

  def verify(
    self, params: PyTree, keys: Key, state: ImposedState, cursor: Cursor, draft: Draft
  ) -> tuple[Verdict, ImposedState]:
    tables = params.rule
    verdict, inner = self.verifier.verify(params._replace(rule=tables.rule), keys, state.inner, cursor, draft)
    state = state._replace(inner=inner)
    window = draft.tokens.shape[1]
    if window == 0:
      return verdict, state
    local = draft.num_local
    accepted = _lengths(tables, keys, state.recorded, cursor, window)
    if draft.is_tree:
      longest = verdict.path.shape[1]
      accepted = jnp.minimum(accepted, jnp.clip(state.max_len - cursor.length - 1, 0, longest))
      nodes = jnp.minimum(jnp.arange(longest, dtype=jnp.int32), window - 1)
      verdict = verdict._replace(path=jnp.broadcast_to(nodes[None], verdict.path.shape))
    else:
      accepted = jnp.minimum(accepted, draft.num_drafted - local)
    if self.lock_step:
      accepted = jnp.full_like(accepted, jnp.min(jnp.where(cursor.live, accepted, window)))
    verdict = verdict._replace(num_accepted=local + jnp.where(draft.needs_verify, accepted, 0))
    if not getattr(self.verifier, "bonus", True):  # the rule decided about its token by another number of drafts
      verdict = verdicts.without_bonus(draft, verdict._replace(num_next=jnp.ones_like(verdict.num_next)))
    return verdict, state


def _lengths(tables: ImposedTables, keys: Key, recorded: Array, cursor: Cursor, window: int) -> Array:
  """Accepted drafts ``[B]`` int32 of a round, before other limits."""
  if tables.lengths is not None and tables.rounds is not None:
    return tables.lengths[recorded, cursor.round % tables.rounds[recorded]]
  at_depth = jnp.zeros(()) if tables.probability is None else tables.probability
  at_depth = jnp.broadcast_to(at_depth, (window,)) if at_depth.ndim == 0 else at_depth
  at_depth = at_depth[jnp.minimum(jnp.arange(window), at_depth.shape[0] - 1)]
  is_accepted = rng.uniforms(rng.imposed_keys(keys), window) < at_depth[None]
  return num_leading(is_accepted)
