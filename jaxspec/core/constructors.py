"""Small constructors: drafters and verifiers of functions, and others with some functions replaced."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from jaxspec.core.types import Cursor, Draft, Drafter, FirstToken, Key, Params, PyTree, Verdict, Verifier


@dataclasses.dataclass(frozen=True)
class DrafterOf(Drafter):
  """A drafter of functions, each in the place of a method of `Drafter`; None leaves the method of ``inner``."""

  inner: Drafter
  window: int
  calls_per_round: int
  init_fn: Callable[..., tuple[PyTree, FirstToken | None]] | None = None
  read_fn: Callable[..., PyTree] | None = None
  draft_fn: Callable[..., tuple[Draft, PyTree, PyTree]] | None = None
  commit_fn: Callable[..., PyTree] | None = None
  report_fn: Callable[[PyTree], PyTree] | None = None
  at_fn: Callable[[int, int], Drafter] | None = None
  may_accept_locally: bool = False
  has_cache: bool = True

  def init(self, *args: Any, **kwargs: Any) -> tuple[PyTree, FirstToken | None]:
    return (self.init_fn or self.inner.init)(*args, **kwargs)

  def read(self, params: Params, state: PyTree, cursor: Cursor) -> PyTree:
    return (self.read_fn or self.inner.read)(params, state, cursor)

  def draft(self, params: Params, keys: Key, state: PyTree, cursor: Cursor) -> tuple[Draft, PyTree, PyTree]:
    return (self.draft_fn or self.inner.draft)(params, keys, state, cursor)

  def commit(self, *args: Any) -> PyTree:
    return (self.commit_fn or self.inner.commit)(*args)

  def report(self, state: PyTree) -> PyTree:
    return (self.report_fn or self.inner.report)(state)

  def at(self, length: int, max_len: int) -> Drafter:
    if self.at_fn is not None:
      return self.at_fn(length, max_len)
    there = self.inner.at(length, max_len)
    return self if there is self.inner else there


@dataclasses.dataclass(frozen=True)
class VerifierOf(Verifier):
  """A verifier of functions, each in the place of a method of `Verifier`; None leaves the method of ``inner``."""

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


def drafter_of(
  draft: Callable[[Params, Key, PyTree, Cursor], tuple[Draft, PyTree, PyTree]], *, window: int, calls_per_round: int = 0,
  init: Callable[..., tuple[PyTree, FirstToken | None]] | None = None, read: Callable[..., PyTree] | None = None,
  commit: Callable[..., PyTree] | None = None, report: Callable[[PyTree], PyTree] | None = None,
  at: Callable[[int, int], Drafter] | None = None, may_accept_locally: bool = False, has_cache: bool = True,
) -> Drafter:  # fmt: skip
  """A drafter of functions: without state, unless ``init`` and ``commit`` are given. Arguments are methods of `Drafter`.

  Two are equal where their functions are, so make one outside of the code that compiles.
  """
  return DrafterOf(
    Drafter(), window, calls_per_round, init, read, draft, commit, report, at, may_accept_locally, has_cache
  )  # fmt: skip


def verifier_of(
  init: Callable[..., tuple[Verdict, PyTree]],
  verify: Callable[..., tuple[Verdict, PyTree]],
  at: Callable[[int, int], Verifier] | None = None,
) -> Verifier:
  """A verifier of functions. Arguments are methods of `Verifier`; one with ``at`` keeps its rows at one length."""
  return VerifierOf(Verifier(), init, verify, at, at is not None)


def with_draft(inner: Drafter, draft: Callable[..., tuple[Draft, PyTree, PyTree]]) -> Drafter:
  """The same drafter, which drafts by another function."""
  about = inner.may_accept_locally, inner.has_cache
  return DrafterOf(inner, inner.window, inner.calls_per_round, None, None, draft, None, None, None, *about)


def with_verify(inner: Verifier, verify: Callable[..., tuple[Verdict, PyTree]]) -> Verifier:
  """The same verifier, which judges by another function."""
  return VerifierOf(inner, None, verify, None, inner.in_step)
