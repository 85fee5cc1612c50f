"""An estimate of an acceptance rule's bias from the drafted tokens alone, without enumeration of the vocabulary.

For x ~ q the mean of ``[q(x) a(x) - p(x)]+ / q(x)`` is ``sum_y [q a - p]+``, the total variation of that position under
the optimal residual (and under ``[p - q]+`` whenever a >= min(1, p/q)). Averaged over accepted *and* rejected drafts it is
unbiased. Bonus tokens are drawn from p and add 0. The expected sum over all committed positions bounds the total variation
of the sequence. Above 1 the bound is empty, but it still ranks settings.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from jaxspec.core.short_repr import short_repr
from jaxspec.core.types import Array, Draft, PyTree, Verdict
from jaxspec.rules.chain_rule import ChainRule
from jaxspec.sampling import logit_processing
from jaxspec.sampling.residual import at


class Diagnostics(NamedTuple):
  """Per position of one round; only positions with ``tested`` were judged."""

  __repr__ = short_repr

  tested: Array  # [B, K] bool: accepted drafts and the first rejected one
  accept: Array  # [B, K] a(x) of the drafted token
  alpha_sd: Array  # [B, K] sum min(p, q), acceptance of the lossless rule there
  excess: Array  # [B, K] unbiased estimate of sum [q a - p]+ there; 0 where not tested


def diagnose(rule: ChainRule, tables: PyTree, draft: Draft, target: Array, verdict: Verdict) -> Diagnostics:
  """Diagnostics of a chain; sum `Diagnostics.excess` over rounds, divide by the committed tokens.

  Args:
    rule: the acceptance rule that gave the verdict; ``tables`` are the arrays that it read.
    draft: chain of ``K`` tokens with processed logits ``[B, K, V]`` as proposal.
    target: ``[B, K + 1, V]`` processed target logits.
    verdict: the rule's verdict.
  """
  p, q = logit_processing.probabilities(target[:, :-1]), logit_processing.probabilities(draft.proposal)
  accept = rule.accept_prob(tables, draft.tokens, p, q)
  position = jnp.arange(draft.tokens.shape[1])[None]
  tested = (position <= verdict.num_accepted[:, None]) & (position < draft.num_drafted[:, None])
  p_x, q_x = at(p, draft.tokens), at(q, draft.tokens)
  excess = jnp.maximum(accept - p_x / jnp.where(q_x > 0, q_x, 1.0), 0.0)
  return Diagnostics(tested, accept, jnp.sum(jnp.minimum(p, q), axis=-1), jnp.where(tested & (q_x > 0), excess, 0.0))
