"""What a decode does to the law of every token it commits, measured where the decode went.

`audited` wraps a rule: its verdicts are the same, and beside each committed token stands the exact law that the rule gave
it (`TokenAudit`, in `DecodeResult.metrics`). The rule is enumerated over the vocabulary with the p and q of the place, so a
figure has no sampling error of its own; only the places that are visited are random.

The law of a token is taken given all that its test is given: the prefix, the drafts of the round that were kept before
it, and the law q its draft was drawn from. In a Jacobi window q is the window's row, the target's law after an older
guess at the prefix. A token that no draft preceded (token 0, the bonus behind a fully accepted draft) is drawn from p and
counts with a distance of 0. The total variation given the prefix alone is at most the mean over what q may be (total
variation is convex), and that of a whole picture at most the sum over its tokens.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec import trees
from jaxspec.metrics.bootstrap import Interval, bootstrap
from jaxspec.metrics.exact_law import PlaceLaw, exact_law, exact_tree_law
from jaxspec.models import sampling
from jaxspec.types import AcceptFn, Array, Draft, Key, PyTree, Verdict
from jaxspec.verifiers.tree import TreeRule


class TokenAudit(NamedTuple):
  """The law of a committed token against the target's; leaves ``[B, N]``, or ``[B, K + 1]`` of one round.

  All but ``tested`` are 0 where it is False.
  """

  tested: Array  # bool: a draft was judged at this place
  alpha: Array  # probability of keeping the draft
  alpha_sd: Array  # the same of the lossless rule
  tv: Array  # total variation between the token's law and the target's
  kl: Array  # KL(law || target) in nats; inf where the law leaves the target's support
  excess: Array  # sum [q a - p]+, the least total variation with this acceptance


@functools.cache
def audited(rule: AcceptFn) -> AcceptFn:
  """The same rule; its verdicts carry a `TokenAudit` as metrics.

  Args:
    rule: a `ChainRule`, or for drafters of trees a `TreeRule`.
  """

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
    law, drafted = _places_of_path(rule, tables, draft, target, verdict)
  else:
    p, q = sampling.probabilities(target[:, :-1]), sampling.probabilities(draft.proposal)
    law, drafted = exact_law(rule, tables, p, q), jnp.arange(window)[None] < draft.num_drafted[:, None]  # [B, K]
  places = window + 1 if verdict.path is None else verdict.path.shape[1] + 1
  width = ((0, 0), (0, places - drafted.shape[1]))  # nothing is drafted behind the last draft
  tested = jnp.pad(drafted, width) & (jnp.arange(places)[None] <= verdict.num_accepted[:, None])
  only = lambda values: jnp.where(tested, jnp.pad(values, width), 0.0)
  return TokenAudit(tested, only(law.alpha), only(law.alpha_sd), only(law.tv), only(law.kl), only(law.excess))


def _places_of_path(rule: TreeRule, tables: PyTree, draft: Draft, target: Array, verdict: Verdict) -> tuple[PlaceLaw, Array]:
  """Laws ``[B, L + 1]`` behind the root and the nodes of the accepted path, and where there were candidates."""
  rows = draft.tokens.shape[0]
  parents = trees.parents_of(draft)
  path = jnp.broadcast_to(jnp.arange(parents.shape[1])[None], parents.shape) if verdict.path is None else verdict.path
  nodes = jnp.concatenate([jnp.full((rows, 1), -1, path.dtype), path], axis=1)  # [B, L + 1]
  each = functools.partial(jax.vmap, in_axes=1, out_axes=1)
  law = each(lambda node: exact_tree_law(rule, tables, draft, target, node))(nodes)
  return law, each(lambda node: jnp.any(rule.behind(draft, node), axis=1))(nodes)


class AuditFigures(NamedTuple):
  """A decode in figures, each with its bootstrap interval over pictures.

  Attributes:
    tokens_per_call: committed tokens per pass of the target, the prefill included.
    tv: total variation, mean over committed tokens; ``kl`` likewise, inf if one token is.
    excess: the least total variation possible with this acceptance, mean over committed tokens.
    alpha: probability of keeping a draft, mean over places where one was judged; ``alpha_sd`` that of the lossless rule.
    worst: picture and place of the largest total variation.
  """

  tokens_per_call: Interval
  tv: Interval
  kl: Interval
  excess: Interval
  alpha: Interval
  alpha_sd: Interval
  worst: tuple[int, int]


def summarize_audit(audit: TokenAudit, target_calls: np.ndarray) -> AuditFigures:
  """Figures of ``P`` decoded pictures of ``N`` tokens.

  Args:
    audit: leaves ``[P, N]``.
    target_calls: ``[P]`` passes of the target.
  """
  audit = TokenAudit(*(np.asarray(leaf, np.float64) for leaf in audit))
  pictures, num_tokens = audit.tv.shape
  tokens, judged = np.full(pictures, float(num_tokens)), audit.tested.sum(1)

  def ratio(total: np.ndarray, count: np.ndarray) -> Interval:
    share = lambda rows: rows[:, 0].sum() / max(rows[:, 1].sum(), 1.0)
    return bootstrap(share, np.stack([total, count], axis=1), repeats=1000)

  return AuditFigures(
    tokens_per_call=ratio(tokens, np.asarray(target_calls, np.float64)),
    tv=ratio(audit.tv.sum(1), tokens),
    kl=ratio(audit.kl.sum(1), tokens),
    excess=ratio(audit.excess.sum(1), tokens),
    alpha=ratio(audit.alpha.sum(1), judged),
    alpha_sd=ratio(audit.alpha_sd.sum(1), judged),
    worst=tuple(int(i) for i in np.unravel_index(np.argmax(audit.tv), audit.tv.shape)),
  )
