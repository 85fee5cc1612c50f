"""Base of acceptance rules for a chain: test each draft, accept the leading ones, draw one more token.

A rule is two functions of one position: the probability ``a(x)`` of accepting a draft x, and the weights of the token that
is emitted after a rejection. With drafts from q, the distribution of one emitted token is

  phat(y) = q(y) a(y) + sum_x q(x) (1 - a(x)) r_x(y),    r_x the normalised weights after x was rejected.

Such a rule has TV(phat, p) >= alpha - alpha_SD, with alpha = sum_x q(x) a(x) and alpha_SD = sum_x min(p(x), q(x)), because
phat >= q a everywhere. Each point of acceptance above the lossless rule therefore costs at least one point of bias. The
weights ``[p - q a]+`` attain the least possible bias for a given a, ``sum_y [q(y) a(y) - p(y)]+``. They equal ``[p - q]+``
up to a factor wherever a >= min(1, p/q).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import ClassVar, Self

import jax.numpy as jnp

from jaxspec.core import rng
from jaxspec.core.token_axes import at_position, num_leading
from jaxspec.core.types import Array, Draft, Key, PyTree, Verdict
from jaxspec.sampling import logit_processing
from jaxspec.sampling.residual import lossless_weights, usable_weights

ResidualFn = Callable[[Array, Array, Array], Array]  # (rejected token [B], p [B, V], q [B, V]) -> weights [B, V]
ProposalRowFn = Callable[[PyTree, Array], Array]  # (proposal, position [B]) -> probabilities [B, V]


def logits_row(proposal: PyTree, position: Array) -> Array:
  """Probabilities ``[B, V]`` at one position ``[B]`` of a proposal with logits ``[B, K, V]``."""
  return logit_processing.probabilities(at_position(proposal, position))


def commit_leading(
  keys: Key,
  draft: Draft,
  target: Array,
  *,
  accept_prob: Array,
  residual_fn: ResidualFn = lossless_weights,
  proposal_row_fn: ProposalRowFn = logits_row,
) -> Verdict:
  """Accepts the leading drafts that pass their test and draws the next token.

  Args:
    keys: ``[B]`` keys; consumed.
    draft: chain of ``K`` tokens with logits ``[B, K, V]`` as proposal, or a proposal for ``proposal_row_fn``.
    target: ``[B, K + 1, V]`` processed target logits.
    accept_prob: ``[B, K]`` probability of accepting each draft.
    residual_fn: ``(tokens [B], p [B, V], q [B, V]) -> [B, V]`` float32 weights of the token emitted after the
      rejection of ``tokens``; they need not add up to 1.
    proposal_row_fn: ``(proposal, position [B]) -> [B, V]`` probabilities.
  Returns:
    Verdict that adds one token to every row.
  """
  rows, window = draft.tokens.shape
  if window == 0:
    return Verdict.one(jnp.zeros((rows,), jnp.int32), logit_processing.sample(target[:, 0], rng.final_uniform(keys)))
  valid = jnp.arange(window)[None] < draft.num_drafted[:, None]
  accepted = (rng.uniforms(keys, window) < accept_prob) & valid
  num_accepted = num_leading(accepted)  # [B]
  rejected = num_accepted < draft.num_drafted

  # From here on only one row of each distribution is needed.
  position = jnp.minimum(num_accepted, window - 1)
  p = logit_processing.probabilities(at_position(target, num_accepted))  # [B, V]
  q = proposal_row_fn(draft.proposal, position)
  token = at_position(draft.tokens, position)
  weights = usable_weights(residual_fn(token, p, q), p)
  next_token = logit_processing.inverse_cdf(jnp.where(rejected[:, None], weights, p), rng.final_uniform(keys))
  return Verdict.one(num_accepted, next_token)


@dataclasses.dataclass(frozen=True)
class ChainRule:
  """An acceptance rule given by its acceptance probability and its residual; an `AcceptFn`.

  p (target) and q (draft) are probabilities after all logit processing. In the methods, leading axes ``...`` are free (rows,
  positions, cases): tokens ``[...]`` int32, p and q ``[..., V]`` float32. Rules hold static settings only; arrays come in
  ``tables``.

  Attributes:
    residual: weights after a rejection: ``paper`` as published, ``optimal`` for ``[p - q a]+``, the least possible bias with
      this acceptance.
  Raises:
    ValueError: for an unknown residual.
  """

  residual: str = dataclasses.field(default="paper", kw_only=True)

  RESIDUALS: ClassVar[tuple[str, ...]] = ("paper", "optimal")

  def __post_init__(self):
    if self.residual not in self.RESIDUALS:
      raise ValueError(f"Must have a residual in {', '.join(self.RESIDUALS)}, we instead got {self.residual!r}")

  @property
  def numbers(self) -> tuple[str, ...]:
    """Names of the fields that are arguments of programs (`jaxspec.rules.traced_numbers`), not static."""
    return ()

  def without_numbers(self) -> Self:
    """The rule with its `numbers` at fixed values, so that rules that differ only in them are equal."""
    return self

  @property
  def residual_reads_token(self) -> bool:
    """Whether `residual_weights` depends on the rejected token."""
    return False

  @property
  def never_below_lossless(self) -> bool:
    """Whether a >= min(1, p/q) for every token; then the optimal residual is ``[p - q]+`` and needs no `accept_all`."""
    return False

  def accept_prob(self, tables: PyTree, tokens: Array, p: Array, q: Array) -> Array:
    """Probability ``[...]`` of accepting each drafted token."""
    raise NotImplementedError

  def accept_all(self, tables: PyTree, p: Array, q: Array) -> Array:
    """Probability ``[..., V]`` of accepting each token of the vocabulary as a draft."""
    raise NotImplementedError

  def residual_weights(self, tables: PyTree, tokens: Array, p: Array, q: Array) -> Array:
    """Weights ``[..., V]`` of the token emitted after the rejection of ``tokens``."""
    if self.residual == "optimal" and not self.never_below_lossless:
      return jnp.maximum(p - q * self.accept_all(tables, p, q), 0.0)
    return lossless_weights(tokens, p, q)

  def __call__(self, tables: PyTree, keys: Key, draft: Draft, target: Array) -> Verdict:
    """Judges a chain; see `AcceptFn`."""
    if draft.tokens.shape[1] == 0:
      return commit_leading(keys, draft, target, accept_prob=jnp.zeros(draft.tokens.shape))
    p, q = logit_processing.probabilities(target[:, :-1]), logit_processing.probabilities(draft.proposal)
    return commit_leading(
      keys,
      draft,
      target,
      accept_prob=self.accept_prob(tables, draft.tokens, p, q),
      residual_fn=lambda token, p_row, q_row: self.residual_weights(tables, token, p_row, q_row),
    )


def ratio(p: Array, q: Array) -> Array:
  """min(1, p/q) elementwise. If q = 0, which is impossible for a draft in exact arithmetic, it is 1 for p > 0 and else 0."""
  quotient = p / jnp.where(q > 0, q, 1.0)
  return jnp.where(q > 0, jnp.minimum(quotient, 1.0), (p > 0).astype(p.dtype))
