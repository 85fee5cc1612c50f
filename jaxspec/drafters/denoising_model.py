"""A small network that drafts denoising steps, one pass each."""

from __future__ import annotations

import dataclasses

from jaxspec.core.types import Cursor, Draft, Drafter, Key, Verdict
from jaxspec.drafters.drafted_steps import check_window, draft_steps
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.dit.denoising_network import DenoisingNetwork, DenoisingSide


@dataclasses.dataclass(frozen=True)
class DenoisingModelDrafter(Drafter):
  """Drafter of ``window`` states. It has no cache: its state is the condition.

  Attributes:
    network: the draft network, with the target's states and steps.
  Raises:
    ValueError: if ``window`` is not positive.
  """

  network: DenoisingNetwork
  window: int

  def __post_init__(self):
    check_window(self.window)

  @property
  def calls_per_round(self) -> int:
    return self.window

  has_cache = False

  def init(
    self, params: DenoisingSide, keys: Key, condition: ClassLabels, max_len: int, prefill: Verdict
  ) -> tuple[ClassLabels, None]:
    return condition, None

  def read(self, params: DenoisingSide, state: ClassLabels, cursor: Cursor) -> ClassLabels:
    return state

  def draft(self, params: DenoisingSide, keys: Key, state: ClassLabels, cursor: Cursor) -> tuple[Draft, ClassLabels, tuple]:
    predict = self.network.predictor(params, state)
    return draft_steps(self.network, predict, keys, cursor, self.window, self.calls_per_round), state, ()

  def commit(
    self, params: DenoisingSide, state: ClassLabels, cursor: Cursor, draft: Draft, trace: tuple, verdict: Verdict
  ) -> ClassLabels:
    return state
