"""Toy verifiers that commit several target tokens in one round, or none."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

import jaxspec
from jaxspec.core import rng
from jaxspec.core.constructors import verifier_of, with_verify
from jaxspec.core.types import ModelFns, Verifier
from jaxspec.sampling.logit_processing import sample
from jaxspec.verifiers.target import TargetState

_MORE = 1 << 18  # offsets of the draws of the tokens after the first


class BlockState(NamedTuple):
  target: TargetState
  max_len: jax.Array  # []


@functools.cache
def block_target(model: ModelFns, *, size: int) -> Verifier:
  """The lossless verifier; after a rejection, and without drafts, it draws up to ``size`` tokens.

  The number depends on the length. After full acceptance it adds one token: drafters whose cache lacks the last draft could
  not read more.
  """
  base = jaxspec.TargetVerifier(model, jaxspec.lossless, warp=jaxspec.Warp())

  def init(params, keys, condition, max_len, window):
    verdict, state = base.init(params, keys, condition, max_len, window + size)
    return verdict, BlockState(state, jnp.int32(max_len))

  def verify(params, keys, state, cursor, draft):
    verdict, inner = base.verify(params, keys, state.target, cursor, draft)
    length = cursor.length + verdict.num_accepted
    tokens, cache = [verdict.next_tokens[:, 0]], inner.cache
    for index in range(size - 1):
      positions = (inner.prefix_len + length + index)[:, None]
      output, cache = model.apply(params.model, tokens[-1][:, None], cache, positions=positions)
      tokens.append(sample(output.logits[:, 0], rng.uniform(keys, _MORE + index)))
    number = 1 + (cursor.length + 1) % size
    window = draft.tokens.shape[1]
    number = jnp.where((verdict.num_accepted < draft.num_drafted) | (window == 0), number, 1)
    number = jnp.minimum(number, state.max_len - length)  # a block ends where its row does
    verdict = verdict._replace(next_tokens=jnp.stack(tokens, axis=1), num_next=number)
    return verdict, BlockState(inner._replace(cache=cache), state.max_len)

  return verifier_of(init, verify)


@functools.cache
def pausing(inner: Verifier) -> Verifier:
  """The verifier; of drafts in odd rounds it accepts none, and it adds nothing."""

  def verify(params, keys, state, cursor, draft):
    verdict, state = inner.verify(params, keys, state, cursor, draft)
    pauses = (cursor.round % 2 == 1) & (draft.tokens.shape[1] > 0)
    nothing = lambda count: jnp.where(pauses, 0, count)
    return verdict._replace(num_accepted=nothing(verdict.num_accepted), num_next=nothing(verdict.num_next)), state

  return with_verify(inner, verify)


@functools.cache
def without_bonus(inner: Verifier) -> Verifier:
  """The verifier; after full acceptance it adds nothing, so that a round commits its drafts only."""

  def verify(params, keys, state, cursor, draft):
    verdict, state = inner.verify(params, keys, state, cursor, draft)
    is_full = (verdict.num_accepted == draft.num_drafted) & (draft.num_drafted > draft.num_local)
    return verdict._replace(num_next=jnp.where(is_full, 0, verdict.num_next)), state

  return with_verify(inner, verify)
