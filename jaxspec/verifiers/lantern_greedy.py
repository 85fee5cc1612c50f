"""LANTERN at temperature 0 on chains (released code jadohu/LANTERN 3a56e45, greedy path).

The draft's entry of the target's row becomes its relaxed probability; the draft is kept where it then is the arg-max. After
a rejection, and behind the last draft, comes the arg-max of the row as it was.

At temperature 0 a processed law has all its mass on one token and nothing to borrow: give the target's side temperature 1
with this rule (`jaxspec.decode.assemble` does), and the drafting side temperature 0.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from jaxspec.models import sampling
from jaxspec.types import Array, Draft, Key, PyTree, Verdict
from jaxspec.verifiers.chain import commit_leading
from jaxspec.verifiers.lantern import Lantern


@dataclasses.dataclass(frozen=True)
class GreedyLantern:
  """`Lantern` without chance; an `AcceptFn` for chains. The output is not the target's greedy output."""

  rule: Lantern

  def __call__(self, tables: PyTree, keys: Key, draft: Draft, target: Array) -> Verdict:
    """Judges a chain by ``target [B, K + 1, V]`` at temperature 1; see `AcceptFn`."""
    kept = jnp.zeros(draft.tokens.shape)
    if draft.tokens.shape[1]:
      p = sampling.probabilities(target[:, :-1])
      kept = self.rule.accept_greedily(tables, draft.tokens, p).astype(jnp.float32)
    ids = jax.lax.broadcasted_iota(jnp.int32, target.shape, 2)
    greedy = jnp.where(ids == jnp.argmax(target, axis=-1, keepdims=True), 0.0, -jnp.inf)
    arg_max = lambda token, p, q: p
    return commit_leading(keys, draft, greedy, accept_prob=kept, residual_fn=arg_max)
