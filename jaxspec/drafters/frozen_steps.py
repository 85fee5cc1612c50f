"""Drafts of denoising steps without a network: the target's last prediction is reused.

The target predicted the noise and the variance of the state before the newest one (`Verdict.feedback`). The drafted steps
reuse both, because they change little between neighbouring steps of a long chain. After the frozen draft of De Bortoli,
Galashov, Gretton and Doucet (2025, arXiv 2501.05370).
"""

from __future__ import annotations

import dataclasses

import jax

from jaxspec.core.token_axes import at_position
from jaxspec.core.types import Array, Cursor, Draft, Drafter, Key, Verdict
from jaxspec.diffusion.ddpm import Prediction
from jaxspec.drafters.drafted_steps import check_window, draft_steps
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.dit.denoising_network import DenoisingNetwork


@dataclasses.dataclass(frozen=True)
class FrozenStepDrafter(Drafter):
  """Drafter of ``window`` states; its state is the target's prediction at the state before the newest one, ``[B, C]``.

  Attributes:
    network: the target; only its steps are read.
  Raises:
    ValueError: if ``window`` is not positive.
  """

  network: DenoisingNetwork
  window: int

  def __post_init__(self):
    check_window(self.window)

  calls_per_round = 0

  def _prediction(self, verdict: Verdict, position: Array) -> Prediction:
    return jax.tree.map(lambda leaf: at_position(leaf, position), verdict.feedback)

  def init(
    self, params: tuple, keys: Key, condition: ClassLabels, max_len: int, prefill: Verdict
  ) -> tuple[Prediction, None]:
    return self._prediction(prefill, prefill.num_accepted), None

  def read(self, params: tuple, state: Prediction, cursor: Cursor) -> Prediction:
    return state

  def draft(self, params: tuple, keys: Key, state: Prediction, cursor: Cursor) -> tuple[Draft, Prediction, tuple]:
    return draft_steps(self.network, lambda index, x: state, keys, cursor, self.window, 0), state, ()

  def commit(
    self, params: tuple, state: Prediction, cursor: Cursor, draft: Draft, trace: tuple, verdict: Verdict
  ) -> Prediction:
    # The state before the target's own draw, after the accepted drafts.
    return self._prediction(verdict, verdict.num_accepted)
