"""The target of states as a verifier of drafters that take steps by themselves (`jaxspec.drafters.ciar_steps`).

A row that asks brings the states that its draft side took since the last exchange. The target takes one step from the newest
of them. There is nothing else to read: the network has no cache.
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
  """Verifier that draws the state after the local ones; its random numbers are those of plain decoding.

  Attributes:
    network: the target.
    rule: draws where nothing was drafted.
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
    # A draw of the target's own has nothing to report, wherever in the round it stands.
    metrics = jax.tree.map(lambda leaf: jnp.pad(leaf, ((0, 0), (0, window))), verdict.metrics)
    return verdict._replace(num_accepted=local, metrics=metrics, feedback=()), state

  def init(self, params, keys, condition, max_len, window):
    verdict, state = self.plain.init(params, keys, condition, max_len, window)
    return verdict._replace(feedback=()), state
