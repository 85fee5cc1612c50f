"""Small constructors: drafters of one function, verifiers of functions, and others with one function replaced."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from jaxspec.core import commits, trees
from jaxspec.core.token_axes import at_position, over_tokens
from jaxspec.core.types import Array, Cursor, Draft, Drafter, FirstToken, Key, Params, PyTree, Verdict, Verifier


class History(NamedTuple):
  """The condition and committed tokens of rows, for drafters that read them (`from_history`).

  Attributes:
    condition: the condition of the decode, of ``B`` rows.
    tokens: ``[B, N]`` int32 (or ``[B, N, C]`` float), tokens by index; the first ``cursor.length`` of a row are committed,
      the others are invalid.
  """

  condition: PyTree
  tokens: Array


@dataclasses.dataclass(frozen=True)
class _OfFunction(Drafter):
  """A drafter of one function, which does not change the state."""

  draft_fn: Callable[..., Draft]
  window: int
  calls_per_round: int
  has_cache = False

  def draft(self, params: Params, keys: Key, state: PyTree, cursor: Cursor) -> tuple[Draft, PyTree, PyTree]:
    return self.draft_fn(params, keys, cursor, state), state, ()


class _Stateless(_OfFunction):
  """See `stateless`."""

  def draft(self, params: Params, keys: Key, state: PyTree, cursor: Cursor) -> tuple[Draft, PyTree, PyTree]:
    return self.draft_fn(params, keys, cursor), state, ()


class _FromHistory(_OfFunction):
  """See `from_history`; its state is a `History`."""

  def init(
    self, params: Params, keys: Key, condition: PyTree, max_len: int, prefill: Verdict
  ) -> tuple[History, FirstToken | None]:
    first = prefill.next_tokens[:, 0]
    tokens = jnp.zeros((first.shape[0], max_len, *first.shape[1:]), first.dtype)
    return History(condition, tokens.at[:, 0].set(first)), None

  def commit(self, params: Params, state: History, cursor: Cursor, draft: Draft, trace: PyTree, verdict: Verdict) -> History:
    rows, max_len = state.tokens.shape[:2]
    row, position = jnp.arange(rows)[:, None], commits.block_positions(cursor, draft, verdict, max_len)
    block = commits.committed_block(draft, verdict)
    return state._replace(tokens=state.tokens.at[row, position].set(block, mode="drop"))


class _FromFeatures(_OfFunction):
  """See `from_features`; its state is the features."""

  def init(
    self, params: Params, keys: Key, condition: PyTree, max_len: int, prefill: Verdict
  ) -> tuple[Array, FirstToken | None]:
    return commits.features_of(prefill)[:, -1], None

  def commit(self, params: Params, state: Array, cursor: Cursor, draft: Draft, trace: PyTree, verdict: Verdict) -> Array:
    features, gain = commits.features_of(verdict), commits.num_committed(draft, verdict)
    if draft.is_tree:
      features = trees.path_features(features, verdict.path)
    newest = at_position(features, jnp.clip(gain - 1, 0, features.shape[1] - 1))
    return jnp.where(over_tokens(cursor.live & (gain > 0), newest), newest, state)


def stateless(draft_fn: Callable[[Params, Key, Cursor], Draft], *, window: int, calls_per_round: int = 0) -> Drafter:
  """A drafter that reads the newest token only.

  Drafters are equal if their functions are equal, and equal drafters share compiled programs: use a module's function, or a
  frozen dataclass with `__call__`.

  Args:
    draft_fn: ``(params, keys [B], cursor) -> Draft``.
    window: static size ``K`` of every draft.
    calls_per_round: largest number of passes of a draft network in one round.
  """
  return _Stateless(draft_fn, window, calls_per_round)


def from_history(
  draft_fn: Callable[[Params, Key, Cursor, History], Draft], *, window: int, calls_per_round: int = 0
) -> Drafter:
  """A drafter that reads the condition and all committed tokens, ``draft_fn(params, keys [B], cursor, history) -> Draft``.

  Other arguments as in `stateless`.
  """
  return _FromHistory(draft_fn, window, calls_per_round)


def from_features(
  draft_fn: Callable[[Params, Key, Cursor, Array], Draft], *, window: int, calls_per_round: int = 0
) -> Drafter:
  """A drafter that reads the target's features at the draw or verification of the newest token.

  The verifier must return features: ``TargetVerifier(..., feedback_fn=target_features)``.

  Args:
    draft_fn: ``(params, keys [B], cursor, features [B, D]) -> Draft``; features of a guided target have width ``2 D``.
    window: as in `stateless`, and so is ``calls_per_round``.
  """
  return _FromFeatures(draft_fn, window, calls_per_round)


@dataclasses.dataclass(frozen=True)
class _WithDraft(Drafter):
  """See `with_draft`."""

  inner: Drafter
  draft_fn: Callable[..., tuple[Draft, PyTree, PyTree]]
  window: int
  calls_per_round: int
  may_accept_locally: bool
  has_cache: bool

  def init(self, *args: Any, **kwargs: Any) -> tuple[PyTree, FirstToken | None]:
    return self.inner.init(*args, **kwargs)

  def read(self, params: Params, state: PyTree, cursor: Cursor) -> PyTree:
    return self.inner.read(params, state, cursor)

  def draft(self, params: Params, keys: Key, state: PyTree, cursor: Cursor) -> tuple[Draft, PyTree, PyTree]:
    return self.draft_fn(params, keys, state, cursor)

  def commit(self, *args: Any, **kwargs: Any) -> PyTree:
    return self.inner.commit(*args, **kwargs)

  def report(self, state: PyTree) -> PyTree:
    return self.inner.report(state)

  def at(self, length: int, max_len: int) -> Drafter:
    there = self.inner.at(length, max_len)
    return self if there is self.inner else there


@dataclasses.dataclass(frozen=True)
class VerifierOf(Verifier):
  """A verifier of functions that replace methods of `Verifier`; None keeps the method of ``inner``."""

  inner: Verifier
  init_fn: Callable[..., tuple[Verdict, PyTree]] | None = None
  verify_fn: Callable[..., tuple[Verdict, PyTree]] | None = None
  at_fn: Callable[[int, int], Verifier] | None = None
  in_step: bool = False

  def init(self, *args: Any, **kwargs: Any) -> tuple[Verdict, PyTree]:
    return (self.init_fn or self.inner.init)(*args, **kwargs)

  def verify(self, params: Params, keys: Key, state: PyTree, cursor: Cursor, draft: Draft) -> tuple[Verdict, PyTree]:
    return (self.verify_fn or self.inner.verify)(params, keys, state, cursor, draft)

  def at(self, length: int, max_len: int) -> Verifier:
    if self.at_fn is not None:
      return self.at_fn(length, max_len)
    there = self.inner.at(length, max_len)
    return self if there is self.inner else there


def verifier_of(
  init: Callable[..., tuple[Verdict, PyTree]],
  verify: Callable[..., tuple[Verdict, PyTree]],
  at: Callable[[int, int], Verifier] | None = None,
) -> Verifier:
  """A verifier of functions. Arguments are methods of `Verifier`; with ``at``, rows keep one length."""
  return VerifierOf(Verifier(), init, verify, at, at is not None)


def with_draft(inner: Drafter, draft: Callable[..., tuple[Draft, PyTree, PyTree]]) -> Drafter:
  """The same drafter with another function as `draft`."""
  about = inner.window, inner.calls_per_round, inner.may_accept_locally, inner.has_cache
  return _WithDraft(inner, draft, *about)


def with_verify(inner: Verifier, verify: Callable[..., tuple[Verdict, PyTree]]) -> Verifier:
  """The same verifier with another function as `verify`."""
  return VerifierOf(inner, None, verify, None, inner.in_step)
