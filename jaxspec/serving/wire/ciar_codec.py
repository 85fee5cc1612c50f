"""Windows of an edge that accepts tokens locally as bytes, with what the cloud has not read."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from jaxspec.codecs.codec import SparseCodec
from jaxspec.core.payloads import PendingTokens
from jaxspec.core.types import Cursor, Draft, Drafter
from jaxspec.serving.wire.arrays import on_host, record_of
from jaxspec.serving.wire.bitstream import require
from jaxspec.serving.wire.ciar_message import GatedWire, write_gated
from jaxspec.serving.wire.frame_reader import FrameReader
from jaxspec.serving.wire.framing import Frame
from jaxspec.serving.wire.handshake import Agreement
from jaxspec.serving.wire.records import Limits
from jaxspec.serving.wire.round_codec import DecodedDraft, Framed, distributions_of, draft_of


@dataclasses.dataclass(frozen=True)
class CiarWire(Framed):
  """Windows of an edge that accepts tokens locally, and what the cloud has not read
  (`jaxspec.drafters.ciar_drafter.CiarDrafter` drafters).

  Attributes:
    vocab: tokens V.
    window: most tokens to be verified in one round.
    codec: how the distributions of a window are sent, for rule `jaxspec.rules.sparse.lossless_sparse`; None sends ids alone,
      for rule `jaxspec.rules.greedy.greedy`.
    feature_width: numbers in the interval features of a token; 0 sends none.
  """

  vocab: int
  window: int
  codec: SparseCodec | None = None
  feature_width: int = 0

  def __post_init__(self):
    if self.codec is not None and self.codec.vocab != self.vocab:
      raise ValueError(f"Must have a codec of {self.vocab} tokens, we instead got one of {self.codec.vocab}")
    if self.codec is not None and self.codec.coding == "lazy":
      raise ValueError("Must have a codec that sends whole distributions, we instead got coding 'lazy'")
    self._at(1)  # raises a ValueError for what a message cannot hold

  def _at(self, max_len: int) -> GatedWire:
    """The agreement for rows of ``max_len`` tokens."""
    return _gated_of(self, max_len)

  def reader(self, max_len: int) -> FrameReader:
    """What reads the frames of rows of up to ``max_len`` tokens."""
    return FrameReader(self.limits, self._at(max_len))

  @property
  def limits(self) -> Limits:
    """What records and replies must keep to."""
    return self._at(1).limits

  def check_drafter(self, drafter: Drafter) -> None:
    if not drafter.may_accept_locally or drafter.window <= self.window:
      raise ValueError(
        f"Must have a drafter that may accept tokens locally, with windows of {self.window}, for this wire, "
        f"we instead got window {drafter.window}, may_accept_locally {drafter.may_accept_locally}"
      )

  def max_frame_bytes(self, max_len: int) -> int:
    return self._at(max_len).max_bytes

  def encode_draft(self, draft: Draft, cursor: Cursor, max_len: int) -> tuple[bytes, int]:
    distribution = None if self.codec is None else distributions_of(draft)
    draft = on_host(draft._replace(proposal=()))
    length, local = int(cursor.length[0]), int(draft.num_local[0])
    # Without a payload the cloud draws alone: it has read all but the newest token.
    read, committed = length - 1, [int(cursor.last[0])]
    if isinstance(draft.payload, PendingTokens):
      read = int(draft.payload.read[0])
      committed = draft.payload.tokens[0, read:length].tolist()
    unread = [*committed, *draft.tokens[0, :local].tolist()]
    window = draft.tokens[0, local : draft.num_drafted[0]].tolist()
    features = self._features(draft, read, len(unread) + len(window))
    if distribution is not None:
      window = [record_of(distribution, position, token) for position, token in enumerate(window)]
    return write_gated(int(cursor.round), read, unread, window, self._at(max_len), features)

  def _features(self, draft: Draft, read: int, number: int) -> np.ndarray | None:
    """Features ``[number, D]`` of the tokens from position ``read`` on; None where the wire sends none."""
    if not isinstance(draft.payload, PendingTokens):
      return np.zeros((number, self.feature_width), np.float32) if self.feature_width else None
    features = draft.payload.features
    width = 0 if isinstance(features, tuple) else features.shape[-1]
    if width != self.feature_width:
      raise ValueError(
        f"Must have a drafter with {self.feature_width} features a token for this wire, we instead got {width}"
      )
    return features[0, read : read + number] if width else None

  def decode_draft(self, frame: Frame | bytes, cursor: Cursor, agreement: Agreement) -> DecodedDraft:
    size, length, last = agreement.max_len, int(cursor.length[0]), int(cursor.last[0])
    # Until the edge has called, token 0 may be its own, and the cloud cannot know whether that token ended the row.
    is_open = length == 1 and size > 1
    require(is_open or bool(cursor.live[0]), "order", "the row has ended")
    got = self.reader(size).read(frame, 0)
    unread, drafted, end = got.unread.tolist(), len(got.tokens), got.position + len(got.unread)
    require(got.position == length - 1, "order", f"tokens from position {got.position} on, {length - 1} positions are known")
    require(is_open or unread[0] == last, "order", "the row does not continue the cloud's own token")
    require(not set(unread) & set(agreement.end_tokens), "order", "the row goes on after an end token")
    room = size - end - 1  # one position belongs to the cloud's own token
    require(drafted <= room, "range", f"{drafted} drafts, the row has room for {room}")
    require(got.round >= int(cursor.round), "order", f"round {got.round} after round {int(cursor.round) - 1}")
    # Every round commits a token, so there are not more rounds than tokens.
    require(got.round < size, "range", f"round {got.round} of a row of {size} tokens")
    newest, length = np.full(1, unread[-1], np.int32), np.full(1, end, np.int32)
    moved = cursor._replace(last=newest, length=length, live=np.ones(1, bool), round=np.int32(got.round))
    features = None if got.features is None else got.features.astype(np.float32)
    tokens = np.concatenate([got.unread, got.tokens]).astype(np.int32)
    return DecodedDraft(draft_of(got, self.window), moved, got.position, tokens, features)


@functools.cache
def _gated_of(wire: CiarWire, max_len: int) -> GatedWire:
  sizes = dict(vocab=wire.vocab, window=wire.window, max_len=max_len, feature_width=wire.feature_width)
  return GatedWire.of(wire.codec, **sizes)
