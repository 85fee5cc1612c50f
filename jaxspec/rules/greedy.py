"""Accepts a chain by the target's most probable tokens. The rule reads no proposal, so a link carries tokens only."""

from __future__ import annotations

import jax.numpy as jnp

from jaxspec.core import rng
from jaxspec.core.types import Array, Draft, Key, PyTree, Verdict
from jaxspec.sampling.logit_processing import sample


def greedy(tables: PyTree, keys: Key, draft: Draft, target: Array) -> Verdict:
  """Accepts a draft iff it is the target's arg-max; see `jaxspec.core.types.AcceptFn`.

  A rejected draft is replaced by the arg-max. Without a rejection (a bonus token, or a round without drafts) the target
  samples as in plain decoding. The rule is lossy, except at temperature 0.
  """
  window = draft.tokens.shape[1]
  best = jnp.argmax(target, axis=-1).astype(jnp.int32)  # [B, K + 1]
  valid = jnp.arange(window)[None] < draft.num_drafted[:, None]
  accepted = (draft.tokens == best[:, :window]) & valid
  num_accepted = jnp.sum(jnp.cumprod(accepted.astype(jnp.int32), axis=1), axis=1)
  row = jnp.take_along_axis(target, num_accepted[:, None, None], axis=1)[:, 0]
  drawn = sample(row, rng.final_uniform(keys))
  rejected = num_accepted < draft.num_drafted
  replacement = jnp.take_along_axis(best, num_accepted[:, None], axis=1)[:, 0]
  return Verdict.one(num_accepted, jnp.where(rejected, replacement, drawn))
