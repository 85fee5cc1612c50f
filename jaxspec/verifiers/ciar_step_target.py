"""The target of denoising steps as a verifier of drafters with local steps (`jaxspec.drafters.ciar_steps`).

A row that needs verification sends its newest state, and the target takes one step from it. The network has no cache, so the
target reads nothing else.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from jaxspec.core.types import Cursor, Draft, Key, Verdict, Verifier
from jaxspec.diffusion.step_payloads import StepRule
from jaxspec.models.dit.denoising_network import DenoisingNetwork, DenoisingSide
from jaxspec.verifiers.denoising_target import DenoisingTargetState, DenoisingVerifier


@dataclasses.dataclass(frozen=True)
class CiarStepVerifier(Verifier):
  """Verifier that draws the state after the local steps, with the random numbers of plain decoding.

  Attributes:
    network: the target.
    rule: draws the state without a draft.
  """

  network: DenoisingNetwork
  rule: StepRule

  @property
  def plain(self):
    return DenoisingVerifier(self.network, self.rule)

  def verify(
    self, params: DenoisingSide, keys: Key, state: DenoisingTargetState, cursor: Cursor, draft: Draft
  ) -> tuple[Verdict, DenoisingTargetState]:
    local, window = draft.num_local, draft.tokens.shape[1]
    newest = draft.payload.state if window else cursor.last
    moved = cursor._replace(last=newest, length=cursor.length + local)
    verdict, state = self.plain.verify(params, keys, state, moved, Draft.empty(newest))
    # The target's own draw has no report at any position of the round.
    metrics = jax.tree.map(lambda leaf: jnp.pad(leaf, ((0, 0), (0, window))), verdict.metrics)
    return verdict._replace(num_accepted=local, metrics=metrics, feedback=()), state

  def init(self, params, keys, condition, max_len, window):
    verdict, state = self.plain.init(params, keys, condition, max_len, window)
    return verdict._replace(feedback=()), state
