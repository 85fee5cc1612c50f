"""State of a decode between rounds, and its result."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, NamedTuple

import flax.struct
import jax.numpy as jnp

from jaxspec.core.short_repr import short_repr
from jaxspec.core.types import Array, Cursor, Draft, Drafter, Key, PyTree


class Origin(enum.IntEnum):
  """Origin of a committed token."""

  EMPTY = 0
  FIRST = 1  # drawn from the prefill
  DRAFT = 2  # drafted and accepted by the target
  REPLACED = 3  # drawn by the target after a rejection
  BONUS = 4  # drawn by the target after full acceptance; every token of plain decoding
  LOCAL = 5  # accepted locally by the draft side, never verified


class SpecParams(NamedTuple):
  """All traced parameters of the two sides; ``draft`` is ``()`` without a drafter."""

  __repr__ = short_repr

  draft: PyTree
  target: PyTree


@flax.struct.dataclass
class Counters:
  """Counts ``[B]`` int32 of every row; nothing is counted after a row is finished."""

  rounds: Array
  drafted: Array  # tokens proposed to the target (levels of a tree)
  accepted: Array  # proposed tokens that were accepted
  local: Array  # tokens accepted locally by the draft side
  target_calls: Array  # rounds with a token of the target, and the prefill if it drew token 0
  draft_calls: Array  # forward passes of the draft network, including its prefill


@flax.struct.dataclass
class DraftSide:
  """State of the draft side, which owns the result."""

  __repr__ = short_repr

  tokens: Array  # [B, N] int32, or [B, N, C] float; positions from ``cursor.length`` on are 0
  origin: Array  # [B, N] int8, an `Origin`
  commit_round: Array  # [B, N] int32, the round that committed each token; 0 is the prefill
  cursor: Cursor
  keys: Key  # [B]
  drafter: PyTree
  counters: Counters
  metrics: PyTree  # leaves [B, N], `Verdict.metrics` of each token


@flax.struct.dataclass
class TargetSide:
  """State of the target side on another machine, with its own cursor."""

  __repr__ = short_repr

  cursor: Cursor
  keys: Key  # [B]
  max_len: Array  # [] int32, or [B] with one per row
  verifier: PyTree


@flax.struct.dataclass
class DecodeState:
  """The carry of the fused loop: both sides, which share the draft side's cursor."""

  draft_side: DraftSide
  verifier: PyTree


class Waiting(NamedTuple):
  """The draft side while it waits for the verdict about its draft."""

  side: DraftSide
  draft: Draft
  trace: PyTree


class DecodeResult(NamedTuple):
  """Result of a decode. ``accepted_mask`` is True where a token was drafted and accepted by the target."""

  tokens: Array  # [B, N] int32, or [B, N, C] float; in generation order
  lengths: Array  # [B] int32
  counters: Counters
  accepted_mask: Array  # [B, N] bool
  origin: Array  # [B, N] int8
  commit_round: Array  # [B, N] int32
  metrics: PyTree = ()  # leaves [B, N], the rule's report about each token (`jaxspec.audited`), or ()
  report: PyTree = ()  # the drafter's counts (`Drafter.report`)

  def __repr__(self) -> str:
    shape = getattr(self.tokens, "shape", None)  # a tree of other leaves has none
    return f"<DecodeResult: tokens {None if shape is None else list(shape)}; {', '.join(self._fields)}>"


def result(side: DraftSide, drafter: Drafter) -> DecodeResult:
  """Result of a decode, from the draft side's final state."""
  return DecodeResult(
    side.tokens,
    side.cursor.length,
    side.counters,
    side.origin == Origin.DRAFT,
    side.origin,
    side.commit_round,
    side.metrics,
    drafter.report(side.drafter),
  )


def scheduled_result(
  tokens: Array, drawn_in: Array, num_passes: int, *, metrics: PyTree = (), report: PyTree = ()
) -> DecodeResult:
  """Result of whole rows whose target draws their tokens by a schedule, without drafts.

  Args:
    tokens: ``[B, N]`` or ``[B, N, C]``.
    drawn_in: ``[N]`` int32, the pass that draws each token; 0 is the prefill, which is one of ``num_passes``.
    metrics: leaves ``[B, N]``.
  """
  rows, length = tokens.shape[:2]
  none, calls = jnp.zeros((rows,), jnp.int32), jnp.full((rows,), num_passes, jnp.int32)
  commit_round = jnp.broadcast_to(drawn_in.astype(jnp.int32), (rows, length))
  return DecodeResult(
    tokens=tokens,
    lengths=jnp.full((rows,), length, jnp.int32),
    counters=Counters(calls, none, none, none, calls, none),
    accepted_mask=jnp.zeros((rows, length), bool),
    origin=jnp.where(commit_round == 0, int(Origin.FIRST), int(Origin.BONUS)).astype(jnp.int8),
    commit_round=commit_round,
    metrics=metrics,
    report=report,
  )


def summarize(counters: Counters) -> dict[str, Any]:
  """Totals over the batch as Python numbers, with the acceptance rate."""
  total = {field.name: int(jnp.sum(getattr(counters, field.name))) for field in dataclasses.fields(counters)}
  return {**total, "acceptance": total["accepted"] / total["drafted"] if total["drafted"] else None}
