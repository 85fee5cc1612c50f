"""A round between two ends that exchange draft and reply as frames of a codec, for the clause ``codec`` of the contract."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax.numpy as jnp

from jaxspec.core import commits
from jaxspec.core.payloads import PendingTokens
from jaxspec.core.state import TargetSide
from jaxspec.core.types import Cursor, Draft, PyTree, Verdict
from jaxspec.serving.wire.arrays import on_host
from jaxspec.serving.wire.framing import REPLY, REQUEST, Reply
from jaxspec.serving.wire.handshake import Agreement
from jaxspec.serving.wire.round_codec import DecodedDraft, RoundCodec, verdict_of
from jaxspec.serving.wire.two_phase import finish_round


def first_over(codec: RoundCodec, prefill: Verdict) -> Verdict:
  """The prefill's verdict of one row after encoding and decoding its frame."""
  token = codec.decode_first(codec.encode_first(int(prefill.next_tokens[0, 0])))
  return Verdict.one(jnp.zeros(1, jnp.int32), jnp.full(1, token, jnp.int32))


def round_over(
  codec: RoundCodec,
  agreement: Agreement,
  judge: Callable[[PyTree, TargetSide, Draft], tuple[TargetSide, PyTree]],
  params: PyTree,
  target: TargetSide,
  draft: Draft,
  cursor: Cursor,
) -> tuple[TargetSide, Verdict]:
  """The target side's part of a round of one row; it knows only the draft's frame.

  Args:
    judge: `jaxspec.core.rounds.verify_round`, or `jaxspec.serving.wire.two_phase.judge_round` if the codec may request
      distributions.
    params: of the target.
    draft: the draft side's, leaves ``[1, K, ...]``.
    cursor: the draft side's, before the round.
  Returns:
    The target side after the round, and the verdict decoded from the reply's frame.
  """
  round_ = int(cursor.round)
  data, _ = codec.encode_draft(draft, on_host(cursor), agreement.max_len)
  decoded = codec.decode_draft(data, on_host(target.cursor), agreement)
  number, judged = int(decoded.draft.num_drafted[0]), _judged(decoded, agreement.max_len)
  target, verdict = judge(params, dataclasses.replace(target, cursor=decoded.cursor), judged)

  def reply_to(token: int | None, kind: int = REPLY) -> Reply:
    return codec.decode_reply(codec.encode_reply(round_, int(verdict.num_accepted[0]), token, kind), round_, number)

  if codec.may_request:
    tested, verdict = verdict, verdict.verdict
    if bool(tested.requests[0]):
      position = reply_to(None, REQUEST).num_accepted
      data, _ = codec.encode_distribution(draft, position, round_)
      distribution = codec.decode_distribution(data, decoded.draft, position, round_)
      target, verdict = finish_round(target, judged, tested, distribution)
    else:
      cursor = commits.advance(target.cursor, judged, verdict, target.max_len)
      target = dataclasses.replace(target, cursor=cursor)
  reply = reply_to(int(verdict.next_tokens[0, 0]) if int(verdict.num_next[0]) else None)
  return target, verdict_of(reply.num_accepted, reply.next_token, draft.num_local)


def _judged(decoded: DecodedDraft, max_len: int) -> Draft:
  """The decoded draft for a verifier, with the tokens that are new to the target side."""
  end = int(decoded.cursor.length[0])
  tokens = jnp.zeros((1, max_len), jnp.int32).at[0, decoded.start : end].set(decoded.tokens[: end - decoded.start])
  features = ()
  if decoded.features is not None:
    width, fed = decoded.features.shape[1], len(decoded.tokens)
    features = jnp.zeros((1, max_len, width), jnp.float32).at[0, decoded.start : decoded.start + fed].set(decoded.features)
  return decoded.draft._replace(payload=PendingTokens(tokens, jnp.full(1, decoded.start, jnp.int32), features))
