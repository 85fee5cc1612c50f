"""The target network as a verifier: one pass scores the whole draft, then an acceptance rule judges it.

A draft tree is scored like a chain, with depths as positions and the ancestor mask instead of the causal mask. Its nodes
take consecutive cache slots. The entries of the accepted path are then moved together, so that the cache is the same as
after a chain.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxspec.core import commits, trees
from jaxspec.core.control_flow import put_leading, run_if
from jaxspec.core.types import (
  AcceptFn,
  Array,
  Cache,
  Cursor,
  Draft,
  Key,
  ModelFns,
  ModelOutput,
  PyTree,
  Verdict,
  Verifier,
)
from jaxspec.sampling.logit_processing import ModelParams, Warp

# From the output of a pass and the processed logits to `Verdict.feedback`.
FeedbackFn = Callable[[ModelOutput, Array], PyTree]


def no_feedback(output: ModelOutput, logits: Array) -> tuple:
  """No feedback, the default: an empty tuple."""
  return ()


def target_features(output: ModelOutput, logits: Array) -> Array:
  """The target's features ``[B, K + 1, D]`` at ``[last, draft ...]``; from the prefill ``[B, P, D]``."""
  return output.features


def target_logits(output: ModelOutput, logits: Array) -> Array:
  """The processed logits ``[B, K + 1, V]`` after ``[last, draft ...]``; from the prefill those of token 0 ``[B, 1, V]``."""
  return logits


class TargetState(NamedTuple):
  """The cache holds every committed token except the last."""

  cache: Cache
  prefix_len: Array  # [] int32, or [B] with one per row


@dataclasses.dataclass(frozen=True)
class TargetVerifier(Verifier):
  """Verifier that scores ``[last, draft ...]`` with ``model`` and applies ``accept_fn`` to the processed logits.

  Attributes:
    model: the target.
    accept_fn: the acceptance rule.
    warp: static part of the logit processing.
    feedback_fn: feedback to the drafter: `no_feedback`, `target_features` or `target_logits`.
    widths: inputs of narrower passes, ascending, for chains. By default a pass has ``K + 1`` inputs for any number of
      drafts; with ``(1,)`` a round without a draft costs the same as a round of plain decoding. Every width is compiled.
    bonus: also draw a token after full acceptance, see `jaxspec.core.commits.without_bonus`.
  Raises:
    ValueError: for widths that are not ascending from 1 on.
  """

  model: ModelFns
  accept_fn: AcceptFn
  warp: Warp
  feedback_fn: FeedbackFn = no_feedback
  widths: tuple[int, ...] = ()
  bonus: bool = True

  def __post_init__(self):
    if any(a >= b for a, b in zip((0, *self.widths), self.widths)):
      raise ValueError(f"Must have ascending widths from 1 on, we instead got {self.widths}")

  def init(
    self, params: ModelParams, keys: Key, condition: PyTree, max_len: int, window: int
  ) -> tuple[Verdict, TargetState]:
    prefix_len = self.model.prefix_len(condition)
    rows = keys.shape[0]
    cache = self.model.init_cache(rows, prefix_len + max_len + window)
    output, cache = self.model.apply(
      params.model,
      condition,
      cache,
      positions=jnp.arange(prefix_len)[None],
      logits_at=jnp.full((1,), prefix_len - 1),
    )
    logits = self.warp(output.need_logits(), params.sampling, jnp.zeros((1, 1), jnp.int32))  # [B, 1, V]
    # Token 0 comes from a verdict about an empty draft, so that the rule's report includes it.
    prefill = self.accept_fn(params.rule, keys, Draft.empty(jnp.zeros((rows,), jnp.int32)), logits)
    return prefill._replace(feedback=self.feedback_fn(output, logits)), TargetState(cache, jnp.int32(prefix_len))

  def verify(
    self, params: ModelParams, keys: Key, state: TargetState, cursor: Cursor, draft: Draft
  ) -> tuple[Verdict, TargetState]:
    def judge(draft: Draft, cache: Cache, cursor: Cursor, keys: Key) -> tuple[Verdict, Cache]:
      start = state.prefix_len + cursor.length - 1
      inputs = jnp.concatenate([cursor.last[:, None], draft.tokens], axis=1)  # [B, K + 1]
      offsets, mask = trees.layout(draft)
      output, cache = self.model.apply(params.model, inputs, cache, positions=start[:, None] + offsets, mask=mask)
      logits = self.warp(output.need_logits(), params.sampling, cursor.length[:, None] + offsets)
      verdict = self.accept_fn(params.rule, keys, draft, logits)
      return verdict._replace(feedback=self.feedback_fn(output, logits)), cache

    if draft.is_tree:
      verdict, cache = judge(draft, state.cache, cursor, keys)
      if self.model.compact is None:
        raise ValueError("Must have a model that can compact its cache to verify trees, we instead got None")
      cache = self.model.compact(cache, state.prefix_len + cursor.length, verdict.path)
    else:
      verdict, cache = _narrowest(judge, self.widths, cursor, keys, draft, state.cache)
    verdict = verdict if self.bonus else commits.without_bonus(draft, verdict)
    return verdict, state._replace(cache=cache)


def _narrowest(
  judge: Callable[[Draft, Cache, Cursor, Key], tuple[Verdict, Cache]],
  widths: tuple[int, ...],
  cursor: Cursor,
  keys: Key,
  draft: Draft,
  cache: Cache,
) -> tuple[Verdict, Cache]:
  """Judges a chain by the narrowest pass for the drafts of all live rows; missing entries of the verdict are 0."""
  full = draft.tokens.shape[1] + 1
  widths = (*(width for width in widths if width < full), full)
  if len(widths) == 1:
    return judge(draft, cache, cursor, keys)
  shapes = jax.eval_shape(judge, draft, cache, cursor, keys)[0]

  def judge_narrow(
    width: int, carry: tuple[Verdict, Cache], draft: Draft, cursor: Cursor, keys: Key
  ) -> tuple[Verdict, Cache]:
    verdict, cache = judge(_leading(draft, width - 1), carry[1], cursor, keys)
    return put_leading(carry[0], verdict), cache

  needed = 1 + jnp.max(jnp.where(cursor.live, draft.num_drafted, 0))
  carry = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes), cache
  for narrower, width in zip((0, *widths), widths):
    fits = (needed > narrower) & (needed <= width)
    carry = run_if(fits, functools.partial(judge_narrow, width), carry, draft, cursor, keys)
  return carry


def _leading(draft: Draft, num: int) -> Draft:
  """The first ``num`` tokens of a chain, the most of any row."""
  cut = lambda leaf: leaf[:, :num]
  return draft._replace(tokens=cut(draft.tokens), proposal=jax.tree.map(cut, draft.proposal))
