"""The target network of scales as a verifier: one pass over several scales, then an acceptance rule for scales.

A pass over m + 1 scales judges m drafted scales and draws one more. Shapes depend on the scale, so rows keep one length
(`jaxspec.core.types.Verifier.at`): a round commits the smallest number of accepted scales of any row. A scale that is
redrawn after the same scales has the same tokens and the same verdict, because random numbers are addressed by scale and not
by round. Only the ``bonus`` scale, which the target draws after a fully accepted draft, may differ. Without it a row has the
same tokens alone and in any batch.

Locally accepted scales (`Draft.num_local`) are final, and rows without verification commit only such scales. If a verified
row has pending scales (`PendingTokens`), the pass begins at scale 1 and reads all earlier scales again, because they have
few positions.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxspec.core import commits, rng
from jaxspec.core.control_flow import run_if
from jaxspec.core.payloads import AcceptScale, DraftedScale, PendingTokens, Replaced, as_token
from jaxspec.core.types import Array, Cursor, Draft, Key, Verdict, Verifier
from jaxspec.models.conditions import ClassLabels
from jaxspec.sampling.logit_processing import sample
from jaxspec.sampling.scale_network import ScaleNetwork, ScaleReader, ScaleSide


class ScaleReport(NamedTuple):
  """`DecodeResult.metrics` of scales, leaves ``[B, N]``; 0 where a draft was accepted."""

  tries: Array  # int32, proposals drawn to replace a rejected scale
  fallback: Array  # bool, no proposal was accepted within the cap, so that the last one was taken (not exact)


class ScaleTargetState(NamedTuple):
  """The network has read every scale below the length of the rows."""

  reader: ScaleReader
  keys: Key  # [B], numbers of scales


@dataclasses.dataclass(frozen=True)
class ScaleVerifier(Verifier):
  """Verifier of drafts from `jaxspec.drafters.scale_model`; with `jaxspec.autoregress`, the target's own sampler.

  Attributes:
    network: the target.
    rule: the acceptance rule.
    bonus: also draw the scale after a fully accepted draft, at the cost of the inputs of one more scale.
    length: of the rows, once it is known (`at`).
  """

  network: ScaleNetwork
  rule: AcceptScale
  bonus: bool = True
  length: int | None = None

  in_step = True

  @property
  def sizes(self) -> tuple[int, ...]:
    """Tokens of each map."""
    return self.network.sizes

  @property
  def width(self) -> int:
    """Tokens of the largest map."""
    return max(self.sizes)

  def at(self, length: int, max_len: int) -> ScaleVerifier:
    return dataclasses.replace(self, length=length)

  def draw(self, keys: Key, logits: Array, index: int) -> Array:
    return sample(logits, rng.uniforms(rng.of_token(keys, index), self.sizes[index]))

  def init(
    self, params: ScaleSide, keys: Key, condition: ClassLabels, max_len: int, window: int
  ) -> tuple[Verdict, ScaleTargetState]:
    if max_len > len(self.sizes):
      raise ValueError(f"Must have at most the {len(self.sizes)} scales of an image, we instead got {max_len}")
    (logits,), reader = self.network.read(params, self.network.start(params, condition), (), first=0, end=1)
    first = as_token(self.draw(keys, logits, 0), self.width)
    rows = keys.shape[0]
    verdict = Verdict.one(jnp.zeros((rows,), jnp.int32), first, metrics=_no_report(rows, 1))
    return verdict, ScaleTargetState(reader, keys)

  def pass_over(
    self, length: int, end: int, params: ScaleSide, reader: ScaleReader, cursor: Cursor, draft: Draft, tokens: list[Array]
  ) -> tuple[list[Array], ScaleReader]:
    """The target's outputs for the scales from the length of the rows to ``end - 1``, and the reader."""
    unread = draft.payload
    if not isinstance(unread, PendingTokens):
      newest = [cursor.last[:, : self.sizes[length - 1]], *tokens][: end - length]
      return self.network.read(params, reader, newest, first=length, end=end)
    *earlier, last = (unread.tokens[:, index, : self.sizes[index]] for index in range(length))
    newest = [last, *tokens][: end - length]
    behind = jnp.any(cursor.live & draft.needs_verify & (unread.read < length - 1))
    from_here = lambda carry: self.network.read(params, carry[1], newest, first=length, end=end)
    from_start = lambda carry: self.network.read(params, carry[1], [*earlier, *newest], first=1, end=end, logits_from=length)
    nothing = [jnp.zeros(leaf.shape, leaf.dtype) for leaf in jax.eval_shape(from_here, ([], reader))[0]]
    return run_if(behind, from_start, run_if(~behind, from_here, (nothing, reader)))

  def verify(
    self, params: ScaleSide, keys: Key, state: ScaleTargetState, cursor: Cursor, draft: Draft
  ) -> tuple[Verdict, ScaleTargetState]:
    del keys  # those of a round
    length = commits.known_length(self.length)
    judged = len(draft.proposal)
    draws_more = self.bonus or judged == 0
    tokens = [draft.tokens[:, i, : self.sizes[length + i]] for i in range(judged)]
    end = length + judged + draws_more
    targets, reader = self.pass_over(length, end, params, state.reader, cursor, draft, tokens)
    maps = [DraftedScale(*parts) for parts in zip(tokens, draft.proposal, targets)]
    own = [rng.of_token(state.keys, length + i) for i in range(judged + draws_more)]
    local, asks = draft.num_local, draft.needs_verify
    count = local  # [B], number of final leading scales
    for i, (key, drafted) in enumerate(zip(own, maps)):
      count = count + ((count == i) & (i < draft.num_drafted) & self.rule.accepts(key, drafted))
    adds = asks & ((count < draft.num_drafted) | draws_more)  # a scale of the target
    num_rows, num = draft.tokens.shape[:2]
    gain = jnp.min(jnp.where(cursor.live, count + adds, num + 1))  # number of scales that all rows commit
    newest = jnp.clip(gain - 1, 0, end - length - 1)

    following, report = [], _no_report(num_rows, num + 1)
    for i, drafted in enumerate(maps):
      rejected = adds & (count == i) & (i < draft.num_drafted)
      replaced = self.rule.replace(own[i], drafted, rejected & cursor.live & (newest == i))
      added = replaced.tokens
      if isinstance(draft.payload, PendingTokens):  # a window may end before the drafts of other rows
        added = jnp.where(rejected[:, None], added, self.draw(state.keys, targets[i], length + i))
      following.append(as_token(jnp.where((count > i)[:, None], drafted.tokens, added), self.width))
      report = _with(report, i, replaced, rejected & cursor.live & (newest == i))
    if draws_more:
      following.append(as_token(self.draw(state.keys, targets[judged], length + judged), self.width))
    verdict = Verdict.one(
      num_accepted=jnp.where(asks, gain - 1, jnp.minimum(gain, local)),
      next_token=jnp.stack(following, axis=1)[:, newest],
      metrics=report,
      is_drafted=(asks & (count >= gain))[:, None],
    )
    return verdict, ScaleTargetState(reader, state.keys)


def _no_report(rows: int, maps: int) -> ScaleReport:
  return ScaleReport(jnp.zeros((rows, maps), jnp.int32), jnp.zeros((rows, maps), bool))


def _with(report: ScaleReport, at: int, replaced: Replaced, needed: Array) -> ScaleReport:
  """The report with the values of the scale at one position of the round."""
  return ScaleReport(
    report.tries.at[:, at].set(jnp.where(needed, replaced.tries, 0)),
    report.fallback.at[:, at].set(needed & replaced.fallback),
  )
