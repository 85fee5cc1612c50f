"""The exact bias of every token that a decode commits, measured during the decode.

`audited` wraps an acceptance rule. The verdicts stay the same. For each committed token they also carry figures of the exact
distribution that the rule gave it (`TokenAudit`, in `DecodeResult.metrics`). The rule is enumerated over the vocabulary with
the p and q of the position, so a figure has no sampling error of its own. Only the visited positions are random.

The distribution of a token is conditioned on everything that the rule's test reads: the prefix, the drafts of the round that
were accepted before it, and the distribution q that its draft was drawn from. In a Jacobi window q is the window's row,
which is the target's distribution after an older guess of the prefix. A token without a draft (token 0, or the bonus token
after a fully accepted draft) is drawn from p and counts with a distance of 0. Total variation is convex. The total variation
given the prefix alone is therefore at most the mean over all q. That of a whole image is at most the sum over tokens.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec import trees
from jaxspec.metrics.exact_distribution import PositionDistribution, exact_distribution, exact_tree_distribution
from jaxspec.metrics.statistics import FEWEST_CLUSTERS, Interval, bounded_ratio, ratio, share
from jaxspec.models import sampling
from jaxspec.short_repr import short_repr
from jaxspec.types import AcceptFn, Array, Draft, Key, PyTree, Verdict
from jaxspec.verifiers.chain import ChainRule
from jaxspec.verifiers.tree import TreeRule


class TokenAudit(NamedTuple):
  """How far the distribution of a committed token is from the target's; leaves ``[B, N]``, or ``[B, K + 1]`` of one round.

  All fields but ``tested`` are 0 where ``tested`` is False.
  """

  __repr__ = short_repr

  tested: Array  # bool: a draft was judged at this position
  alpha: Array  # probability of accepting the draft
  alpha_sd: Array  # the same for the lossless rule
  tv: Array  # total variation between the token's distribution and the target's
  kl: Array  # KL(distribution || target) in nats; inf where the distribution leaves the target's support
  excess: Array  # sum [q a - p]+, the least total variation with this acceptance


@functools.cache
def audited(rule: AcceptFn) -> AcceptFn:
  """Returns the same acceptance rule, whose verdicts carry a `TokenAudit` as metrics.

  Args:
    rule: a `ChainRule`, or for drafters of trees a `TreeRule`.
  Raises:
    ValueError: for another rule, whose acceptance of tokens that were not drafted nobody knows.
  """
  if not isinstance(rule, (ChainRule, TreeRule)):
    name = getattr(rule, "__name__", type(rule).__name__)
    raise ValueError(f"Must have a ChainRule or a TreeRule to audit, we instead got {name}")

  def accept(tables: PyTree, keys: Key, draft: Draft, target: Array) -> Verdict:
    """Judges a draft; see `jaxspec.types.AcceptFn`."""
    verdict = rule(tables, keys, draft, target)
    return verdict._replace(metrics=_audit_round(rule, tables, draft, target, verdict))

  return accept


def _audit_round(rule: AcceptFn, tables: PyTree, draft: Draft, target: Array, verdict: Verdict) -> TokenAudit:
  rows, window = draft.tokens.shape
  if window == 0:
    blank = jnp.zeros((rows, 1))
    return TokenAudit(blank > 0, *(blank,) * (len(TokenAudit._fields) - 1))
  if isinstance(rule, TreeRule):
    distribution, drafted = _positions_of_path(rule, tables, draft, target, verdict)
  else:
    p, q = sampling.probabilities(target[:, :-1]), sampling.probabilities(draft.proposal)
    distribution, drafted = (
      exact_distribution(rule, tables, p, q),
      jnp.arange(window)[None] < draft.num_drafted[:, None],
    )  # [B, K]
  positions = window + 1 if verdict.path is None else verdict.path.shape[1] + 1
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
  parents = trees.parents_of(draft)
  path = jnp.broadcast_to(jnp.arange(parents.shape[1])[None], parents.shape) if verdict.path is None else verdict.path
  nodes = jnp.concatenate([jnp.full((rows, 1), -1, path.dtype), path], axis=1)  # [B, L + 1]
  each = functools.partial(jax.vmap, in_axes=1, out_axes=1)
  distribution = each(lambda node: exact_tree_distribution(rule, tables, draft, target, node))(nodes)
  return distribution, each(lambda node: jnp.any(rule.after(draft, node), axis=1))(nodes)


class AuditFigures(NamedTuple):
  """Figures of a decode, each with its 95 % interval over prompts; low and high are nan for fewer than `FEWEST_CLUSTERS`.

  The three figures of bias have no sampling error at a position. Where all rows have the same figure (0 for an exact
  method), the interval is that single point. Acceptance is a share, whose interval never is one. No interval of a total
  variation or of a share leaves [0, 1].

  Attributes:
    tokens_per_call: committed tokens per pass of the target, the prefill included.
    tv: total variation, mean over committed tokens; ``kl`` likewise, inf if one token is.
    excess: the least total variation possible with this acceptance, mean over committed tokens.
    alpha: probability of accepting a draft, mean over positions with a judged draft; ``alpha_sd`` is the lossless rule's.
      Without such a position it is 0, from 0 to 1.
    worst: row and position of the largest total variation.
  """

  tokens_per_call: Interval
  tv: Interval
  kl: Interval
  excess: Interval
  alpha: Interval
  alpha_sd: Interval
  worst: tuple[int, int]


def summarize_audit(
  audit: TokenAudit, lengths: np.ndarray, target_calls: np.ndarray, *, prompts: np.ndarray | None = None
) -> AuditFigures:
  """Figures of ``P`` decoded rows of up to ``N`` tokens.

  Args:
    audit: leaves ``[P, N]``, 0 after the end of a row, as `DecodeResult.metrics` are.
    lengths: ``[P]`` tokens of each row.
    target_calls: ``[P]`` passes of the target.
    prompts: ``[P]`` prompt of each row, the units of the intervals. Rows are the units without it, and where all are of
      one prompt: then the intervals are for that prompt.
  """
  audit = TokenAudit(*(np.asarray(leaf, np.float64) for leaf in audit))
  tokens, calls, judged = np.asarray(lengths, np.float64), np.asarray(target_calls, np.float64), audit.tested.sum(1)
  clusters = None if prompts is None or len(np.unique(prompts)) < 2 else prompts
  units = len(tokens) if clusters is None else len(np.unique(clusters))
  of_tokens = lambda total: bounded_ratio(np.clip(total, 0.0, tokens), tokens, clusters=clusters)  # rounding

  def of_judged(total: np.ndarray) -> Interval:
    if not judged.any():
      return Interval(0.0, 0.0, 1.0)
    found = share(np.clip(total, 0.0, judged), judged, clusters=clusters)
    ends = (found.low, found.high) if units >= FEWEST_CLUSTERS else (np.nan, np.nan)
    return Interval(found.value, *ends)

  return AuditFigures(
    tokens_per_call=ratio(tokens, calls, clusters=clusters),
    tv=of_tokens(audit.tv.sum(1)),
    kl=ratio(np.maximum(audit.kl.sum(1), 0.0), tokens, clusters=clusters),
    excess=of_tokens(audit.excess.sum(1)),
    alpha=of_judged(audit.alpha.sum(1)),
    alpha_sd=of_judged(audit.alpha_sd.sum(1)),
    worst=tuple(int(i) for i in np.unravel_index(np.argmax(audit.tv), audit.tv.shape)),
  )
