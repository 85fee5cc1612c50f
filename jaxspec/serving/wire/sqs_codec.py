"""Drafts with sparse integer distributions as bytes, in every coding; and rounds without drafts.

The bits of a distribution are those of `jaxspec.serving.wire.distribution_bits`.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np

from jaxspec.codecs.codec import SparseCodec
from jaxspec.codecs.sparse_distribution import SparseDistribution
from jaxspec.core.types import Cursor, Draft, Drafter
from jaxspec.serving.wire.arrays import distributions_of_records, on_host, record_of
from jaxspec.serving.wire.bitstream import require
from jaxspec.serving.wire.distribution_bits import Limits
from jaxspec.serving.wire.framing import (
  Frame,
  max_distribution_bytes,
  max_message_bytes,
  read_distribution,
  read_drafts,
  write_distribution,
  write_drafts,
)
from jaxspec.serving.wire.handshake import Agreement
from jaxspec.serving.wire.reply_digest import DIGEST_BYTES, NO_REPLIES
from jaxspec.serving.wire.round_codec import BaseCodec, DecodedDraft, distributions_of, draft_of


class _RecordsCodec(BaseCodec):
  """Frames of records: a chain of drafts with the distribution of each. Every round is verified."""

  @property
  def feature_width(self) -> int:
    return 0

  @property
  def max_sent(self) -> int:
    raise NotImplementedError

  def max_frame_bytes(self, max_len: int) -> int:
    most = max_message_bytes(self.limits) + self._skipped
    return max(most, max_distribution_bytes(self.limits)) if self.may_request else most

  @property
  def _skipped(self) -> int:
    """Bytes before the records."""
    return 0 if self.bonus else DIGEST_BYTES

  def encode_draft(self, draft: Draft, cursor: Cursor, max_len: int, assumes: bytes = NO_REPLIES) -> tuple[bytes, int]:
    records = []
    if draft.tokens.shape[1]:
      distribution, draft = distributions_of(draft), on_host(draft._replace(proposal=()))
      tokens = draft.tokens[0, : draft.num_drafted[0]].tolist()
      records = [record_of(distribution, position, token) for position, token in enumerate(tokens)]
    return write_drafts(int(cursor.round), records, self.limits, assumes=b"" if self.bonus else assumes)

  def decode_draft(self, frame: Frame | bytes, cursor: Cursor, agreement: Agreement) -> DecodedDraft:
    round_, length = int(cursor.round), int(cursor.length[0])
    require(bool(cursor.live[0]), "order", "the row has ended")
    message = read_drafts(frame, self.limits, skipped=self._skipped)
    require(message.round == round_, "order", f"a frame of round {message.round} in round {round_}")
    room = agreement.max_len - length - 1  # one position belongs to the cloud's own token
    require(len(message.tokens) <= room, "range", f"{len(message.tokens)} drafts, the row has room for {room}")
    tokens = np.array([int(cursor.last[0]), *message.tokens], np.int32)
    return DecodedDraft(draft_of(message, self.limits.max_drafts, self.max_sent), cursor, length - 1, tokens)


@dataclasses.dataclass(frozen=True)
class SqsCodec(_RecordsCodec):
  """Drafts with sparse integer distributions, in every coding (`jaxspec.drafters.sqs_drafter.SqsDrafter`).

  Coding ``lazy`` sends tokens and counts. The cloud requests the distribution of a rejected draft in a second part.

  Attributes:
    distribution_codec: the drafter's.
    window: most drafts of a round, the drafter's.
    block, bonus: see `RoundCodec`.
  Raises:
    ValueError: for a window or a denominator that a header cannot hold.
  """

  method: ClassVar[str] = "sqs"
  distribution_codec: SparseCodec
  window: int
  block: bool = False
  bonus: bool = True

  def __post_init__(self):
    object.__setattr__(self, "limits", Limits.of(self.distribution_codec, self.window))

  @property
  def max_sent(self) -> int:
    return 1 if self.may_request else self.distribution_codec.max_sent

  @property
  def may_request(self) -> bool:
    return self.distribution_codec.coding == "lazy"

  def check_drafter(self, drafter: Drafter) -> None:
    if drafter.window != self.window or drafter.may_accept_locally:
      raise ValueError(
        f"Must have a drafter that sends up to {self.window} drafts in every round for this codec, "
        f"we instead got window {drafter.window}, may_accept_locally {drafter.may_accept_locally}"
      )

  def encode_distribution(self, draft: Draft, position: int, round_: int) -> tuple[bytes, int]:
    record = record_of(distributions_of(draft), position, None)
    return write_distribution(round_, position, record, self.limits)

  def decode_distribution(self, frame: Frame | bytes, draft: Draft, position: int, round_: int) -> SparseDistribution:
    require(self.may_request, "kind", "a distribution without a request")
    sent_round, sent_position, record = read_distribution(frame, self.limits)
    at = (sent_round, sent_position)
    require(at == (round_, position), "order", f"distribution of round {at[0]}, position {at[1]}")
    token, count = int(draft.tokens[0, position]), int(draft.proposal.counts[0, position, 0])
    sent = dict(zip(record.ids, record.counts)).get(token, 0)
    require(sent == count, "range", f"token {token} has count {sent}, its draft said {count}")
    found = distributions_of_records([record], 1, self.distribution_codec.max_sent)
    return SparseDistribution(*(leaf[0] for leaf in found))


@dataclasses.dataclass(frozen=True)
class PlainCodec(_RecordsCodec):
  """Rounds without drafts, for an edge without a draft network (`jaxspec.core.no_draft.NO_DRAFTER`).

  Attributes:
    vocab: tokens V.
  """

  method: ClassVar[str] = "plain"
  vocab: int

  def __post_init__(self):
    object.__setattr__(self, "limits", Limits(self.vocab, 1, "paper", 1, 0, False))

  @property
  def distribution_codec(self) -> None:
    return None

  @property
  def max_sent(self) -> int:
    return 1

  def check_drafter(self, drafter: Drafter) -> None:
    if drafter.window:
      raise ValueError(f"Must have a drafter without drafts for this codec, we instead got a window of {drafter.window}")
