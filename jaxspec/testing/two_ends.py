"""A row decoded by two ends with separate cursors: the reference of the clauses ``rows`` and ``rollback`` of the
contract."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.core import loop, rounds
from jaxspec.core.constructors import verifier_of, with_draft
from jaxspec.core.state import DecodeResult, DraftSide, TargetSide, Waiting, result
from jaxspec.core.token_axes import at_position
from jaxspec.core.types import Array, Cursor, Draft, Drafter, HostArray, Key, PyTree, Verdict, Verifier
from jaxspec.methods.method import Parts
from jaxspec.serving.wire.handshake import Agreement
from jaxspec.serving.wire.round_codec import RoundCodec
from jaxspec.serving.wire.two_phase import judge_round
from jaxspec.testing.by_frames import first_over, round_over
from jaxspec.testing.compare import differs, on_host, require, short
from jaxspec.testing.drafted import require_draft


class _Replayed(NamedTuple):
  """Parameters of a verifier with given first tokens."""

  params: PyTree
  tokens: Array  # [B, N] or [B, N, C]
  known: Array  # [] int32, number of given tokens


def _replayed(verifier: Verifier) -> Verifier:
  """The verifier, with the given tokens in place of those that it draws alone."""

  def init(params: _Replayed, keys: Key, condition: PyTree, max_len: int, window: int) -> tuple[Verdict, PyTree]:
    verdict, state = verifier.init(params.params, keys, condition, max_len, window)
    first = jnp.where(params.known > 0, params.tokens[:, :1], verdict.next_tokens)
    return verdict._replace(next_tokens=first.astype(verdict.next_tokens.dtype)), state

  def verify(params: _Replayed, keys: Key, state: PyTree, cursor: Cursor, draft: Draft) -> tuple[Verdict, PyTree]:
    verdict, state = verifier.verify(params.params, keys, state, cursor, draft)
    if draft.tokens.shape[1]:
      return verdict, state
    max_len = params.tokens.shape[1]
    token = at_position(params.tokens, jnp.minimum(cursor.length, max_len - 1))
    is_known = cursor.length < params.known  # [B]
    block = verdict.next_tokens
    block = jnp.where(is_known.reshape(-1, *(1,) * (block.ndim - 1)), token[:, None], block).astype(block.dtype)
    return verdict._replace(next_tokens=block, num_next=jnp.where(is_known, 1, verdict.num_next)), state

  return verifier_of(init, verify)


class _Exchange(NamedTuple):
  """Exchanged messages in one round of one row."""

  length: int  # committed tokens before it
  round: int
  draft: Draft
  verdict: Verdict | None  # None without a request


class _Steps(NamedTuple):
  """The drafter of a round, and the compiled parts of the round."""

  drafter: Drafter
  draft_round: Callable
  read_round: Callable
  verify_round: Callable
  judge_round: Callable  # of codecs that may request distributions
  commit_reply: Callable


def _draft_round(params: PyTree, side: DraftSide, *, drafter: Drafter) -> tuple[Waiting, Draft]:
  """A draft round, and its draft as the drafter returned it."""
  returned = []

  def draft(*args):
    out = drafter.draft(*args)
    returned.append(out[0])
    return out

  return rounds.draft_round(params, side, drafter=with_draft(drafter, draft)), returned[0]


def _jitted(function: Callable, *static: str, **fixed: Any) -> Callable:
  return jax.jit(functools.partial(function, **fixed), static_argnames=static)


class TwoEnds:
  """Decodes one row by the steps of both sides, separately compiled and called from Python.

  Args:
    first: shape and type of token 0.
  """

  def __init__(self, parts: Parts, max_len: int, first: jax.ShapeDtypeStruct):
    self._parts, self._max_len, self._first = parts, max_len, first
    self._drafter, self._verifier = parts.pair()
    self._steps: dict[int, _Steps] = {}
    window, verifier = self._drafter.window, _replayed(self._verifier)
    self._start_target = _jitted(rounds.start_target, verifier=verifier, max_len=max_len, window=window)
    self._start_draft = _jitted(rounds.start_draft, "target_prefix", max_len=max_len, drafter=self._drafter)

  def _at(self, cursor: Cursor) -> _Steps:
    """The steps of a round from this cursor."""
    length = 0 if not self._verifier.in_step else int(cursor.length[0])
    if length not in self._steps:
      drafter = rounds.at_length(self._drafter, length, self._max_len)
      verifier = rounds.at_length(self._verifier, length, self._max_len)
      self._steps[length] = _Steps(
        drafter, _jitted(_draft_round, drafter=drafter), _jitted(rounds.read_round, drafter=drafter),
        _jitted(rounds.verify_round, verifier=_replayed(verifier)), _jitted(judge_round, verifier=_replayed(verifier)),
        _jitted(rounds.commit_reply, drafter=drafter),
      )  # fmt: skip
    return self._steps[length]

  def _start(
    self,
    keys: Key,
    condition: PyTree,
    end_token: int | None,
    tokens: HostArray | None = None,
    codec: RoundCodec | None = None,
  ) -> tuple[_Replayed, TargetSide, DraftSide]:
    """The target's parameters and both sides after the prefill; ``tokens [1, N]`` are the given ones."""
    parts, end = self._parts, loop.end_array(end_token)
    # A drafter must not decide about token 0 if it is given.
    prefix = max(parts.target_prefix, 1) if tokens is not None and self._drafter.may_accept_locally else parts.target_prefix
    known = 0 if tokens is None else self._max_len
    if tokens is None:
      tokens = np.zeros((1, self._max_len, *self._first.shape[1:]), self._first.dtype)
    params = _Replayed(parts.params.target, jnp.asarray(tokens), jnp.int32(known))
    target, prefill = self._start_target(params, keys, condition, end_token=end)
    if codec is not None:
      prefill = first_over(codec, prefill)
    keys = jax.random.clone(keys)
    side = self._start_draft(parts.params.draft, keys, condition, prefill, end_token=end, target_prefix=prefix)
    return params, target, side

  def decode(
    self, keys: Key, condition: PyTree, end_token: int | None, codec: RoundCodec | None = None
  ) -> tuple[DecodeResult, list[_Exchange]]:
    """Decodes one row; returns the result and its exchanges.

    Args:
      codec: codec of drafts and replies; None exchanges them without encoding.
    """
    parts, exchanges = self._parts, []
    params, target, side = self._start(keys, condition, end_token, codec=codec)
    agreement = Agreement(self._max_len, loop.end_tuple(end_token))
    alone, calls = rounds.prefix_rounds(parts.target_prefix, self._max_len), int(side.counters.draft_calls[0])
    while bool(side.cursor.live[0]):
      before, round_, steps = side.cursor, int(side.cursor.round), self._at(side.cursor)
      if round_ < alone:
        waiting = steps.read_round(parts.params.draft, side)
      else:
        waiting, returned = steps.draft_round(parts.params.draft, side)
        require_draft(returned, steps.drafter, before)
      draft = waiting.draft
      calls += int(draft.num_calls[0])
      asks = bool(draft.needs_verify[0])
      if asks and codec is not None:
        judge = steps.judge_round if codec.may_request else steps.verify_round
        target, verdict = round_over(codec, agreement, judge, params, target, draft, before)
      elif asks:
        target, verdict = steps.verify_round(params, target, draft)
      else:
        like = jax.eval_shape(steps.verify_round, params, target, draft)[1]
        verdict = rounds.reply_to_nothing(draft, like)
      if round_ >= alone:
        exchanges.append(_Exchange(int(before.length[0]), round_, draft, verdict if asks else None))
      side = steps.commit_reply(parts.params.draft, waiting, verdict)
      if codec is not None:
        continue  # frames update the target side's cursor
      if self._drafter.may_accept_locally:  # and so do drafts
        target = dataclasses.replace(target, cursor=side.cursor)
      agree = all(not differs(np.asarray(a), np.asarray(b)) for a, b in zip(target.cursor, side.cursor))
      require(agree, "rows", f"equal cursors on both sides after round {round_}")
    got = int(side.counters.draft_calls[0])
    require(got == calls, "counters", f"{calls} draft_calls, as the drafts say", got)
    return on_host(result(side, self._drafter)), exchanges

  def check_rollback(
    self, keys: Key, condition: PyTree, out: DecodeResult, exchanges: list[_Exchange], *, history_free: bool
  ) -> None:
    """Reads the tokens of a decoded row one by one, and drafts and judges again wherever a round began."""
    draft_params = self._parts.params.draft
    params, target, side = self._start(keys, condition, None, out.tokens)
    for exchange in exchanges:
      while int(side.cursor.length[0]) < exchange.length:
        steps = self._at(side.cursor)
        waiting = steps.read_round(draft_params, side)
        target, verdict = steps.verify_round(params, target, waiting.draft)
        side = steps.commit_reply(draft_params, waiting, verdict)
      steps = self._at(side.cursor)
      here = lambda at, round_=exchange.round: dataclasses.replace(at, cursor=at.cursor._replace(round=jnp.int32(round_)))
      where = f"in round {exchange.round}, as after reading the same tokens one by one"
      if history_free:
        _check_drafts(exchange.draft, steps.draft_round(draft_params, here(side))[0].draft, where)
      # With interval features the target has also read how tokens were accepted, which the tokens alone do not determine.
      has_features = bool(jax.tree.leaves(getattr(exchange.draft.payload, "features", ())))
      if exchange.verdict is not None and not has_features:
        verdict = steps.verify_round(params._replace(known=jnp.int32(0)), here(target), exchange.draft)[1]
        for name in ("num_accepted", "num_next", "next_tokens"):
          wanted, got = np.asarray(getattr(verdict, name)), np.asarray(getattr(exchange.verdict, name))
          require(not differs(wanted, got), "rollback", f"{name} {short(wanted)} {where}", short(got))


def _check_drafts(got: Draft, wanted: Draft, where: str) -> None:
  """Compares the proposals of two drafts; padding may differ."""
  pairs = [("num_drafted", got.num_drafted, wanted.num_drafted)]
  if got.is_tree:
    pairs += [("tokens", got.tokens, wanted.tokens), ("parents", got.parents, wanted.parents)]
  else:
    number = int(wanted.num_drafted[0])
    pairs.append(("tokens", got.tokens[:, :number], wanted.tokens[:, :number]))
  for name, ours, theirs in pairs:
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    require(not differs(theirs, ours), "rollback", f"{name} {short(theirs)} drafted {where}", short(ours))
