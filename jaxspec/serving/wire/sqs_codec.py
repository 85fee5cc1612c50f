"""Drafts with sparse integer distributions as bytes, in every coding; and no drafts at all."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from jaxspec.codecs.codec import SparseCodec
from jaxspec.codecs.sparse_distribution import SparseDistribution
from jaxspec.core.types import Cursor, Draft, Drafter, Verdict
from jaxspec.serving.wire.arrays import no_distributions, on_host, put_at, record_of
from jaxspec.serving.wire.bitstream import require
from jaxspec.serving.wire.envelope import Frames
from jaxspec.serving.wire.frame_reader import FrameReader
from jaxspec.serving.wire.framing import max_distribution_bytes, max_message_bytes, write_distribution, write_drafts
from jaxspec.serving.wire.handshake import Agreement
from jaxspec.serving.wire.records import Limits
from jaxspec.serving.wire.round_codec import (
  Framed,
  Replies,
  check_rows,
  distributions_of,
  no_drafts,
  profile_of,
)


class _Records(Framed):
  """Frames of records: a chain of drafts with the distribution of each. Every live row needs verification in every round."""

  max_sent: int

  def reader(self, max_len: int = 0) -> FrameReader:
    """What reads the frames, whatever the length of a row."""
    return FrameReader(self.limits)

  def max_frame_bytes(self, agreement: Agreement) -> int:
    most = max_message_bytes(self.limits)
    return max(most, max_distribution_bytes(self.limits)) if self.may_request else most

  def encode_draft(self, draft: Draft, cursor: Cursor, agreement: Agreement) -> tuple[Frames, np.ndarray]:
    distribution, draft = distributions_of(draft), on_host(draft._replace(proposal=()))
    frames: Frames = [None] * len(cursor.live)
    bits = np.zeros(len(cursor.live), np.int64)
    for row in np.flatnonzero(cursor.live):
      positions = range(int(draft.num_drafted[row]))
      records = [record_of(distribution, row, position, int(draft.tokens[row, position])) for position in positions]
      frames[row], bits[row] = write_drafts(int(cursor.round), records, self.limits)
    return frames, bits

  def decode_draft(self, frames: Frames, cursor: Cursor, agreement: Agreement) -> tuple[Draft, Cursor]:
    rows, window, round_ = len(frames), self.limits.max_drafts, int(cursor.round)
    check_rows(frames, np.asarray(cursor.live))
    tokens, number = np.zeros((rows, window), np.int32), np.zeros(rows, np.int32)
    distribution = no_distributions((rows, window), self.max_sent)
    for row, data in enumerate(frames):
      if data is None:
        continue
      message = self.reader(agreement.max_len).read(data, 0)
      require(message.round == round_, "order", f"round {message.round}, waiting for {round_}")
      number[row] = len(message.tokens)
      room = agreement.max_len - int(cursor.length[row]) - 1  # one position belongs to the target's own token
      require(number[row] <= room, "range", f"{number[row]} drafts, row {row} has room for {room}")
      tokens[row, : number[row]] = message.tokens
      put_at(distribution, row, message.distributions)
    if agreement.target_draws_alone(round_):
      return no_drafts(number, cursor), cursor
    return Draft(tokens, distribution, number), cursor


@dataclasses.dataclass(frozen=True)
class SqsWire(_Records):
  """Drafts with sparse integer distributions, in every coding (`jaxspec.compressed` drafters).

  Coding ``lazy`` sends tokens and counts. The target side asks for the distribution of a rejected draft in a second part.

  Attributes:
    codec: the drafter's.
    window: most drafts of a round, the drafter's.
  """

  codec: SparseCodec
  window: int

  def __post_init__(self):
    _limits_of(self.codec, self.window)  # raises a ValueError for what a header cannot hold

  @property
  def limits(self) -> Limits:
    """What records and replies must keep to."""
    return _limits_of(self.codec, self.window)

  @property
  def max_sent(self) -> int:
    """Room for the tokens of a distribution on the target side."""
    return 1 if self.may_request else self.codec.max_sent

  @property
  def may_request(self) -> bool:
    return self.codec.coding == "lazy"

  @property
  def profile(self) -> str:
    return profile_of("sqs", self.limits)

  def check_drafter(self, drafter: Drafter) -> None:
    if drafter.window != self.window or drafter.may_accept_locally:
      raise ValueError(
        f"Must have a drafter that sends up to {self.window} drafts in every round for this wire, "
        f"we instead got window {drafter.window}, may_accept_locally {drafter.may_accept_locally}"
      )

  def encode_distribution(self, draft: Draft, replies: Replies, round_: int) -> tuple[Frames, np.ndarray]:
    frames: Frames = [None] * len(replies)
    bits, distribution = np.zeros(len(replies), np.int64), distributions_of(draft)
    for row, request in enumerate(replies):
      if request is not None and request.next_token is None:
        record = record_of(distribution, row, request.num_accepted, None)
        frames[row], bits[row] = write_distribution(round_, request.num_accepted, record, self.limits)
    return frames, bits

  def decode_distribution(
    self, frames: Frames, draft: Draft, verdict: Verdict, requests: np.ndarray, round_: int
  ) -> SparseDistribution:
    check_rows(frames, requests)
    distribution = no_distributions((len(frames),), self.codec.max_sent)
    for row in np.flatnonzero(requests):
      position = int(verdict.num_accepted[row])
      got = self.reader().read(frames[row], 1)
      at = (got.round, got.position)
      require(at == (round_, position), "order", f"distribution of round {at[0]}, position {at[1]}")
      token, count = int(draft.tokens[row, position]), int(draft.proposal.counts[row, position, 0])
      ids, counts = got.distributions.ids[0], got.distributions.counts[0]
      said = int(counts[ids == token].sum())  # entries after the last one have no weight
      require(said == count, "range", f"token {token} of row {row} has count {said}, its draft said {count}")
      put_at(distribution, slice(row, row + 1), got.distributions)
    return distribution


@dataclasses.dataclass(frozen=True)
class PlainWire(_Records):
  """No drafts: the target side draws every token (`jaxspec.core.loop.NO_DRAFTER`), for an edge without a draft network.

  Attributes:
    vocab: tokens V.
  """

  vocab: int
  max_sent = 1

  @property
  def limits(self) -> Limits:
    """What replies must keep to."""
    return Limits(self.vocab, 1, "paper", 1, 0, False)

  @property
  def profile(self) -> str:
    return profile_of("plain", self.limits)

  def check_drafter(self, drafter: Drafter) -> None:
    if drafter.window:
      raise ValueError(f"Must have a drafter without drafts for this wire, we instead got a window of {drafter.window}")


@functools.cache
def _limits_of(codec: SparseCodec, window: int) -> Limits:
  """One object for equal choices: its sizes are big integers that are computed once."""
  return Limits.of(codec, window)
