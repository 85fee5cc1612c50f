"""The exact bias of every token that a decode commits, measured during the decode.

`audited` wraps an acceptance rule. The verdicts stay the same. They also carry figures of the exact distribution of each
committed token under the rule (`TokenAudit`, in `DecodeResult.metrics`). The rule is enumerated over the vocabulary with the
p and q of the position, so only the visited positions are random: a figure has no sampling error.

The distribution of a token is conditioned on all inputs of the rule's test: the prefix, the drafts accepted before it in the
round, and the proposal q of its draft. In a Jacobi window q is the window's row, which is the target's distribution after an
older guess of the prefix. A token without a draft (token 0, or the bonus token after a fully accepted draft) is drawn from p
and counts with a distance of 0. Total variation is convex. The total variation given the prefix alone is therefore at most
the mean over all q. That of a whole image is at most the sum over tokens.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxspec.core import trees
from jaxspec.core.short_repr import short_repr
from jaxspec.core.types import AcceptFn, Array, Draft, Key, PyTree, Verdict
from jaxspec.rules.block_rule import BlockRule
from jaxspec.rules.chain_rule import ChainRule
from jaxspec.rules.exact_distribution import (
  PositionDistribution,
  exact_block_distribution,
  exact_distribution,
  exact_tree_distribution,
)
from jaxspec.rules.tree_rule import TreeRule
from jaxspec.sampling import logit_processing


class TokenAudit(NamedTuple):
  """Distance of a committed token's distribution from the target's; leaves ``[B, N]``, or ``[B, K + 1]`` of one round.

  All fields but ``tested`` are 0 where ``tested`` is False; a method without drafts (`undrafted`) has distances there too.
  """

  __repr__ = short_repr

  tested: Array  # bool: a draft was judged at this position
  alpha: Array  # probability of accepting the draft
  alpha_sd: Array  # the same for the lossless rule
  tv: Array  # total variation between the token's distribution and the target's
  kl: Array  # KL(distribution || target) in nats; inf where the distribution leaves the target's support
  excess: Array  # sum [q a - p]+, the least total variation with this acceptance

  @classmethod
  def undrafted(cls, tv: Array, kl: Array) -> TokenAudit:
    """Of tokens that were drawn from another distribution than the target's, without drafts."""
    none = jnp.zeros_like(tv)
    return cls(none > 0, none, none, tv, kl, none)


Auditable = ChainRule | TreeRule | BlockRule


@dataclasses.dataclass(frozen=True)
class Audited:
  """An acceptance rule whose verdicts carry a `TokenAudit` as metrics; an `AcceptFn`."""

  rule: Auditable

  def __call__(self, tables: PyTree, keys: Key, draft: Draft, target: Array) -> Verdict:
    """Judges a draft; see `jaxspec.core.types.AcceptFn`."""
    verdict = self.rule(tables, keys, draft, target)
    return verdict._replace(metrics=_audit_round(self.rule, tables, draft, target, verdict))


def audited(rule: AcceptFn) -> Audited:
  """Returns the same acceptance rule, whose verdicts carry a `TokenAudit` as metrics.

  Args:
    rule: a `ChainRule` or a `BlockRule`, or for drafters of trees a `TreeRule`.
  Raises:
    ValueError: for another rule, which gives no acceptance of undrafted tokens.
  """
  if not isinstance(rule, Auditable):
    name = getattr(rule, "__name__", type(rule).__name__)
    raise ValueError(f"Must have a ChainRule, a BlockRule or a TreeRule to audit, we instead got {name}")
  return Audited(rule)


def _audit_round(rule: Auditable, tables: PyTree, draft: Draft, target: Array, verdict: Verdict) -> TokenAudit:
  rows, window = draft.tokens.shape
  if window == 0:
    blank = jnp.zeros((rows, 1))
    return TokenAudit(blank > 0, *(blank,) * (len(TokenAudit._fields) - 1))
  if isinstance(rule, TreeRule):
    distribution, drafted = _positions_of_path(rule, tables, draft, target, verdict)
  else:
    drafted = jnp.arange(window)[None] < draft.num_drafted[:, None]  # [B, K]
    if isinstance(rule, BlockRule):
      distribution = exact_block_distribution(rule, draft, target)
    else:
      p, q = logit_processing.probabilities(target[:, :-1]), logit_processing.probabilities(draft.proposal)
      distribution = exact_distribution(rule, tables, p, q)
  positions = 1 + (verdict.path.shape[1] if draft.is_tree else window)
  width = ((0, 0), (0, positions - drafted.shape[1]))  # nothing is drafted after the last draft
  tested = jnp.pad(drafted, width) & (jnp.arange(positions)[None] <= verdict.num_accepted[:, None])
  only = lambda values: jnp.where(tested, jnp.pad(values, width), 0.0)
  return TokenAudit(
    tested,
    only(distribution.alpha),
    only(distribution.alpha_sd),
    only(distribution.tv),
    only(distribution.kl),
    only(distribution.excess),
  )


def _positions_of_path(
  rule: TreeRule, tables: PyTree, draft: Draft, target: Array, verdict: Verdict
) -> tuple[PositionDistribution, Array]:
  """Distributions ``[B, L + 1]`` after the root and each node of the accepted path, and a mask of those with candidates."""
  rows = draft.tokens.shape[0]
  path = verdict.path if draft.is_tree else trees.parents_of(draft) + 1
  nodes = jnp.concatenate([jnp.full((rows, 1), -1, path.dtype), path], axis=1)  # [B, L + 1]
  each = functools.partial(jax.vmap, in_axes=1, out_axes=1)
  distribution = each(lambda node: exact_tree_distribution(rule, tables, draft, target, node))(nodes)
  return distribution, each(lambda node: jnp.any(rule.after(draft, node), axis=1))(nodes)
