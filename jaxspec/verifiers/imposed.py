"""Imposed acceptance and calls: a round computes everything, but acceptance and calls of the target are given.

It measures the speed-up of a method at a given acceptance without trained weights. The tokens are meaningless.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxspec.core import commits, rng
from jaxspec.core.token_axes import num_leading
from jaxspec.core.types import Array, Cursor, Draft, Key, PyTree, Verdict, Verifier


@dataclasses.dataclass(frozen=True)
class Imposed:
  """The given acceptance of drafts: probabilities, or recorded lengths. Also the given calls, for local acceptance.

  Attributes:
    probability: conditional acceptance probability of a draft; one for all depths, or one for each depth 1 .. D. Deeper
      drafts use that of depth D.
    lengths: accepted drafts of every exchange of recorded rows (`jaxspec.planning.recorded_acceptance`). The key of a row
      selects one of them, which is repeated after its last exchange.
    lock_step: all rows of a batch accept the smallest number of drafts of any row.
    calls: calls of the target per token, of a method that accepts tokens locally; None: by its gate.
    called_at: positions of calls in recorded rows, instead of ``calls``; repeated after the last token. With ``lengths``, of
      the same rows.
    tokens: recorded tokens of each row of ``called_at``.
  """

  probability: float | tuple[float, ...] | None = None
  lengths: tuple[tuple[int, ...], ...] = ()
  lock_step: bool = False
  calls: float | None = None
  called_at: tuple[tuple[int, ...], ...] = ()
  tokens: tuple[int, ...] = ()

  def __post_init__(self):
    if (self.probability is None) == (not self.lengths):
      found = "neither" if self.probability is None else "both"
      raise ValueError(f"Must have either a probability or lengths to impose, we instead got {found}")
    probabilities = self.probability if isinstance(self.probability, tuple) else (self.probability or 0.0,)
    if not probabilities or not all(0 <= value <= 1 for value in probabilities):
      raise ValueError(f"Must have an imposed acceptance from 0 to 1, we instead got {self.probability}")
    if not all(row and min(row) >= 0 for row in self.lengths):
      raise ValueError("Must have rows of at least one round, none below 0, to impose their lengths")
    if self.calls is not None and (self.called_at or not 0 < self.calls <= 1):
      found = "recorded ones too" if self.called_at else self.calls
      raise ValueError(f"Must have imposed calls above 0, at most 1 for each token, we instead got {found}")
    fits = len(self.called_at) == len(self.tokens) and len(self.called_at) in (len(self.lengths) or len(self.called_at), 0)
    inside = all(row == tuple(sorted({*row})) and 0 <= min(row, default=0) for row in self.called_at)
    if not fits or not inside or any(max(row, default=0) >= size for row, size in zip(self.called_at, self.tokens)):
      raise ValueError("Must have ascending positions of calls below the tokens of each recorded row to impose them")

  @classmethod
  def of(cls, value: Imposed | float | tuple[float, ...]) -> Imposed:
    """The same, or probabilities."""
    return value if isinstance(value, Imposed) else cls(value)

  @property
  def imposes_calls(self) -> bool:
    """Whether calls are given."""
    return self.calls is not None or bool(self.called_at)

  def accepted_at_least(self, window: int) -> tuple[float, ...]:
    """Probabilities that at least 1, 2 .. ``window`` drafts of an exchange are accepted."""
    if self.lengths:
      every = np.concatenate([np.asarray(row) for row in self.lengths])
      return tuple(float(np.mean(every >= number)) for number in range(1, window + 1))
    at_depth = self.probability if isinstance(self.probability, tuple) else (self.probability or 0.0,)
    return tuple(np.cumprod([at_depth[min(depth, len(at_depth) - 1)] for depth in range(window)]).tolist())

  def tables(self, rule: PyTree) -> ImposedTables:
    """Tables of the verifier in place of those of its rule."""
    recorded = jnp.int32(len(self.lengths or self.called_at)) if self.lengths or self.called_at else None
    if not self.lengths:
      return ImposedTables(rule, jnp.asarray(self.probability, jnp.float32), None, None, recorded)
    rounds = np.array([len(row) for row in self.lengths], np.int32)
    lengths = np.zeros((len(rounds), rounds.max()), np.int32)
    for row, found in zip(lengths, self.lengths):
      row[: len(found)] = found
    return ImposedTables(rule, None, jnp.asarray(lengths), jnp.asarray(rounds), recorded)


class ImposedTables(NamedTuple):
  """Tables of an imposed verifier; either ``probability``, or ``lengths`` and ``rounds`` are None."""

  rule: PyTree  # tables of the rule itself
  probability: Array | None  # [] or [D] float32
  lengths: Array | None  # [M, R] int32
  rounds: Array | None  # [M] int32, valid entries of each row of ``lengths``
  num_recorded: Array | None = None  # [] int32, M; None without recorded rows


class ImposedState(NamedTuple):
  """State of an imposed verifier."""

  inner: PyTree
  recorded: Array  # [B] int32, the recorded row that each row takes
  exchanges: Array  # [B] int32, exchanges of each row so far
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
    sends_row: the feedback of the prefill is the recorded row of every row, for `jaxspec.intervals.imposed_gate`.
  """

  verifier: Verifier
  lock_step: bool = False
  sends_row: bool = False

  def init(self, params: PyTree, keys: Key, condition: PyTree, max_len: int, window: int) -> tuple[Verdict, ImposedState]:
    tables = params.rule
    verdict, inner = self.verifier.init(params._replace(rule=tables.rule), keys, condition, max_len, window)
    recorded = zeros = jnp.zeros(keys.shape, jnp.int32)
    if tables.num_recorded is not None:
      recorded = rng.integer(rng.imposed_keys(keys), 0, jnp.broadcast_to(tables.num_recorded, keys.shape))
    if self.sends_row:
      verdict = verdict._replace(feedback=recorded)
    return verdict, ImposedState(inner, recorded, zeros, jnp.int32(max_len))

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
    accepted = _lengths(tables, keys, state, window)
    state = state._replace(exchanges=state.exchanges + draft.needs_verify)
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
      verdict = commits.without_bonus(draft, verdict._replace(num_next=jnp.ones_like(verdict.num_next)))
    return verdict, state


def _lengths(tables: ImposedTables, keys: Key, state: ImposedState, window: int) -> Array:
  """Accepted drafts ``[B]`` int32 of an exchange, before other limits."""
  if tables.lengths is not None and tables.rounds is not None:
    return tables.lengths[state.recorded, state.exchanges % tables.rounds[state.recorded]]
  at_depth = jnp.zeros(()) if tables.probability is None else tables.probability
  at_depth = jnp.broadcast_to(at_depth, (window,)) if at_depth.ndim == 0 else at_depth
  at_depth = at_depth[jnp.minimum(jnp.arange(window), at_depth.shape[0] - 1)]
  is_accepted = rng.uniforms(rng.imposed_keys(keys), window) < at_depth[None]
  return num_leading(is_accepted)
