"""The lazy exchange: tokens and their counts first, the law of one place only where a draft was rejected.

The acceptance test reads ``qhat(x)`` alone; the whole law is needed for the residual of at most one place of a round. So
the verifying side tests, keeps the target's law of the place where the row ended, and asks. What it draws afterwards uses
the uniform that the eager exchange would have used, hence the same token.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from jaxspec import rng, trees
from jaxspec.codecs.sparse_law import SparseLaw, dense
from jaxspec.decode.loop import verify_step
from jaxspec.decode.state import CloudState, advance, ends_on_draft
from jaxspec.models.sampling import inverse_cdf, probabilities
from jaxspec.types import Array, Draft, PyTree, Verdict, Verifier
from jaxspec.verifiers.chain import lossless_weights, usable_weights


class Tested(NamedTuple):
  """What the verifying side knows before it has the laws it asked for."""

  verdict: Verdict  # `next_token` is not valid where `asks`
  asks: Array  # [B] bool
  p: Array  # [B, V] the target's law at the place where the row ended


def cloud_test(params: PyTree, cloud: CloudState, message: Draft, *, verifier: Verifier) -> tuple[CloudState, Tested]:
  """First half of `cloud_round`: which drafts are kept. The cursor does not move yet.

  Raises:
    ValueError: if the verifier does not give the target's laws as feedback.
  """
  verdict, state = verify_step(params, cloud.keys, cloud.verifier, cloud.cursor, message, verifier=verifier)
  if not isinstance(verdict.feedback, jnp.ndarray):
    raise ValueError("Must have a verifier with feedback_fn=target_laws for coding 'lazy', we instead got no laws")
  row = jnp.take_along_axis(verdict.feedback, verdict.num_accepted[:, None, None], axis=1)[:, 0]
  asks = trees.ended_by_rejection(message, verdict) & ~ends_on_draft(cloud.cursor, message, verdict)
  return cloud.replace(verifier=state), Tested(verdict._replace(feedback=()), asks, probabilities(row))


def cloud_finish(cloud: CloudState, message: Draft, tested: Tested, law: SparseLaw) -> tuple[CloudState, Verdict]:
  """Second half: the token that ends the round.

  Args:
    law: laws ``[B]`` of the rows that asked, anything in the others.
  """
  cursor, p = cloud.cursor, tested.p
  keys = rng.stream_keys(cloud.keys, rng.Stream.VERIFY, cursor.round)
  weights = usable_weights(lossless_weights(tested.verdict.next_token, p, dense(law, p.shape[-1])), p)
  drawn = inverse_cdf(weights, rng.final_uniform(keys))
  verdict = tested.verdict._replace(next_token=jnp.where(tested.asks, drawn, tested.verdict.next_token))
  return cloud.replace(cursor=advance(cursor, message, verdict, cloud.max_len)), verdict
