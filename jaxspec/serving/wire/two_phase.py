"""The exchange of coding ``lazy``: tokens and counts first, a whole distribution only where a draft was rejected.

The acceptance test reads ``qhat(x)`` alone. The residual needs the whole distribution, at no more than one position of a
round. So the target side tests the drafts, stores its own distribution at the position where the row ended, and requests the
draft's. It then draws with the same uniform number as in one exchange, hence the same token.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp

from jaxspec.codecs.sparse_distribution import SparseDistribution, dense
from jaxspec.core import commits, rng, trees
from jaxspec.core.rounds import verify_step
from jaxspec.core.state import TargetSide
from jaxspec.core.token_axes import at_position
from jaxspec.core.types import Array, Draft, PyTree, Verdict, Verifier
from jaxspec.sampling.logit_processing import inverse_cdf, probabilities
from jaxspec.sampling.residual import lossless_weights, usable_weights


class Tested(NamedTuple):
  """The result of the tests, before the requested distributions have arrived."""

  verdict: Verdict  # its own token is not valid where `requests`
  requests: Array  # [B] bool, the row needs the distribution of the rejected draft
  p: Array  # [B, V] the target's distribution at the position where the row ended


def judge_round(params: PyTree, target: TargetSide, draft: Draft, *, verifier: Verifier) -> tuple[TargetSide, Tested]:
  """First half of `verify_round`: which drafts are accepted. The cursor does not move yet.

  Raises:
    ValueError: if the verifier does not return the target's logits as feedback.
  """
  verdict, state = verify_step(params, target.keys, target.verifier, target.cursor, draft, verifier=verifier)
  if not isinstance(verdict.feedback, jnp.ndarray):
    raise ValueError("Must have a verifier with feedback_fn=target_logits for coding 'lazy', we instead got no feedback")
  row = at_position(verdict.feedback, verdict.num_accepted)
  requests = trees.ended_by_rejection(draft, verdict) & ~commits.drafted_next(target.cursor, draft, verdict)[:, 0]
  tested = Tested(verdict._replace(feedback=()), requests & target.cursor.live, probabilities(row))
  return dataclasses.replace(target, verifier=state), tested


def finish_round(
  target: TargetSide, draft: Draft, tested: Tested, distribution: SparseDistribution
) -> tuple[TargetSide, Verdict]:
  """Second half: draws the token that ends the round, and moves the cursor.

  Args:
    distribution: distributions ``[B]`` of the rows that need verification, anything in the others.
  """
  cursor, p = target.cursor, tested.p
  keys = rng.stream_keys(target.keys, rng.Stream.VERIFY, cursor.round)
  rejected = tested.verdict.next_tokens
  weights = usable_weights(lossless_weights(rejected[:, 0], p, dense(distribution, p.shape[-1])), p)
  drawn = inverse_cdf(weights, rng.final_uniform(keys))
  verdict = tested.verdict._replace(next_tokens=jnp.where(tested.requests[:, None], drawn[:, None], rejected))
  return dataclasses.replace(target, cursor=commits.advance(cursor, draft, verdict, target.max_len)), verdict
