"""Accepts a chain by the target's most probable tokens. The rule reads no proposal, so a link carries tokens only."""

from __future__ import annotations

import jax.numpy as jnp

from jaxspec.core import rng
from jaxspec.core.token_axes import at_position, num_leading
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
  num_accepted = num_leading(accepted)
  row = at_position(target, num_accepted)
  drawn = sample(row, rng.final_uniform(keys))
  rejected = num_accepted < draft.num_drafted
  replacement = at_position(best, num_accepted)
  return Verdict.one(num_accepted, jnp.where(rejected, replacement, drawn))
