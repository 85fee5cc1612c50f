"""Parts of a method with imposed acceptance and calls."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np

from jaxspec.core.expected_calls import asking_for
from jaxspec.drafters.ciar_drafter import CiarDrafter
from jaxspec.intervals.imposed_gate import ImposedGate, ImposedGateParams
from jaxspec.methods.method import Parts
from jaxspec.verifiers.imposed import Imposed, ImposedVerifier


def impose(parts: Parts, imposed: Imposed, num_tokens: int | None) -> Parts:
  """The same parts with the given acceptance, and the given calls if there are any.

  Args:
    num_tokens: tokens of a row, for which calls are honoured.
  Raises:
    ValueError: for calls of a method that accepts nothing locally, or that cannot be reached.
  """
  target, (drafter, verifier) = parts.params.target, parts.pair()
  params = parts.params._replace(target=target._replace(rule=imposed.tables(target.rule)))
  by_row = bool(imposed.called_at)
  verifier = ImposedVerifier(verifier, lock_step=imposed.lock_step, sends_row=by_row)
  if not imposed.imposes_calls:
    return parts._replace(params=params, verifier=verifier)
  if not isinstance(drafter, CiarDrafter):
    raise ValueError(
      "Must have a method whose edge accepts single tokens (ciar) to impose its calls, we instead got another"
    )
  gate = ImposedGateParams(params.draft.gate, *_decisions(imposed, drafter, num_tokens, parts.target_prefix))
  params = params._replace(draft=params.draft._replace(gate=gate))
  drafter = dataclasses.replace(drafter, gate=ImposedGate(drafter.gate))
  return parts._replace(params=params, drafter=drafter, verifier=verifier)


def _decisions(imposed: Imposed, drafter: CiarDrafter, num_tokens: int | None, prefix: int):
  """``probability``, ``called_at`` and ``tokens`` of `ImposedGateParams`."""
  if imposed.calls is not None:
    if num_tokens is None:
      raise ValueError("Must have the number of tokens of a row to impose its calls, we instead got none")
    accepted = imposed.accepted_at_least(drafter.most_drafts)
    asks = asking_for(imposed.calls, accepted, num_tokens, prefix=prefix, early_close=drafter.early_close)
    return jnp.float32(asks), None, None
  called_at = np.zeros((len(imposed.called_at), max(imposed.tokens)), bool)
  for row, positions in zip(called_at, imposed.called_at):
    row[list(positions)] = True
  return None, jnp.asarray(called_at), jnp.asarray(imposed.tokens, jnp.int32)
