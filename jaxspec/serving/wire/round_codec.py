"""Wires: what a round of one method looks like as bytes.

A wire is a frozen value that both ends hold. It turns the arrays of a round into one frame for each row that needs
verification, and back:

1. ``encode_draft``: the draft side's `Draft` to frames.
2. ``decode_draft``: frames to the `Draft` and the `Cursor` that the verifier reads. The cursor is the target side's own. A
   `CiarWire` moves it over the tokens that the draft side accepted locally, which the frames bring.
3. ``encode_reply`` and ``decode_reply``: what the target side decided about every row that needed verification.

A wire with ``may_request`` lets the target side ask for a distribution before it ends a round (coding ``lazy``). Its reply
then holds requests; ``encode_distribution`` and ``decode_distribution`` are the second part. The frames are those of
`jaxspec.serving.wire.framing` and `jaxspec.serving.wire.ciar_message`. All that arrives is checked against the target side's
own cursor.
"""

from __future__ import annotations

import dataclasses
from typing import Protocol

import numpy as np

from jaxspec.codecs.sparse_distribution import SparseDistribution
from jaxspec.core import verdicts as drafts
from jaxspec.core.types import Array, Cursor, Draft, Drafter, Verdict
from jaxspec.serving.wire.arrays import on_host
from jaxspec.serving.wire.bitstream import require
from jaxspec.serving.wire.envelope import Frames
from jaxspec.serving.wire.frame_reader import FrameReader
from jaxspec.serving.wire.framing import FIRST, REPLY, REQUEST, Reply, read_reply, write_reply
from jaxspec.serving.wire.handshake import Agreement
from jaxspec.serving.wire.records import Limits

Replies = list[Reply | None]
_KIND_BYTE = 3  # of a frame


class Wire(Protocol):
  """What a round looks like as bytes; frozen, and equal for equal choices.

  Attributes:
    profile: the choices as text. Both ends of a stream must have the same.
    may_request: whether the target side may ask for a distribution before it ends a round.
    limits: what records and replies must keep to; ``limits.max_drafts`` is the most drafts of a round.
  """

  @property
  def profile(self) -> str: ...

  @property
  def limits(self) -> Limits: ...

  @property
  def may_request(self) -> bool: ...

  def check_drafter(self, drafter: Drafter) -> None:
    """Raises a ValueError for a drafter whose drafts have no frames of this kind."""
    ...

  def max_frame_bytes(self, agreement: Agreement) -> int:
    """No valid frame of the draft side is longer."""
    ...

  def encode_first(self, prefill: Verdict) -> Frames:
    """Token 0 of every row."""
    ...

  def decode_first(self, frames: Frames) -> Verdict:
    """Reads `encode_first`.

    Raises:
      MessageError: unless every row has a valid frame.
    """
    ...

  def encode_draft(self, draft: Draft, cursor: Cursor, agreement: Agreement) -> tuple[Frames, np.ndarray]:
    """Frames of the live rows that need verification, and the bits of their payload ``[B]`` int64.

    Args:
      draft: leaves ``[B, K, ...]``; only those that are sent are brought to the host.
      cursor: the draft side's, from before the round, on the host.
    Raises:
      ValueError: for a draft that frames of this kind cannot hold.
    """
    ...

  def reader(self, max_len: int) -> FrameReader:
    """What reads the draft side's frames without their stream, of rows of up to ``max_len`` tokens."""
    ...

  def decode_draft(self, frames: Frames, cursor: Cursor, agreement: Agreement) -> tuple[Draft, Cursor]:
    """The draft that frames describe, and the cursor to verify it with, with leaves on the host.

    Args:
      cursor: the target side's own, on the host.
    Raises:
      MessageError: if a row that must send has no valid frame for this round, or another row has one.
    """
    ...

  def encode_reply(self, verdict: Verdict, rows: np.ndarray, requests: np.ndarray, round_: int) -> Frames:
    """Replies to ``rows [B]`` bool, those among them with ``requests [B]`` bool being requests."""
    ...

  def decode_reply(self, frames: Frames, rows: np.ndarray, num_verified: np.ndarray, round_: int) -> Replies:
    """Replies to ``rows [B]`` bool, whose frames brought ``num_verified [B]`` drafts.

    Raises:
      MessageError: unless exactly these rows have a valid reply or request.
    """
    ...

  def encode_distribution(self, draft: Draft, replies: Replies, round_: int) -> tuple[Frames, np.ndarray]:
    """The distributions that requests among ``replies`` ask for, and the bits of their payload ``[B]`` int64."""
    ...

  def decode_distribution(self, frames: Frames, draft: Draft, verdict: Verdict, requests: np.ndarray, round_: int):
    """Distributions ``[B]`` on the host, of the rows with ``requests [B]`` bool.

    Args:
      draft: as it was decoded, on the host.
    Raises:
      MessageError: unless exactly these rows have a valid frame that fits the draft.
    """
    ...


class Framed:
  """The half of a wire that all kinds share: replies, and that nothing is requested."""

  limits: Limits

  @property
  def may_request(self) -> bool:
    return False

  def encode_first(self, prefill: Verdict) -> Frames:
    tokens = np.asarray(prefill.next_token)
    return [write_reply(0, 0, int(token), self.limits, first=True) for token in tokens]

  def decode_first(self, frames: Frames) -> Verdict:
    check_rows(frames, np.ones(len(frames), bool))
    tokens = [read_reply(data, self.limits, round_=0, num_drafted=0, expected=FIRST).next_token for data in frames]
    return Verdict(np.zeros(len(frames), np.int32), np.asarray(tokens, np.int32))

  def encode_reply(self, verdict: Verdict, rows: np.ndarray, requests: np.ndarray, round_: int) -> Frames:
    frames: Frames = [None] * len(rows)
    for row in np.flatnonzero(rows):
      token = None if requests[row] else int(verdict.next_token[row])
      frames[row] = write_reply(round_, int(verdict.num_accepted[row]), token, self.limits)
    return frames

  def decode_reply(self, frames: Frames, rows: np.ndarray, num_verified: np.ndarray, round_: int) -> Replies:
    check_rows(frames, rows)

    def read(data: bytes | None, number: int) -> Reply | None:
      if data is None:
        return None
      is_request = self.may_request and data[_KIND_BYTE : _KIND_BYTE + 1] == bytes([REQUEST])
      expected = REQUEST if is_request else REPLY
      return read_reply(data, self.limits, round_=round_, num_drafted=int(number), expected=expected)

    return [read(data, number) for data, number in zip(frames, num_verified)]

  def encode_distribution(self, draft: Draft, replies: Replies, round_: int) -> tuple[Frames, np.ndarray]:
    raise ValueError("Must have a wire with requests (coding 'lazy') to send distributions apart, we instead got another")

  def decode_distribution(self, frames: Frames, draft: Draft, verdict: Verdict, requests: np.ndarray, round_: int):
    raise ValueError("Must have a wire with requests (coding 'lazy') to read distributions apart, we instead got another")


def rows_to_verify(draft: Draft, cursor: Cursor) -> np.ndarray:
  """``[B]`` bool on the host, live rows that need verification."""
  live = np.asarray(cursor.live)
  return live if draft.needs_verify is None else live & np.asarray(draft.needs_verify)


def verdict_of(replies: Replies, num_local: Array) -> Verdict:
  """The verdict that replies describe, on the host; rows without one commit their ``num_local [B]`` tokens."""
  accepted = [0 if reply is None else reply.num_accepted for reply in replies]
  tokens = [0 if reply is None or reply.next_token is None else reply.next_token for reply in replies]
  return Verdict(np.asarray(accepted, np.int32) + np.asarray(num_local, np.int32), np.asarray(tokens, np.int32))


def profile_of(name: str, limits: Limits, **more: int) -> str:
  """All of a wire's choices as one line of text."""
  fields = dataclasses.asdict(limits) | more
  return f"{name}:" + ",".join(f"{key}={int(value) if value in (True, False) else value}" for key, value in fields.items())


def check_rows(frames: Frames, rows: np.ndarray) -> None:
  """Refuses frames of other rows than ``rows [B]`` bool."""
  for row, data in enumerate(frames):
    require(data is None or bool(rows[row]), "order", f"row {row} has nothing to say and has a frame")
    require(data is not None or not rows[row], "order", f"row {row} must have a frame and has none")


def no_drafts(number: np.ndarray, cursor: Cursor) -> Draft:
  """The empty draft of a round in which the target side draws alone."""
  require(not number.any(), "range", "drafts in a round in which the target side draws alone")
  return on_host(drafts.empty_draft(np.asarray(cursor.last)))


def distributions_of(draft: Draft) -> SparseDistribution | None:
  """The distributions ``[B, K]`` of a draft, on the host; None for an empty one.

  Raises:
    ValueError: for a draft that no frame can hold.
  """
  if draft.parents is not None:
    raise ValueError("Must have a chain of drafts for a link, we instead got a tree")
  if draft.tokens.shape[1] == 0:
    return None
  if not isinstance(draft.proposal, SparseDistribution):
    kind = type(draft.proposal).__name__
    raise ValueError(f"Must have a drafter of sparse integer distributions for this wire, we instead got {kind}")
  return on_host(draft.proposal)
