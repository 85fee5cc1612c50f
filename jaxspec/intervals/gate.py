"""A gate decides whether the edge accepts a token locally: a threshold on an uncertainty score, fixed or moved online.

A gate is a set of pure functions with a state per row, so that a drafter rolls it back by selecting an earlier state.

`ConformalGate` controls the rate of cloud calls per token. A token is accepted locally where ``-log(score) >= beta``. The
controller of C-SQS (`jaxspec.codecs.conformal`) moves beta once for every committed token. Its error ``called`` is 1 for the
token that called the cloud and else 0. On every path

  mean(called) = rate + (beta_1 - beta_T) / (eta T),

so the rate is met if the threshold stays bounded. Only the first token of a window calls the cloud, so an exchange that
commits A drafts and one more token allows no rate above 1 / (A + 1). For a higher rate beta grows without limit. The tokens
of the ``target_prefix`` do not update the gate.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple, Protocol

import jax.numpy as jnp

from jaxspec.codecs.conformal import ConformalParams, Threshold, moved
from jaxspec.core.types import Array, Key, PyTree

_TINY = 1e-30


class Place(NamedTuple):
  """A token of every row, for gates that do not decide by the score alone."""

  keys: Key  # [B] of the round
  offset: Array  # [] or [B] int32, of the token in its round
  position: Array  # [B] int32, of the token in its row


class Gate(Protocol):
  """A threshold policy; ``params`` are traced, states have leaves ``[B]``."""

  def init(self, params: PyTree, rows: int, feedback: PyTree) -> PyTree:
    """State before token 0; ``feedback`` is that of the target's prefill (`jaxspec.core.types.Verdict`)."""
    ...

  def accept(self, params: PyTree, state: PyTree, score: Array, place: Place) -> Array:
    """``[B]`` bool: the token is accepted locally; ``score [B]`` float32."""
    ...

  def update(self, params: PyTree, state: PyTree, called: Array) -> PyTree:
    """State after one committed token; ``called [B]`` bool says whether this token called the cloud."""
    ...


@dataclasses.dataclass(frozen=True)
class ConstantGate:
  """Accepts a token locally iff its score is at most tau; ``params`` is tau, ``[]`` or ``[B]`` float32, infinities too."""

  def init(self, params: Array, rows: int, feedback: PyTree) -> tuple:
    """See `Gate`."""
    return ()

  def accept(self, params: Array, state: tuple, score: Array, place: Place) -> Array:
    """See `Gate`."""
    return score <= params

  def update(self, params: Array, state: tuple, called: Array) -> tuple:
    """See `Gate`."""
    return ()


@dataclasses.dataclass(frozen=True)
class ConformalGate:
  """Accepts a token locally iff its score is at most ``exp(-beta)``; ``params`` are `ConformalParams` (`rate_params`)."""

  def init(self, params: ConformalParams, rows: int, feedback: PyTree) -> Threshold:
    """See `Gate`."""
    first = jnp.broadcast_to(params.first, (rows,))
    return Threshold(first, jnp.zeros_like(first))

  def accept(self, params: ConformalParams, state: Threshold, score: Array, place: Place) -> Array:
    """See `Gate`."""
    return -jnp.log(jnp.maximum(score, _TINY)) >= state.value

  def update(self, params: ConformalParams, state: Threshold, called: Array) -> Threshold:
    """See `Gate`."""
    return moved(params, state, called.astype(jnp.float32))


def rate_params(tau: float, rate: float, *, eta: float = 0.05) -> ConformalParams:
  """Settings of a `ConformalGate`.

  Args:
    tau: threshold on the score at the start.
    rate: cloud calls per token after the ``target_prefix``, in [0, 1].
    eta: step size.
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
