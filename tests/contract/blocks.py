"""A toy verifier that commits several target tokens in one round."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

import jaxspec
from jaxspec.core import rng
from jaxspec.core.constructors import verifier_of
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
    tokens, cache = [verdict.next_token], inner.cache
    for index in range(size - 1):
      positions = (inner.prefix_len + length + index)[:, None]
      output, cache = model.apply(params.model, tokens[-1][:, None], cache, positions=positions)
      tokens.append(sample(output.logits[:, 0], rng.uniform(keys, _MORE + index)))
    number = 1 + (cursor.length + 1) % size
    window = draft.tokens.shape[1]
    number = jnp.where((verdict.num_accepted < draft.num_drafted) | (window == 0), number, 1)
    number = jnp.minimum(number, state.max_len - length)  # a block ends where its row does
    verdict = verdict._replace(next_token=jnp.stack(tokens, axis=1), num_next=number)
    return verdict, BlockState(inner._replace(cache=cache), state.max_len)

  return verifier_of(init, verify)
