"""Codecs of rounds: the bytes of a round of one method.

A codec (`RoundCodec`) is a frozen value that both ends of a stream have. It converts the arrays of one row to a frame and
back:

1. ``encode_draft``: the edge's `Draft` to a frame.
2. ``decode_draft``: a frame to the `DecodedDraft` that the cloud verifies. Its cursor is the cloud's own.
   `jaxspec.serving.wire.ciar_codec.CiarCodec` moves it over the tokens that the edge accepted locally.
3. ``encode_reply`` and ``decode_reply``: the cloud's decision.

A codec with ``may_request`` lets the cloud request a distribution before it ends a round (coding ``lazy``). Then the reply
is a request, and ``encode_distribution`` and ``decode_distribution`` are the second part of the call. The frames are those
of `jaxspec.serving.wire.framing` and `jaxspec.serving.wire.ciar_message`. Everything that arrives is checked against the
cloud's own cursor. Functions that read take bytes, or a `Frame`, whose checksum is not computed again.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple, Protocol

import numpy as np

from jaxspec.codecs.codec import SparseCodec
from jaxspec.codecs.sparse_distribution import SparseDistribution
from jaxspec.core.types import Array, Cursor, Draft, Drafter, Verdict
from jaxspec.serving.wire.arrays import distributions_of_records, host_array, on_host, scalar
from jaxspec.serving.wire.bitstream import require
from jaxspec.serving.wire.distribution_bits import Limits
from jaxspec.serving.wire.framing import (
  FIRST,
  REPLY,
  REPLY_BYTES,
  REQUEST,
  VOID,
  DraftMessage,
  Frame,
  Reply,
  read_reply,
  unframe,
  write_reply,
)
from jaxspec.serving.wire.handshake import Agreement
from jaxspec.serving.wire.reply_digest import DIGEST_BYTES, NO_REPLIES


class DecodedDraft(NamedTuple):
  """The frame of a round, on the host.

  Attributes:
    draft: drafts and their distributions, leaves ``[1, K, ...]``, without payload.
    cursor: the cloud's cursor as the frame moved it, leaves ``[1]``, round ``[]``.
    start: position of the first token that the cloud has not read.
    tokens: ``[fed]`` int32, the committed tokens from ``start`` on, then the drafts.
    features: ``[fed, D]`` float32, their interval features; None where none are sent.
  """

  draft: Draft
  cursor: Cursor
  start: int
  tokens: np.ndarray
  features: np.ndarray | None = None


class RoundCodec(Protocol):
  """The codec of the rounds of a row; frozen, and equal for equal settings.

  Attributes:
    method: name of the method in a `Profile`.
    limits: of records and replies; ``limits.max_drafts`` is the most drafts of a round.
    distribution_codec: makes the sparse distributions; None where drafts have none.
    feature_width: numbers in the interval features of a token; 0 sends none.
    max_sent: room for the tokens of a distribution in a decoded draft; 0 without distributions.
    may_request: whether the cloud may request a distribution before it ends a round.
    block: whether the cloud tests the drafts of a round together (`jaxspec.rules.block_rule`).
    bonus: whether the cloud also draws a token after full acceptance. Without it, drafts say which replies they assume
      (`jaxspec.serving.wire.reply_digest`), and the reply to others is `VOID`.
  """

  method: ClassVar[str]

  @property
  def bonus(self) -> bool: ...

  @property
  def block(self) -> bool: ...

  @property
  def limits(self) -> Limits: ...

  @property
  def distribution_codec(self) -> SparseCodec | None: ...

  @property
  def feature_width(self) -> int: ...

  @property
  def max_sent(self) -> int: ...

  @property
  def may_request(self) -> bool: ...

  def check_drafter(self, drafter: Drafter) -> None:
    """Raises a ValueError for a drafter whose drafts have no frames of this kind."""
    ...

  def max_frame_bytes(self, max_len: int) -> int:
    """Length of the longest valid frame of the edge, in a row of ``max_len`` tokens."""
    ...

  def encode_first(self, token: int) -> bytes:
    """The frame of token 0."""
    ...

  def decode_first(self, frame: Frame | bytes) -> int:
    """Reads `encode_first`.

    Raises:
      MessageError: if it is anything but a valid first frame.
    """
    ...

  def encode_draft(self, draft: Draft, cursor: Cursor, max_len: int, assumes: bytes = NO_REPLIES) -> tuple[bytes, int]:
    """The frame of a round, and the bits of its payload.

    Args:
      draft: leaves ``[1, K, ...]``; only those that are sent are brought to the host.
      cursor: the edge's, from before the round, on the host.
      max_len: tokens of the row.
      assumes: the digest of the assumed replies; not sent by a codec with ``bonus``.
    Raises:
      ValueError: for a draft that frames of this kind cannot hold.
    """
    ...

  def decode_draft(self, frame: Frame | bytes, cursor: Cursor, agreement: Agreement) -> DecodedDraft:
    """Reads `encode_draft`.

    Args:
      cursor: the cloud's own, leaves ``[1]``, on the host.
    Raises:
      MessageError: if it is anything but a valid frame of this row at this position.
    """
    ...

  def assumption(self, frame: Frame | bytes) -> tuple[int, bytes]:
    """The round of the edge's frame, and the digest of the replies that it assumes; empty with ``bonus``.

    Raises:
      MessageError: if it has none.
    """
    ...

  def encode_reply(self, round_: int, num_accepted: int, next_token: int | None, kind: int = REPLY) -> bytes:
    """The reply to a round. A `REQUEST` for the distribution of the rejected draft has no token, nor has a `VOID`."""
    ...

  def decode_reply(self, frame: Frame | bytes, round_: int, num_verified: int) -> Reply:
    """Reads `encode_reply`, of a round with ``num_verified`` drafts.

    Raises:
      MessageError: if it is anything but a valid reply to this round.
    """
    ...

  def encode_distribution(self, draft: Draft, position: int, round_: int) -> tuple[bytes, int]:
    """The requested distribution, of the draft at ``position``, and the bits of its payload."""
    ...

  def decode_distribution(self, frame: Frame | bytes, draft: Draft, position: int, round_: int) -> SparseDistribution:
    """Reads `encode_distribution`; leaves ``[1]`` on the host.

    Args:
      draft: as it was decoded.
    Raises:
      MessageError: if it is anything but the distribution of that draft.
    """
    ...


class BaseCodec:
  """What all codecs share: replies, that nothing is requested or assumed, and that drafts are tested one by one."""

  limits: Limits  # set when the codec is made
  block: bool = False
  bonus: bool = True

  @property
  def may_request(self) -> bool:
    return False

  def encode_first(self, token: int) -> bytes:
    return write_reply(0, 0, token, self.limits, kind=FIRST)

  def decode_first(self, frame: Frame | bytes) -> int:
    token = read_reply(frame, self.limits, round_=0, num_drafted=0, expected=FIRST).next_token
    assert token is not None, "a frame of kind FIRST has a token"
    return token

  def assumption(self, frame: Frame | bytes) -> tuple[int, bytes]:
    frame = unframe(frame, len(frame.data if isinstance(frame, Frame) else frame))
    if self.bonus:
      return frame.round, b""
    require(len(frame.payload) >= DIGEST_BYTES, "length", f"payload of {len(frame.payload)} bytes")
    return frame.round, frame.payload[:DIGEST_BYTES]

  def encode_reply(self, round_: int, num_accepted: int, next_token: int | None, kind: int = REPLY) -> bytes:
    return write_reply(round_, num_accepted, next_token, self.limits, kind=kind)

  def decode_reply(self, frame: Frame | bytes, round_: int, num_verified: int) -> Reply:
    frame = unframe(frame, REPLY_BYTES)
    allowed = {REQUEST: self.may_request, VOID: not self.bonus}
    expected = frame.kind if allowed.get(frame.kind) else REPLY
    limits, number = self.limits, num_verified
    return read_reply(frame, limits, round_=round_, num_drafted=number, expected=expected, bonus=self.bonus)

  def encode_distribution(self, draft: Draft, position: int, round_: int) -> tuple[bytes, int]:
    raise ValueError("Must have a codec with requests (coding 'lazy') to send a distribution alone, we instead got another")

  def decode_distribution(self, frame: Frame | bytes, draft: Draft, position: int, round_: int) -> SparseDistribution:
    raise ValueError("Must have a codec with requests (coding 'lazy') to read a distribution alone, we instead got another")


def draft_of(message: DraftMessage, window: int, max_sent: int) -> Draft:
  """The drafts of a message, leaves ``[1, K, ...]``.

  Args:
    window: K.
    max_sent: room for the tokens of a distribution; 0 gives no proposal.
  """
  number = len(message.tokens)
  tokens = np.zeros((1, window), np.int32)
  tokens[0, :number] = message.tokens
  proposal = distributions_of_records(message.records, window, max_sent) if max_sent else ()
  return Draft.chain(host_array(tokens), proposal, number, 0)


def needs_cloud(draft: Draft, cursor: Cursor) -> bool:
  """Whether a round of one row is verified; ``cursor`` is on the host."""
  return bool(cursor.live[0]) and bool(scalar(draft.needs_verify))


def verdict_of(num_accepted: int, next_token: int | None, num_local: Array) -> Verdict:
  """The verdict of a reply, leaves ``[1]`` on the host, after ``num_local [1]`` locally accepted tokens."""
  accepted = np.asarray(num_local, np.int32) + np.int32(num_accepted)
  token, number = (0, 0) if next_token is None else (next_token, 1)
  verdict = Verdict.one(host_array(accepted), host_array(np.full(1, token, np.int32)))
  return verdict._replace(num_next=host_array(np.full(1, number, np.int32)))


def distributions_of(draft: Draft) -> SparseDistribution:
  """The distributions ``[1, K]`` of a draft, on the host.

  Raises:
    ValueError: for a draft that no frame can hold.
  """
  if draft.is_tree:
    raise ValueError("Must have a chain of drafts for a link, we instead got a tree")
  if not isinstance(draft.proposal, SparseDistribution):
    kind = type(draft.proposal).__name__
    raise ValueError(f"Must have a drafter of sparse integer distributions for this codec, we instead got {kind}")
  return on_host(draft.proposal)
