"""No drafter: the loop is then plain autoregressive decoding."""

from __future__ import annotations

from jaxspec.core.types import Cursor, Draft, Drafter, Key, PyTree, Verdict
from jaxspec.core.verdicts import empty_draft


def _init(params: PyTree, keys: Key, condition: PyTree, max_len: int, prefill: Verdict) -> tuple[tuple, None]:
  return (), None


def _read(params: PyTree, state: tuple, cursor: Cursor) -> tuple:
  return ()


def _draft(params: PyTree, keys: Key, state: tuple, cursor: Cursor) -> tuple[Draft, tuple, tuple]:
  return empty_draft(cursor.last), (), ()


def _commit(params: PyTree, state: tuple, cursor: Cursor, draft: Draft, trace: tuple, verdict: Verdict) -> tuple:
  return ()


# Drafts nothing: with it the loop is plain autoregressive decoding.
NO_DRAFTER = Drafter(_init, _read, _draft, _commit, window=0, calls_per_round=0)
