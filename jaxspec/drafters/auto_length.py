"""Drafts of a length that is chosen before each round (`jaxspec.drafters.length_choice`), down to none.

1. The choice reads the counts of earlier verdicts, the table of times, and what is known from other decodes: of this decode
   committed tokens only, so exact rules stay exact.
2. A round of length ``w`` is that of the inner drafter with this window. Its entries are padded to the longest one.
3. In a plain round the draft network does not run. Its next round first reads the tokens of the plain rounds, one by one.

All rows of a batch share the length of a round, because they share its passes. A row therefore follows the target's
distribution in every batch, but its tokens may differ from those that it has alone.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxspec.core.control_flow import put_leading, run_if
from jaxspec.core.token_axes import at_position
from jaxspec.core.types import Array, Cursor, Draft, Drafter, FirstToken, Key, PyTree, Verdict
from jaxspec.drafters import length_choice
from jaxspec.drafters.length_choice import LengthState, Prior


class AutoLengthParams(NamedTuple):
  """Parameters of the draft side."""

  inner: PyTree
  times: Array  # [M] int32 time of a round of each length, a plain round about `length_choice.PLAIN`; only ratios matter
  prior: Prior | None = None  # what is known of drafts; None: nothing


class Missed(NamedTuple):
  """Tokens of plain rounds by their index, which the draft network may have to read."""

  tokens: Array  # [B, N] int32
  feedback: PyTree  # [B, N, ...], that of the verdict that drew each token


class AutoLengthState(NamedTuple):
  """The inner drafter's state, which lags behind by ``choice.unread`` tokens."""

  inner: PyTree
  choice: LengthState
  times: Array  # [M]
  max_len: Array  # [] int32
  missed: Missed | None  # None: the inner drafter has no network that reads


class AutoLengthReport(NamedTuple):
  """Rounds of each draft length, for `DecodeResult.report`."""

  rounds: Array  # [B, M] int32
  times: Array  # [B, M] int32, the table of the batch


@dataclasses.dataclass(frozen=True)
class AutoLengthDrafter(Drafter):
  """Drafter whose rounds have one of a few lengths.

  Attributes:
    inner: a drafter of chains that serves shorter windows with the same state (its field ``window``), without a trace and
      without local acceptance.
    widths: the lengths, ascending from 0 to the inner window.
    bonus: whether the target adds a token after full acceptance.
  Raises:
    ValueError: for other widths.
  """

  inner: Any
  widths: tuple[int, ...]
  bonus: bool = True
  is_adaptive = True

  def __post_init__(self):
    if self.widths[:1] != (0,) or self.widths[-1] != self.inner.window or sorted(set(self.widths)) != list(self.widths):
      raise ValueError(f"Must have draft lengths that ascend from 0 to {self.inner.window}, we instead got {self.widths}")

  @property
  def window(self) -> int:
    return self.inner.window

  @property
  def calls_per_round(self) -> int:
    return self.inner.calls_per_round

  @property
  def has_cache(self) -> bool:
    return self.inner.has_cache

  def _of(self, width: int) -> Drafter:
    return dataclasses.replace(self.inner, window=width)

  def init(
    self, params: AutoLengthParams, keys: Key, condition: PyTree, max_len: int, prefill: Verdict
  ) -> tuple[AutoLengthState, FirstToken | None]:
    inner, first = self.inner.init(params.inner, keys, condition, max_len, prefill)
    rows, missed = keys.shape[0], None
    if self.calls_to_read:
      of_token = lambda leaf: jnp.zeros((rows, max_len, *leaf.shape[2:]), leaf.dtype)
      missed = Missed(jnp.zeros((rows, max_len), jnp.int32), jax.tree.map(of_token, prefill.feedback))
    choice = length_choice.start(params.times, rows, self.window, max_len, params.prior)
    return AutoLengthState(inner, choice, params.times, jnp.int32(max_len), missed), first

  def read(self, params: AutoLengthParams, state: AutoLengthState, cursor: Cursor) -> AutoLengthState:
    return state._replace(inner=self.inner.read(params.inner, state.inner, cursor))

  def draft(
    self, params: AutoLengthParams, keys: Key, state: AutoLengthState, cursor: Cursor
  ) -> tuple[Draft, AutoLengthState, tuple]:
    lacks = length_choice.lacking(cursor, state.max_len)
    index = length_choice.choose(state.choice, params.times, self.widths, lacks, bonus=self.bonus)
    unread = jnp.where(index > 0, state.choice.unread, 0)
    inner = state.inner if state.missed is None else self._catch_up(params.inner, state.inner, state.missed, cursor, unread)
    longest = jax.eval_shape(self.inner.draft, params.inner, keys, inner, cursor)[0]

    def draft_of(width: int, carry: tuple[Draft, PyTree], cursor: Cursor, keys: Key) -> tuple[Draft, PyTree]:
      found, inner, trace = self._of(width).draft(params.inner, keys, carry[1], cursor)
      assert not jax.tree.leaves(trace), "a drafter whose length varies has no trace"
      return put_leading(carry[0], found), inner

    none = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), longest)
    carry = none._replace(needs_verify=jnp.ones_like(none.needs_verify)), inner
    for number, width in enumerate(self.widths):
      if width:
        carry = run_if(index == number, functools.partial(draft_of, width), carry, cursor, keys)
    reads = state.missed is not None
    choice = length_choice.began(state.choice, index, params.times, self.widths, cursor.live, reads=reads)
    draft = carry[0]._replace(num_calls=carry[0].num_calls + unread)
    return draft, state._replace(inner=carry[1], choice=choice), ()

  def _catch_up(self, params: PyTree, inner: PyTree, missed: Missed, cursor: Cursor, unread: Array) -> PyTree:
    """The inner state after the tokens of the last ``unread`` rounds, which were plain ones."""
    zeros = jnp.zeros_like(cursor.length)

    def read_one(number: Array, inner: PyTree) -> PyTree:
      length = jnp.maximum(cursor.length - unread + number, 1)  # of finished rows meaningless
      token = lambda index: at_position(missed.tokens, jnp.minimum(index, missed.tokens.shape[1] - 1))
      then = cursor._replace(last=token(length - 1), length=length)
      inner = self.inner.read(params, inner, then)
      feedback = jax.tree.map(
        lambda leaf: at_position(leaf, jnp.minimum(length, leaf.shape[1] - 1))[:, None], missed.feedback
      )
      verdict = Verdict.one(zeros, token(length))._replace(feedback=feedback)
      return self.inner.commit(params, inner, then, Draft.empty(then.last), (), verdict)

    return jax.lax.fori_loop(0, unread, read_one, inner)

  def commit(
    self, params: AutoLengthParams, state: AutoLengthState, cursor: Cursor, draft: Draft, trace: tuple, verdict: Verdict
  ) -> AutoLengthState:
    if draft.tokens.shape[1] == 0:  # the target draws its prefix; `read` was called
      return state._replace(inner=self._of(self.widths[1]).commit(params.inner, state.inner, cursor, draft, (), verdict))
    rest = state.inner, state.missed

    def plain(
      carry: tuple[PyTree, Missed | None], cursor: Cursor, draft: Draft, verdict: Verdict
    ) -> tuple[PyTree, Missed | None]:
      inner, missed = carry
      own = verdict._replace(feedback=jax.tree.map(lambda leaf: leaf[:, :1], verdict.feedback))
      if missed is None:
        empty = Draft.empty(cursor.last)
        return self._of(self.widths[1]).commit(params.inner, inner, cursor, empty, (), own), None
      row = jnp.arange(cursor.length.shape[0])
      put = lambda buffer, values, index: buffer.at[row, index].set(values, mode="drop")
      tokens = put(missed.tokens, cursor.last, cursor.length - 1)
      tokens = put(tokens, verdict.next_tokens[:, 0], cursor.length)
      feedback = jax.tree.map(lambda buffer, leaf: put(buffer, leaf[:, 0], cursor.length), missed.feedback, own.feedback)
      return inner, Missed(tokens, feedback)

    def drafted(
      width: int, carry: tuple[PyTree, Missed | None], cursor: Cursor, draft: Draft, verdict: Verdict
    ) -> tuple[PyTree, Missed | None]:
      first = lambda number: lambda leaf: leaf[:, :number]
      short = draft._replace(tokens=draft.tokens[:, :width], proposal=jax.tree.map(first(width), draft.proposal))
      own = verdict._replace(
        feedback=jax.tree.map(first(width + 1), verdict.feedback), metrics=jax.tree.map(first(width + 1), verdict.metrics)
      )
      return self._of(width).commit(params.inner, carry[0], cursor, short, (), own), carry[1]

    for number, width in enumerate(self.widths):
      commit = functools.partial(drafted, width) if width else plain
      rest = run_if(state.choice.chosen == number, commit, rest, cursor, draft, verdict)
    outcome = length_choice.outcome(cursor, draft, verdict, state.max_len)
    choice = length_choice.ended(state.choice, params.times, outcome)
    return state._replace(inner=rest[0], missed=rest[1], choice=choice)

  def report(self, state: AutoLengthState) -> AutoLengthReport:
    return AutoLengthReport(state.choice.rounds, jnp.broadcast_to(state.times, state.choice.rounds.shape))
