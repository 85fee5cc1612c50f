"""Imposed calls: the edge computes everything, but which tokens call the cloud is given.

With imposed acceptance (`jaxspec.verifiers.imposed`) this measures the speed of CIAR without trained weights.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp

from jaxspec.core import rng
from jaxspec.core.types import Array, PyTree
from jaxspec.intervals.gate import Gate, Place


class ImposedGateParams(NamedTuple):
  """Parameters of an `ImposedGate`; either ``probability`` or the last two are None."""

  inner: PyTree  # parameters of the replaced gate
  probability: Array | None  # [] float32, of asking for a token that the edge decides
  called_at: Array | None  # [M, N] bool, by position of recorded rows
  tokens: Array | None  # [M] int32, recorded positions of each row


class ImposedGateState(NamedTuple):
  """State of an `ImposedGate`."""

  inner: PyTree
  recorded: Array  # [B] int32, the recorded row that each row takes


@dataclasses.dataclass(frozen=True)
class ImposedGate:
  """A gate whose decisions are given: with a probability, or by position as in recorded rows, cyclically.

  A score that is not a number calls the cloud, as with other gates; so the score is computed.

  Attributes:
    inner: the replaced gate, which still keeps its state.
  """

  inner: Gate

  def init(self, params: ImposedGateParams, rows: int, feedback: PyTree) -> ImposedGateState:
    """See `Gate`; the feedback of an imposed verifier is the recorded row of every row."""
    recorded = jnp.zeros((rows,), jnp.int32) if params.called_at is None else feedback
    return ImposedGateState(self.inner.init(params.inner, rows, ()), recorded)

  def accept(self, params: ImposedGateParams, state: ImposedGateState, score: Array, place: Place) -> Array:
    """See `Gate`."""
    if params.called_at is not None and params.tokens is not None:
      calls = params.called_at[state.recorded, place.position % params.tokens[state.recorded]]
    else:
      assert params.probability is not None
      calls = rng.uniform(rng.imposed_keys(place.keys), place.offset) < params.probability
    return ~calls & (score == score)

  def update(self, params: ImposedGateParams, state: ImposedGateState, called: Array) -> ImposedGateState:
    """See `Gate`."""
    return state._replace(inner=self.inner.update(params.inner, state.inner, called))
