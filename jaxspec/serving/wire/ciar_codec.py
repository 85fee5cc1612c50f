"""Rounds of an edge that accepts tokens locally as bytes: pending tokens and a window of drafts."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from jaxspec.codecs.codec import SparseCodec
from jaxspec.core.payloads import PendingTokens
from jaxspec.core.types import Cursor, Draft, Drafter
from jaxspec.serving.wire.arrays import host_array, on_host, record_of
from jaxspec.serving.wire.bitstream import require
from jaxspec.serving.wire.ciar_message import CiarLimits, read_ciar, write_ciar
from jaxspec.serving.wire.distribution_bits import Record
from jaxspec.serving.wire.framing import Frame
from jaxspec.serving.wire.handshake import Agreement
from jaxspec.serving.wire.reply_digest import NO_REPLIES
from jaxspec.serving.wire.round_codec import BaseCodec, DecodedDraft, distributions_of, draft_of


@dataclasses.dataclass(frozen=True)
class CiarCodec(BaseCodec):
  """Pending tokens and a window of drafts (`jaxspec.drafters.ciar_drafter.CiarDrafter`).

  Attributes:
    vocab: tokens V.
    window: most tokens to be verified in one round.
    distribution_codec: makes the distributions of a window, for the rule `jaxspec.rules.lossless_sparse.lossless_sparse`;
      None sends ids alone, for the rule `jaxspec.rules.greedy.greedy`.
    feature_width: numbers in the interval features of a token; 0 sends none.
  Raises:
    ValueError: for settings that do not go together, or that a message cannot hold.
  """

  method: ClassVar[str] = "ciar"
  vocab: int
  window: int
  distribution_codec: SparseCodec | None = None
  feature_width: int = 0

  def __post_init__(self):
    sent = self.distribution_codec
    if sent is not None and sent.vocab != self.vocab:
      raise ValueError(f"Must have a codec of {self.vocab} tokens, we instead got one of {sent.vocab}")
    if sent is not None and sent.coding == "lazy":
      raise ValueError("Must have a codec that sends whole distributions, we instead got coding 'lazy'")
    sizes = dict(vocab=self.vocab, window=self.window, feature_width=self.feature_width)
    object.__setattr__(self, "limits", CiarLimits.of(sent, max_len=1, **sizes).limits)

  @property
  def max_sent(self) -> int:
    return 0 if self.distribution_codec is None else self.distribution_codec.max_sent

  def message_limits(self, max_len: int) -> CiarLimits:
    """The limits of a message of rows of ``max_len`` tokens."""
    return CiarLimits(self.limits, max_len, self.distribution_codec is not None, self.feature_width)

  def check_drafter(self, drafter: Drafter) -> None:
    if not drafter.may_accept_locally or drafter.window <= self.window:
      raise ValueError(
        f"Must have a drafter that may accept tokens locally, with windows of {self.window}, for this codec, "
        f"we instead got window {drafter.window}, may_accept_locally {drafter.may_accept_locally}"
      )

  def max_frame_bytes(self, max_len: int) -> int:
    return self.message_limits(max_len).max_bytes

  def encode_draft(self, draft: Draft, cursor: Cursor, max_len: int, assumes: bytes = NO_REPLIES) -> tuple[bytes, int]:
    has_records = self.distribution_codec is not None and draft.tokens.shape[1] > 0
    distribution = distributions_of(draft) if has_records else None
    draft = on_host(draft._replace(proposal=()))
    length, local = int(cursor.length[0]), int(draft.num_local[0])
    # Without a payload the cloud draws alone: it has read all but the newest token.
    read, committed = length - 1, [int(cursor.last[0])]
    if isinstance(draft.payload, PendingTokens):
      read = int(draft.payload.read[0])
      committed = draft.payload.tokens[0, read:length].tolist()
    pending = [*committed, *draft.tokens[0, :local].tolist()]
    tokens: list[int] = draft.tokens[0, local : draft.num_drafted[0]].tolist()
    features = self._features(draft, read, len(pending) + len(tokens))
    window: Sequence[Record] | Sequence[int] = tokens
    if distribution is not None:
      window = [record_of(distribution, position, token) for position, token in enumerate(tokens)]
    return write_ciar(int(cursor.round), read, pending, window, self.message_limits(max_len), features)

  def _features(self, draft: Draft, read: int, number: int) -> np.ndarray | None:
    """Features ``[number, D]`` of the tokens from position ``read`` on; None where the codec sends none."""
    if not isinstance(draft.payload, PendingTokens):
      return np.zeros((number, self.feature_width), np.float32) if self.feature_width else None
    features = None if isinstance(draft.payload.features, tuple) else np.asarray(draft.payload.features)
    width = 0 if features is None else features.shape[-1]
    if width != self.feature_width:
      raise ValueError(
        f"Must have a drafter with {self.feature_width} features a token for this codec, we instead got {width}"
      )
    return None if features is None or not width else features[0, read : read + number]

  def decode_draft(self, frame: Frame | bytes, cursor: Cursor, agreement: Agreement) -> DecodedDraft:
    size, length, last = agreement.max_len, int(cursor.length[0]), int(cursor.last[0])
    # Before its first call the edge may have a token 0 of its own, and the cloud cannot know whether it ends the row.
    is_open = length == 1 and size > 1
    require(is_open or bool(cursor.live[0]), "order", "the row has ended")
    message = read_ciar(frame, self.message_limits(size))
    pending, drafted, end = message.pending, len(message.tokens), message.read + len(message.pending)
    require(message.read == length - 1, "order", f"tokens from position {message.read} on, {length - 1} positions are known")
    require(is_open or pending[0] == last, "order", "the row does not continue the cloud's own token")
    require(not set(pending) & set(agreement.end_tokens), "order", "the row goes on after an end token")
    room = size - end - 1  # one position belongs to the cloud's own token
    require(drafted <= room, "range", f"{drafted} drafts, the row has room for {room}")
    require(message.round >= int(cursor.round), "order", f"round {message.round} after round {int(cursor.round) - 1}")
    # Every round commits a token, so a row has at most as many rounds as tokens.
    require(message.round < size, "range", f"round {message.round} of a row of {size} tokens")
    moved = cursor._replace(
      last=host_array(np.full(1, pending[-1], np.int32)),
      length=host_array(np.full(1, end, np.int32)),
      live=host_array(np.ones(1, bool)),
      round=host_array(np.int32(message.round)),
    )
    features = None if message.features is None else message.features.astype(np.float32)
    tokens = np.array([*pending, *message.tokens], np.int32)
    return DecodedDraft(draft_of(message, self.window, self.max_sent), moved, message.read, tokens, features)
