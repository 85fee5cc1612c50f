"""When the device decides alone: a threshold on an uncertainty score, fixed or moved online.

A gate is a family of pure functions with a state per row, so that a drafter can roll it back by picking an earlier state.
`ConformalGate` holds the long-run share of tokens that ask the cloud at a requested rate: with z = log score, a token is
kept where ``-z >= beta``, and the controller of C-SQS (`jaxspec.codecs.conformal`) moves beta by the error "asked", 0 or 1,
once for every committed token. On every path

  mean(asked) = rate + (beta_1 - beta_T) / (eta T),

so a threshold that stays bounded holds the rate. It does where the rate can be reached: tokens of a window do not ask, so
an exchange that commits A drafts and one more token puts rates above 1 / (A + 1) out of reach, and beta then grows without
limit. Tokens of a prefix are not the gate's and do not move it.
"""

from __future__ import annotations

import dataclasses
from typing import Protocol

import jax.numpy as jnp

from jaxspec.codecs.conformal import ConformalParams, Threshold, moved
from jaxspec.types import Array, PyTree

_TINY = 1e-30


class Gate(Protocol):
  """A policy; ``params`` are traced, states have leaves ``[B]``."""

  def init(self, params: PyTree, rows: int) -> PyTree:
    """State before token 0."""
    ...

  def accept(self, params: PyTree, state: PyTree, score: Array) -> Array:
    """``[B]`` bool: the token is kept without asking."""
    ...

  def update(self, params: PyTree, state: PyTree, asked: Array) -> PyTree:
    """State after one committed token; ``asked [B]`` bool says whether it was the one that called the cloud."""
    ...


@dataclasses.dataclass(frozen=True)
class ConstantGate:
  """Keeps a token iff its score is at most tau; ``params`` is tau, ``[]`` or ``[B]`` float32 (any sign, infinities too)."""

  def init(self, params: Array, rows: int) -> tuple:
    """See `Gate`."""
    return ()

  def accept(self, params: Array, state: tuple, score: Array) -> Array:
    """See `Gate`."""
    return score <= params

  def update(self, params: Array, state: tuple, asked: Array) -> tuple:
    """See `Gate`."""
    return ()


@dataclasses.dataclass(frozen=True)
class ConformalGate:
  """Keeps a token iff its score is at most ``exp(-beta)``; ``params`` are `ConformalParams` (see `rate_params`)."""

  def init(self, params: ConformalParams, rows: int) -> Threshold:
    """See `Gate`."""
    first = jnp.broadcast_to(params.first, (rows,))
    return Threshold(first, jnp.zeros_like(first))

  def accept(self, params: ConformalParams, state: Threshold, score: Array) -> Array:
    """See `Gate`."""
    return -jnp.log(jnp.maximum(score, _TINY)) >= state.value

  def update(self, params: ConformalParams, state: Threshold, asked: Array) -> Threshold:
    """See `Gate`."""
    return moved(params, state, asked.astype(jnp.float32))


def rate_params(tau: float, rate: float, *, eta: float = 0.05) -> ConformalParams:
  """Settings of a `ConformalGate` that starts at threshold ``tau`` and holds ``rate`` exchanges per token that it judges.

  Raises:
    ValueError: for a threshold or step that is not positive, or a rate outside of [0, 1].
  """
  if not (tau > 0 and eta > 0):
    raise ValueError(f"Must have tau and eta above 0, we instead got {tau} and {eta}")
  if not 0 <= rate <= 1:
    raise ValueError(f"Must have a rate from 0 to 1, we instead got {rate}")
  return ConformalParams(-jnp.log(jnp.float32(tau)), jnp.float32(eta), jnp.float32(rate))


constant_gate = ConstantGate()
conformal_gate = ConformalGate()
