"""No drafter: the loop is then plain autoregressive decoding."""

from __future__ import annotations

import jax.numpy as jnp

from jaxspec.types import Cursor, Draft, Drafter, Key, PyTree, Verdict


def _init(params: PyTree, condition: PyTree, max_len: int, prefill: Verdict) -> tuple:
  return ()


def _propose(params: PyTree, keys: Key, state: tuple, cursor: Cursor) -> tuple[Draft, tuple]:
  rows = cursor.last.shape[0]
  zeros = jnp.zeros((rows,), jnp.int32)
  return Draft(jnp.zeros((rows, 0), jnp.int32), (), zeros, zeros, jnp.ones((rows,), bool)), ()


def _commit(params: PyTree, state: tuple, cursor: Cursor, draft: Draft, verdict: Verdict) -> tuple:
  return ()


# Proposes nothing: with it the loop is plain autoregressive decoding.
NO_DRAFTER = Drafter(_init, _propose, _commit, window=0, calls_per_round=0)
