"""A round that waits for its reply, and what an edge assumes about the reply."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxspec.core.payloads import PendingTokens
from jaxspec.core.state import DraftSide
from jaxspec.core.types import Cursor, Draft, PyTree, Verdict
from jaxspec.serving.wire.arrays import scalar
from jaxspec.serving.wire.round_codec import RoundCodec, verdict_of


class Request(NamedTuple):
  """The next call of `Cloud.verify`."""

  seq: int
  part: int
  frame: bytes


class Call(NamedTuple):
  """The numbers of a call that a `Resume` repeats."""

  known: int  # tokens that the cloud knew before
  fed: int  # tokens in the frame
  round: int


class PendingRound(NamedTuple):
  """A round that waits for its reply.

  Attributes:
    assumed: the reply by which all drafts are accepted, and its verdict; None for a round without drafts.
    kept: the draft side of the round without its cache, if the next round was drafted already.
    is_void: whether the drafts assume replies that are not those of the cloud.
    num_requested: accepted drafts of a reply that requests a distribution.
    draft_us: microseconds of drafting and encoding.
  """

  draft: Draft
  trace: PyTree
  call: Call
  request: Request
  assumed: tuple[bytes, Verdict] | None
  kept: DraftSide | None = None
  is_void: bool = False
  num_requested: int | None = None
  draft_us: int = 0


def call_of(draft: Draft, cursor: Cursor) -> Call:
  """The numbers of a round's call; ``cursor`` is on the host."""
  length = int(cursor.length[0])
  read = scalar(draft.payload.read) if isinstance(draft.payload, PendingTokens) else length - 1
  return Call(read + 1, length + scalar(draft.num_drafted) - read, int(cursor.round))


def all_accepted(draft: Draft, round_: int, codec: RoundCodec, end_tokens: tuple[int, ...]) -> tuple[bytes, Verdict] | None:
  """The reply by which all drafts are accepted, and its verdict; None without drafts. A drafted end token ends the row."""
  tokens = np.asarray(draft.tokens)[0, : scalar(draft.num_drafted)].tolist()
  if not tokens:
    return None
  end = next((index for index, token in enumerate(tokens) if token in end_tokens), None)
  accepted, token = (len(tokens), None) if end is None else (end, tokens[end])
  return codec.encode_reply(round_, accepted, token), verdict_of(accepted, token, draft.num_local)
