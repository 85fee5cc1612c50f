"""Drafts of denoising steps without a network: the target's last prediction is used again.

The target predicted the noise and the variance of the state before the newest one (`Verdict.feedback`). The drafted steps
take both as they are: between neighbouring steps of a long chain they change little. After the frozen draft of De Bortoli,
Galashov, Gretton and Doucet (2025, arXiv 2501.05370).
"""

from __future__ import annotations

import functools

import jax

from jaxspec.core.token_axes import token_at
from jaxspec.core.types import Array, Cursor, Draft, Drafter, Key, Verdict
from jaxspec.diffusion.ddpm import Prediction
from jaxspec.drafters.drafted_states import check_window, draft_states
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.dit.state_network import StateNetwork


@functools.cache
def frozen_steps(network: StateNetwork, *, window: int) -> Drafter:
  """Drafter of ``window`` states; its state is the target's prediction at the state before the newest one, ``[B, C]``.

  Args:
    network: the target; only its steps are read.
  Raises:
    ValueError: if ``window`` is not positive.
  """
  check_window(window)

  def at(verdict: Verdict, position: Array) -> Prediction:
    return jax.tree.map(lambda leaf: token_at(leaf, position), verdict.feedback)

  def init(params: tuple, keys: Key, condition: ClassLabels, max_len: int, prefill: Verdict) -> tuple[Prediction, None]:
    return at(prefill, prefill.num_accepted), None

  def read(params: tuple, state: Prediction, cursor: Cursor) -> Prediction:
    return state

  def draft(params: tuple, keys: Key, state: Prediction, cursor: Cursor) -> tuple[Draft, Prediction, tuple]:
    return draft_states(network, lambda index, x: state, keys, cursor, window), state, ()

  def commit(params: tuple, state: Prediction, cursor: Cursor, draft: Draft, trace: tuple, verdict: Verdict) -> Prediction:
    # The state that the target's own draw came from: after the accepted drafts.
    return at(verdict, verdict.num_accepted)

  return Drafter(init, read, draft, commit, window, calls_per_round=0)
