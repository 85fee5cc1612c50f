"""LANTERN at temperature 0 on chains (released code jadohu/LANTERN 3a56e45, greedy path).

The draft's entry in the target's probabilities is raised to its relaxed probability. The draft is accepted if it then is the
arg-max. After a rejection, and after the last draft, the next token is the arg-max of the unchanged probabilities.

At temperature 0 a processed distribution has all its mass on one token, so its neighbours have no mass to borrow. With this
rule the target side must have temperature 1 and the draft side temperature 0 (`jaxspec.methods.Lantern` sets both).
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from jaxspec.core.types import Array, Draft, Key, PyTree, Verdict
from jaxspec.rules.chain_rule import commit_leading
from jaxspec.rules.lantern_rule import LanternRule
from jaxspec.sampling import logit_processing


@dataclasses.dataclass(frozen=True)
class GreedyLanternRule:
  """`LanternRule` without randomness; an `AcceptFn` for chains. The output differs from the target's greedy output."""

  rule: LanternRule

  def __call__(self, tables: PyTree, keys: Key, draft: Draft, target: Array) -> Verdict:
    """Judges a chain by ``target [B, K + 1, V]`` at temperature 1; see `AcceptFn`."""
    accepted = jnp.zeros(draft.tokens.shape)
    if draft.tokens.shape[1]:
      p = logit_processing.probabilities(target[:, :-1])
      accepted = self.rule.accept_greedily(tables, draft.tokens, p).astype(jnp.float32)
    ids = jax.lax.broadcasted_iota(jnp.int32, target.shape, 2)
    greedy = jnp.where(ids == jnp.argmax(target, axis=-1, keepdims=True), 0.0, -jnp.inf)
    arg_max = lambda token, p, q: p
    return commit_leading(keys, draft, greedy, accept_prob=accepted, residual_fn=arg_max)
