"""The target network of denoising steps as a verifier: one pass over the newest and the drafted states, then an exact rule.

The pass predicts the step from each of these ``K + 1`` states (`jaxspec.models.dit.denoising_network`). `StepCoupling`
accepts the leading drafts and draws one more state. Rows may be at different steps. A round never drafts the last step of a
row (`jaxspec.core.rounds.draft_round`), because a step that ends in its mean cannot accept a draft.

The target's random numbers are addressed by step, not by round. Plain decoding therefore draws the states of
`jaxspec.diffusion.ddpm.sample` with `jaxspec.diffusion.chain.row_noise`.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxspec.core.types import Array, Cursor, Draft, Key, Verdict, Verifier
from jaxspec.diffusion.chain import step_normals
from jaxspec.diffusion.step_payloads import StepRule, target_steps
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.dit.denoising_network import DenoisingNetwork, DenoisingSide


class DenoisingTargetState(NamedTuple):
  """Constant inputs of every pass."""

  condition: ClassLabels
  keys: Key  # [B], numbers of steps


@dataclasses.dataclass(frozen=True)
class DenoisingVerifier(Verifier):
  """Verifier of drafted states; with `jaxspec.autoregress`, the target's own sampler.

  `Verdict.feedback` is the target's prediction at the newest state and at every drafted one, leaves ``[B, K + 1, C]``.

  Attributes:
    network: the target.
    rule: the acceptance rule.
  """

  network: DenoisingNetwork
  rule: StepRule

  @property
  def dim(self):
    return self.network.state_dim

  def init(
    self, params: DenoisingSide, keys: Key, condition: ClassLabels, max_len: int, window: int
  ) -> tuple[Verdict, DenoisingTargetState]:
    if max_len > self.network.num_steps:
      raise ValueError(f"Must have at most the {self.network.num_steps} states of a chain, we instead got {max_len}")
    noise = step_normals(keys, jnp.full((1, 1), self.network.num_steps), self.dim)[:, 0]
    state = DenoisingTargetState(condition, keys)
    nothing = jnp.zeros(noise.shape[:1], jnp.int32)
    return self.judge(params, keys, state, noise, nothing, Draft.empty(noise)), state

  def verify(
    self, params: DenoisingSide, keys: Key, state: DenoisingTargetState, cursor: Cursor, draft: Draft
  ) -> tuple[Verdict, DenoisingTargetState]:
    return self.judge(params, keys, state, cursor.last, cursor.length, draft), state

  def judge(
    self, params: DenoisingSide, keys: Key, state: DenoisingTargetState, newest: Array, length: Array, draft: Draft
  ) -> Verdict:
    """The verdict about drafts after ``newest [B, C]``, the state after ``length [B]`` tokens."""
    states = jnp.concatenate([newest[:, None], draft.tokens], axis=1).swapaxes(0, 1)  # [K + 1, B, C]
    numbers = self.network.numbers(length, states.shape[0])  # [B, K + 1]
    index = numbers.T[..., None]
    prediction = self.network.predictor(params, state.condition)(index, states)
    distributions = self.network.distribution(index, states, prediction)
    by_row = lambda tree: jax.tree.map(lambda leaf: leaf.swapaxes(0, 1), tree)
    own = step_normals(state.keys, numbers, self.dim)
    verdict = self.rule(keys, draft, target_steps(by_row(distributions), numbers, own, jnp.float32(1.0)))
    return verdict._replace(feedback=by_row(prediction))
