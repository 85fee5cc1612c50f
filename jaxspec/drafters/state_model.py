"""A small network of the target's states that drafts denoising steps, one pass each."""

from __future__ import annotations

import functools

from jaxspec.core.types import Cursor, Draft, Drafter, Key, Verdict
from jaxspec.drafters.drafted_states import check_window, draft_states
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.dit.state_network import StateNetwork, StateSide


@functools.cache
def state_model(network: StateNetwork, *, window: int) -> Drafter:
  """Drafter of ``window`` states. It has no cache: its state is the condition.

  Args:
    network: the draft network, with the target's states and steps.
  Raises:
    ValueError: if ``window`` is not positive.
  """
  check_window(window)

  def init(params: StateSide, keys: Key, condition: ClassLabels, max_len: int, prefill: Verdict) -> tuple[ClassLabels, None]:
    return condition, None

  def read(params: StateSide, state: ClassLabels, cursor: Cursor) -> ClassLabels:
    return state

  def draft(params: StateSide, keys: Key, state: ClassLabels, cursor: Cursor) -> tuple[Draft, ClassLabels, tuple]:
    return draft_states(network, network.predictor(params, state), keys, cursor, window), state, ()

  def commit(
    params: StateSide, state: ClassLabels, cursor: Cursor, draft: Draft, trace: tuple, verdict: Verdict
  ) -> ClassLabels:
    return state

  return Drafter(init, read, draft, commit, window, calls_per_round=window, has_cache=False)
