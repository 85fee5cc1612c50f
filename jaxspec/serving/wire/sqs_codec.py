"""Drafts with sparse integer distributions as bytes, in every coding; and no drafts at all."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from jaxspec.codecs.codec import SparseCodec
from jaxspec.codecs.sparse_distribution import SparseDistribution
from jaxspec.core.types import Cursor, Draft, Drafter
from jaxspec.serving.wire.arrays import on_host, record_of
from jaxspec.serving.wire.bitstream import require
from jaxspec.serving.wire.frame_reader import FrameReader
from jaxspec.serving.wire.framing import Frame, max_distribution_bytes, max_message_bytes, write_distribution, write_drafts
from jaxspec.serving.wire.handshake import Agreement
from jaxspec.serving.wire.records import Limits
from jaxspec.serving.wire.round_codec import DecodedDraft, Framed, distributions_of, draft_of


class _Records(Framed):
  """Frames of records: a chain of drafts with the distribution of each. Every round is verified."""

  max_sent: int

  def reader(self, max_len: int = 0) -> FrameReader:
    """What reads the frames, whatever the length of a row."""
    return FrameReader(self.limits)

  def max_frame_bytes(self, max_len: int) -> int:
    most = max_message_bytes(self.limits)
    return max(most, max_distribution_bytes(self.limits)) if self.may_request else most

  def encode_draft(self, draft: Draft, cursor: Cursor, max_len: int) -> tuple[bytes, int]:
    distribution, draft = distributions_of(draft), on_host(draft._replace(proposal=()))
    tokens = draft.tokens[0, : draft.num_drafted[0]].tolist()
    records = [record_of(distribution, position, token) for position, token in enumerate(tokens)]
    return write_drafts(int(cursor.round), records, self.limits)

  def decode_draft(self, frame: Frame | bytes, cursor: Cursor, agreement: Agreement) -> DecodedDraft:
    round_, length = int(cursor.round), int(cursor.length[0])
    require(bool(cursor.live[0]), "order", "the row has ended")
    got = self.reader(agreement.max_len).read(frame, 0)
    require(got.round == round_, "order", f"round {got.round}, waiting for {round_}")
    room = agreement.max_len - length - 1  # one position belongs to the cloud's own token
    require(len(got.tokens) <= room, "range", f"{len(got.tokens)} drafts, the row has room for {room}")
    tokens = np.concatenate([cursor.last, got.tokens]).astype(np.int32)
    return DecodedDraft(draft_of(got, self.limits.max_drafts), cursor, length - 1, tokens)


@dataclasses.dataclass(frozen=True)
class SqsWire(_Records):
  """Drafts with sparse integer distributions, in every coding (`jaxspec.drafters.compressed.CompressedDrafter` drafters).

  Coding ``lazy`` sends tokens and counts. The cloud requests the distribution of a rejected draft in a second part.

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
    """Room for the tokens of a distribution in the cloud."""
    return 1 if self.may_request else self.codec.max_sent

  @property
  def may_request(self) -> bool:
    return self.codec.coding == "lazy"

  def check_drafter(self, drafter: Drafter) -> None:
    if drafter.window != self.window or drafter.may_accept_locally:
      raise ValueError(
        f"Must have a drafter that sends up to {self.window} drafts in every round for this wire, "
        f"we instead got window {drafter.window}, may_accept_locally {drafter.may_accept_locally}"
      )

  def encode_distribution(self, draft: Draft, position: int, round_: int) -> tuple[bytes, int]:
    record = record_of(distributions_of(draft), position, None)
    return write_distribution(round_, position, record, self.limits)

  def decode_distribution(self, frame: Frame | bytes, draft: Draft, position: int, round_: int) -> SparseDistribution:
    got = self.reader().read(frame, 1)
    at = (got.round, got.position)
    require(at == (round_, position), "order", f"distribution of round {at[0]}, position {at[1]}")
    token, count = int(draft.tokens[0, position]), int(draft.proposal.counts[0, position, 0])
    ids, counts = got.distributions.ids[0], got.distributions.counts[0]
    said = int(counts[ids == token].sum())  # entries after the last one have no weight
    require(said == count, "range", f"token {token} has count {said}, its draft said {count}")
    return got.distributions  # of one position: leaves [1, ...]


@dataclasses.dataclass(frozen=True)
class PlainWire(_Records):
  """No drafts: the cloud draws every token (`jaxspec.core.loop.NO_DRAFTER`), for an edge without a draft network.

  Attributes:
    vocab: tokens V.
  """

  vocab: int
  max_sent = 1

  @property
  def limits(self) -> Limits:
    """What replies must keep to."""
    return Limits(self.vocab, 1, "paper", 1, 0, False)

  def check_drafter(self, drafter: Drafter) -> None:
    if drafter.window:
      raise ValueError(f"Must have a drafter without drafts for this wire, we instead got a window of {drafter.window}")


@functools.cache
def _limits_of(codec: SparseCodec, window: int) -> Limits:
  """One object for equal choices: its sizes are big integers that are computed once."""
  return Limits.of(codec, window)
