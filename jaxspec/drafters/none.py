"""No drafter: the loop is then plain autoregressive decoding. Drafters that pause hand out the same empty draft."""

from __future__ import annotations

import jax.numpy as jnp

from jaxspec.types import Array, Cursor, Draft, Drafter, Key, PyTree, Verdict


def empty_draft(last: Array) -> Draft:
  """A draft of no tokens (``K = 0``) of the kind of ``last [B]`` or ``[B, C]``, to be verified all the same."""
  rows = last.shape[0]
  zeros = jnp.zeros((rows,), jnp.int32)
  return Draft(jnp.zeros((rows, 0, *last.shape[1:]), last.dtype), (), zeros, zeros, jnp.ones((rows,), bool))


def _init(params: PyTree, condition: PyTree, max_len: int, prefill: Verdict) -> tuple:
  return ()


def _propose(params: PyTree, keys: Key, state: tuple, cursor: Cursor) -> tuple[Draft, tuple]:
  return empty_draft(cursor.last), ()


def _commit(params: PyTree, state: tuple, cursor: Cursor, draft: Draft, verdict: Verdict) -> tuple:
  return ()


# Proposes nothing: with it the loop is plain autoregressive decoding.
NO_DRAFTER = Drafter(_init, _propose, _commit, window=0, calls_per_round=0)
