"""Codecs of rounds: what a round of one method looks like as bytes.

A codec (`Wire`) is a frozen value that both ends of a stream hold. It turns the arrays of one row into a frame and back:

1. ``encode_draft``: the edge's `Draft` to a frame.
2. ``decode_draft``: a frame to the `DecodedDraft` that the cloud verifies. Its cursor is the cloud's own. A `CiarWire` moves
   it over the tokens that the edge accepted locally, which the frame brings.
3. ``encode_reply`` and ``decode_reply``: what the cloud decided.

A codec with ``may_request`` lets the cloud request a distribution before it ends a round (coding ``lazy``). Its reply is a
request then; ``encode_distribution`` and ``decode_distribution`` are the second part. The frames are those of
`jaxspec.serving.wire.framing` and `jaxspec.serving.wire.ciar_message`. All that arrives is checked against the cloud's own
cursor. Functions that read take a `Frame`, or the bytes of one.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from jaxspec.codecs.sparse_distribution import SparseDistribution
from jaxspec.core.types import Array, Cursor, Draft, Drafter, Verdict
from jaxspec.serving.wire.arrays import on_host
from jaxspec.serving.wire.frame_reader import FrameReader, Reading
from jaxspec.serving.wire.framing import (
  FIRST,
  REPLY,
  REPLY_BYTES,
  REQUEST,
  Frame,
  Reply,
  read_reply,
  unframe,
  write_reply,
)
from jaxspec.serving.wire.handshake import Agreement
from jaxspec.serving.wire.records import Limits


class DecodedDraft(NamedTuple):
  """The frame of a round, on the host.

  Attributes:
    draft: drafts and their distributions, leaves ``[1, K, ...]``, without payload.
    cursor: the cloud's, as the frame moved it, leaves ``[1]``, round ``[]``.
    start: position of the first token that the cloud has not read.
    tokens: ``[fed]`` int32, the committed tokens from there on, then the drafts.
    features: ``[fed, D]`` float32, their interval features; None where none are sent.
  """

  draft: Draft
  cursor: Cursor
  start: int
  tokens: np.ndarray
  features: np.ndarray | None = None


class Wire(Protocol):
  """The codec of rounds of one row; frozen, and equal for equal choices.

  Attributes:
    may_request: whether the cloud may request a distribution before it ends a round.
    limits: what records and replies must keep to; ``limits.max_drafts`` is the most drafts of a round.
  """

  @property
  def limits(self) -> Limits: ...

  @property
  def may_request(self) -> bool: ...

  def check_drafter(self, drafter: Drafter) -> None:
    """Raises a ValueError for a drafter whose drafts have no frames of this kind."""
    ...

  def max_frame_bytes(self, max_len: int) -> int:
    """No valid frame of the edge is longer, in a row of ``max_len`` tokens."""
    ...

  def encode_first(self, token: int) -> bytes:
    """Token 0."""
    ...

  def decode_first(self, frame: Frame | bytes) -> int:
    """Reads `encode_first`.

    Raises:
      MessageError: if it is anything but a valid first frame.
    """
    ...

  def encode_draft(self, draft: Draft, cursor: Cursor, max_len: int) -> tuple[bytes, int]:
    """The frame of a round, and the bits of its payload.

    Args:
      draft: leaves ``[1, K, ...]``; only those that are sent are brought to the host.
      cursor: the edge's, from before the round, on the host.
      max_len: tokens of the row.
    Raises:
      ValueError: for a draft that frames of this kind cannot hold.
    """
    ...

  def reader(self, max_len: int) -> FrameReader:
    """What reads the edge's frames without their stream, of rows of up to ``max_len`` tokens."""
    ...

  def decode_draft(self, frame: Frame | bytes, cursor: Cursor, agreement: Agreement) -> DecodedDraft:
    """Reads `encode_draft`.

    Args:
      cursor: the cloud's own, leaves ``[1]``, on the host.
    Raises:
      MessageError: if it is anything but a valid frame of this row at this place.
    """
    ...

  def encode_reply(self, round_: int, num_accepted: int, next_token: int | None) -> bytes:
    """The reply to a round; without a token it requests the distribution of the rejected draft."""
    ...

  def decode_reply(self, frame: Frame | bytes, round_: int, num_verified: int) -> Reply:
    """Reads `encode_reply`, of a round that brought ``num_verified`` drafts.

    Raises:
      MessageError: if it is anything but a valid reply, or request, of this round.
    """
    ...

  def encode_distribution(self, draft: Draft, position: int, round_: int) -> tuple[bytes, int]:
    """The distribution that a request asks for, of the draft at ``position``, and the bits of its payload."""
    ...

  def decode_distribution(self, frame: Frame | bytes, draft: Draft, position: int, round_: int) -> SparseDistribution:
    """Reads `encode_distribution`; leaves ``[1]`` on the host.

    Args:
      draft: as it was decoded.
    Raises:
      MessageError: if it is anything but the distribution of that draft.
    """
    ...


class Framed:
  """The half of a codec that all kinds share: replies, and that nothing is requested."""

  limits: Limits

  @property
  def may_request(self) -> bool:
    return False

  def encode_first(self, token: int) -> bytes:
    return write_reply(0, 0, token, self.limits, first=True)

  def decode_first(self, frame: Frame | bytes) -> int:
    return read_reply(frame, self.limits, round_=0, num_drafted=0, expected=FIRST).next_token

  def encode_reply(self, round_: int, num_accepted: int, next_token: int | None) -> bytes:
    return write_reply(round_, num_accepted, next_token, self.limits)

  def decode_reply(self, frame: Frame | bytes, round_: int, num_verified: int) -> Reply:
    frame = unframe(frame, REPLY_BYTES)
    expected = REQUEST if self.may_request and frame.kind == REQUEST else REPLY
    return read_reply(frame, self.limits, round_=round_, num_drafted=num_verified, expected=expected)

  def encode_distribution(self, draft: Draft, position: int, round_: int) -> tuple[bytes, int]:
    raise ValueError("Must have a wire with requests (coding 'lazy') to send distributions apart, we instead got another")

  def decode_distribution(self, frame: Frame | bytes, draft: Draft, position: int, round_: int) -> SparseDistribution:
    raise ValueError("Must have a wire with requests (coding 'lazy') to read distributions apart, we instead got another")


def draft_of(got: Reading, window: int) -> Draft:
  """The drafts of a frame, leaves ``[1, K, ...]``, with room for ``window``; () as proposal where no distributions came."""
  number = len(got.tokens)
  tokens = np.zeros((1, window), np.int32)
  tokens[0, :number] = got.tokens
  proposal = () if got.distributions is None else SparseDistribution(*(leaf[None] for leaf in got.distributions))
  return Draft.chain(tokens, proposal, number, 0)


def needs_cloud(draft: Draft, cursor: Cursor) -> bool:
  """Whether a round of one row is verified; ``cursor`` is on the host."""
  return bool(cursor.live[0]) and bool(draft.needs_verify[0])


def verdict_of(reply: Reply, num_local: Array) -> Verdict:
  """The verdict that a reply describes, leaves ``[1]`` on the host, after ``num_local [1]`` locally accepted tokens."""
  number = np.asarray(num_local, np.int32) + np.int32(reply.num_accepted)
  return Verdict.one(number, np.full(1, reply.next_token, np.int32))


def distributions_of(draft: Draft) -> SparseDistribution | None:
  """The distributions ``[1, K]`` of a draft, on the host; None for an empty one.

  Raises:
    ValueError: for a draft that no frame can hold.
  """
  if draft.is_tree:
    raise ValueError("Must have a chain of drafts for a link, we instead got a tree")
  if draft.tokens.shape[1] == 0:
    return None
  if not isinstance(draft.proposal, SparseDistribution):
    kind = type(draft.proposal).__name__
    raise ValueError(f"Must have a drafter of sparse integer distributions for this wire, we instead got {kind}")
  return on_host(draft.proposal)
