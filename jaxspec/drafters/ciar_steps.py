"""A drafter of denoising steps that takes certain steps locally: CIAR (arXiv 2603.25463) for DiT.

A state has no vocabulary, so there is no interval of probabilities. Instead, the edge network predicts the noise of a step
and a radius r of each component: an interval of width 2 r around the guided prediction. One round of a row:

1. The edge takes steps while U is at most the threshold, for ``max_run`` steps at most.
2. The first step with a larger U needs the cloud, which takes this one step from the newest state. So do the last
   ``target_suffix`` steps of a chain, without a pass of the edge.

There is no window. Token 0 is a step from standard normal noise, drawn by the side that takes the step. The paper does not
define U of a step, its threshold or the rule; they are choices of this project.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxspec.core import rng
from jaxspec.core.types import Array, Cursor, Draft, Drafter, FirstToken, Key, Verdict
from jaxspec.diffusion.chain import next_state, step_normals
from jaxspec.diffusion.ddpm import Prediction
from jaxspec.drafters.ciar_drafter import GatedParams, GatedReport
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.dit.denoising_network import DenoisingNetwork

# (prediction with leaves [B, C], weight [B] of its noise in the next state, keys [B], which are consumed) -> [B] float32, at
# least 0; larger is less certain
StepScoreFn = Callable[[Prediction, Array, Key], Array]


def interval_score(prediction: Prediction, weight: Array, keys: Key) -> Array:
  """``mean(2 r) std(2 r)`` over the components of a state; 0 for a network without radii."""
  del weight, keys
  if prediction.radius is None:
    return jnp.zeros(prediction.eps.shape[:-1], jnp.float32)
  width = 2.0 * prediction.radius
  return jnp.mean(width, axis=-1) * jnp.std(width, axis=-1)


def weighted_score(prediction: Prediction, weight: Array, keys: Key) -> Array:
  """`interval_score` with the radii ``weight r`` of the next state."""
  return weight**2 * interval_score(prediction, weight, keys)


def random_score(prediction: Prediction, weight: Array, keys: Key) -> Array:
  """A uniform number in [0, 1): with threshold t a share t of the steps is taken locally."""
  del prediction, weight
  return jax.vmap(jax.random.uniform)(keys)


SCORES: dict[str, StepScoreFn] = {"interval": interval_score, "weighted": weighted_score, "random": random_score}


class NewestState(NamedTuple):
  """`Draft.payload` of this drafter: the only input of the target."""

  state: Array  # [B, C] float32, after the local steps


class CiarStepsState(NamedTuple):
  """State without a cache."""

  condition: ClassLabels
  keys: Key  # [B], numbers of steps
  report: GatedReport


class _Run(NamedTuple):
  """Carry of a round; ``active`` rows go on."""

  step: Array  # []
  active: Array  # [B]
  needs_verify: Array  # [B]
  local: Array  # [B] int32
  calls: Array  # [B] int32
  newest: Array  # [B, C]
  tokens: Array  # [B, R, C]
  scores: Array  # [B, N]


@dataclasses.dataclass(frozen=True)
class CiarStepDrafter(Drafter):
  """Drafter that takes certain steps locally; its verifier is `jaxspec.verifiers.ciar_step_target`.

  Its parameters are `GatedParams` of a `jaxspec.models.dit.denoising_network.DenoisingSide` and of a threshold ``[]``.

  Attributes:
    network: the edge, with the cloud's states and steps.
    score_fn: uncertainty of a step.
    max_run: most steps taken locally in one round.
    target_suffix: last steps of a chain, which are never taken locally.
  Raises:
    ValueError: if ``max_run`` is not positive, or a chain has fewer steps than ``target_suffix``.
  """

  network: DenoisingNetwork
  score_fn: StepScoreFn
  max_run: int = 16
  target_suffix: int = 0

  def __post_init__(self):
    if self.max_run < 1:
      raise ValueError(f"Must have max_run of at least 1, we instead got {self.max_run}")
    if not 0 <= self.target_suffix <= (steps := self.network.num_steps):
      raise ValueError(f"Must have target_suffix from 0 to {steps}, we instead got {self.target_suffix}")

  @property
  def window(self) -> int:
    return self.max_run

  @property
  def calls_per_round(self) -> int:
    return self.max_run

  may_accept_locally = True
  has_cache = False

  @property
  def first_of_suffix(self) -> int:
    return self.network.num_steps - self.target_suffix

  def take(self, params: GatedParams, state: CiarStepsState, newest: Array, length: Array) -> tuple[Array, Array]:
    """The edge's step from the states ``newest [B, C]`` of rows with ``length [B]`` tokens, and its U ``[B]``."""
    index = self.network.numbers(length, 1)  # [B, 1]
    prediction = self.network.predictor(params.model, state.condition)(index, newest)
    own = jax.vmap(jax.random.fold_in)(state.keys, index[:, 0])
    score = self.score_fn(prediction, self.network.noise_weight(index)[:, 0], rng.score_keys(own, 0))
    noise = step_normals(state.keys, index, self.network.state_dim)[:, 0]
    distribution = self.network.distribution(index, newest, prediction)
    return next_state(distribution, index, noise, jnp.float32(1.0)), score

  def init(
    self, params: GatedParams, keys: Key, condition: ClassLabels, max_len: int, prefill: Verdict
  ) -> tuple[CiarStepsState, FirstToken]:
    rows = condition.batch_size
    zeros = jnp.zeros((rows,), jnp.int32)
    report = GatedReport(jnp.full((rows, max_len), jnp.nan, jnp.float32), zeros, ())
    state = CiarStepsState(condition, keys, report)
    noise = step_normals(keys, jnp.full((1, 1), self.network.num_steps), self.network.state_dim)[:, 0]
    own, score = self.take(params, state, noise, zeros)
    certain = (score <= params.gate) & (self.first_of_suffix > 0)
    decided = state._replace(report=report._replace(scores=report.scores.at[:, 0].set(score)))
    return state, FirstToken(jnp.where(certain[:, None], own, prefill.next_tokens[:, 0]), certain, decided)

  def read(self, params: GatedParams, state: CiarStepsState, cursor: Cursor) -> CiarStepsState:
    return state

  def draft(
    self, params: GatedParams, keys: Key, state: CiarStepsState, cursor: Cursor
  ) -> tuple[Draft, CiarStepsState, tuple]:
    del keys  # those of a round
    rows, dim = cursor.last.shape
    max_len, row = state.report.scores.shape[1], jnp.arange(rows)
    stop = min(max_len, self.first_of_suffix)
    active = cursor.live & (cursor.length < self.first_of_suffix)

    def step(carry: _Run) -> _Run:
      position = cursor.length + carry.step
      following, score = self.take(params, state, carry.newest, position)
      is_local = carry.active & (score <= params.gate)
      return _Run(
        step=carry.step + 1,
        active=is_local & (carry.local + 1 < self.max_run) & (position + 1 < stop),
        needs_verify=carry.needs_verify | (carry.active & ~is_local),
        local=carry.local + is_local,
        calls=carry.calls + carry.active,
        newest=jnp.where(is_local[:, None], following, carry.newest),
        tokens=carry.tokens.at[row, jnp.where(is_local, carry.step, self.max_run)].set(following, mode="drop"),
        scores=carry.scores.at[row, jnp.where(carry.active, position, max_len)].set(score, mode="drop"),
      )

    zeros = jnp.zeros((rows,), jnp.int32)
    tokens = jnp.zeros((rows, self.max_run, dim), cursor.last.dtype)
    start = _Run(jnp.int32(0), active, cursor.live & ~active, zeros, zeros, cursor.last, tokens, state.report.scores)
    end = jax.lax.while_loop(lambda carry: jnp.any(carry.active), step, start)
    found = Draft.chain(
      end.tokens,
      (),
      end.local,
      end.calls,
      num_local=end.local,
      needs_verify=end.needs_verify,
      payload=NewestState(end.newest),
    )
    return found, state._replace(report=state.report._replace(scores=end.scores)), ()

  def commit(
    self, params: GatedParams, state: CiarStepsState, cursor: Cursor, draft: Draft, trace: tuple, verdict: Verdict
  ) -> CiarStepsState:
    # One state is sent, because the cloud reads only the newest.
    sent = state.report.sent + (cursor.live & draft.needs_verify & (draft.tokens.shape[1] > 0))
    return state._replace(report=state.report._replace(sent=sent))

  def report(self, state: CiarStepsState) -> GatedReport:
    return state.report
