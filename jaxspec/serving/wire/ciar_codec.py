"""Windows of an edge that accepts tokens locally as bytes, with what the cloud has not read."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from jaxspec.codecs.codec import SparseCodec
from jaxspec.core import verdicts as drafts
from jaxspec.core.payloads import PendingTokens
from jaxspec.core.types import Cursor, Draft, Drafter
from jaxspec.serving.wire.arrays import no_distributions, on_host, put_at, record_of
from jaxspec.serving.wire.bitstream import require
from jaxspec.serving.wire.ciar_message import GatedWire, write_gated
from jaxspec.serving.wire.envelope import Frames
from jaxspec.serving.wire.frame_reader import FrameReader
from jaxspec.serving.wire.handshake import Agreement
from jaxspec.serving.wire.records import Limits
from jaxspec.serving.wire.round_codec import (
  Framed,
  check_rows,
  distributions_of,
  no_drafts,
  profile_of,
  rows_to_verify,
)


@dataclasses.dataclass(frozen=True)
class CiarWire(Framed):
  """Windows of an edge that accepts tokens locally, and what the cloud has not read (`jaxspec.interval_gated` drafters).

  Attributes:
    vocab: tokens V.
    window: most tokens to be verified in one round.
    codec: how the distributions of a window are sent, for rule `jaxspec.lossless_sparse`; None sends ids alone, for rule
      `jaxspec.greedy`.
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

  @property
  def profile(self) -> str:
    return profile_of("ciar", self.limits, distributions=int(self.codec is not None), features=self.feature_width)

  def check_drafter(self, drafter: Drafter) -> None:
    if not drafter.may_accept_locally or drafter.window <= self.window:
      raise ValueError(
        f"Must have a drafter that may accept tokens locally, with windows of {self.window}, for this wire, "
        f"we instead got window {drafter.window}, may_accept_locally {drafter.may_accept_locally}"
      )

  def max_frame_bytes(self, agreement: Agreement) -> int:
    return self._at(agreement.max_len).max_bytes

  def encode_draft(self, draft: Draft, cursor: Cursor, agreement: Agreement) -> tuple[Frames, np.ndarray]:
    distribution = None if self.codec is None else distributions_of(draft)
    draft = on_host(draft._replace(proposal=()))
    gated, calling = self._at(agreement.max_len), rows_to_verify(draft, cursor)
    frames: Frames = [None] * len(calling)
    bits, local = np.zeros(len(calling), np.int64), np.asarray(drafts.num_local(draft))
    for row in np.flatnonzero(calling):
      length, own = int(cursor.length[row]), int(local[row])
      # Without a payload the target draws alone: it has read all but the newest token.
      read, committed = length - 1, [int(cursor.last[row])]
      if isinstance(draft.payload, PendingTokens):
        read = int(draft.payload.read[row])
        committed = draft.payload.tokens[row, read:length].tolist()
      unread = [*committed, *draft.tokens[row, :own].tolist()]
      window = draft.tokens[row, own : draft.num_drafted[row]].tolist()
      said = self._features(draft, row, read, len(unread) + len(window))
      if distribution is not None:
        window = [record_of(distribution, row, position, token) for position, token in enumerate(window)]
      frames[row], bits[row] = write_gated(int(cursor.round), read, unread, window, gated, said)
    return frames, bits

  def _features(self, draft: Draft, row: int, read: int, number: int) -> np.ndarray | None:
    """Features ``[number, D]`` of the tokens from position ``read`` on; None where the wire sends none."""
    if not isinstance(draft.payload, PendingTokens):
      return np.zeros((number, self.feature_width), np.float32) if self.feature_width else None
    features = draft.payload.features
    width = 0 if isinstance(features, tuple) else features.shape[-1]
    if width != self.feature_width:
      raise ValueError(
        f"Must have a drafter with {self.feature_width} features a token for this wire, we instead got {width}"
      )
    return features[row, read : read + number] if width else None

  def decode_draft(self, frames: Frames, cursor: Cursor, agreement: Agreement) -> tuple[Draft, Cursor]:
    rows, window, size = len(frames), self.window, agreement.max_len
    reader, calling = self.reader(size), np.array([data is not None for data in frames])
    length, last, live = cursor.length.copy(), cursor.last.copy(), cursor.live.copy()
    read = length - 1  # all but the newest token of the last exchange
    # Until a row has called the cloud, its token 0 may be the edge's own, and the cloud cannot know whether that token
    # ended the row.
    is_open = (length == 1) & (agreement.target_prefix == 0) & (size > 1)
    live |= is_open & calling
    tokens, number = np.zeros((rows, window), np.int32), np.zeros(rows, np.int32)
    by_position = np.zeros((rows, size), np.int32)
    features = np.zeros((rows, size, self.feature_width), np.float32)
    distribution = no_distributions((rows, window), 1 if self.codec is None else self.codec.max_sent)
    rounds: set[int] = set()
    for row in np.flatnonzero(calling):
      require(live[row], "order", f"row {row} has ended")
      got = reader.read(frames[row], 0)
      start, unread, drafted = got.position, got.unread.tolist(), len(got.tokens)
      end = start + len(unread)
      require(start == read[row], "order", f"tokens from position {start} on, {int(read[row])} positions are known")
      require(is_open[row] or unread[0] == last[row], "order", f"row {row} does not continue the cloud's own token")
      require(not set(unread) & set(agreement.end_tokens), "order", f"row {row} goes on after an end token")
      room = size - end - 1  # one position belongs to the cloud's own token
      require(drafted <= room, "range", f"{drafted} drafts, row {row} has room for {room}")
      rounds.add(got.round)
      by_position[row, start:end], length[row], last[row] = unread, end, unread[-1]
      tokens[row, :drafted], number[row] = got.tokens, drafted
      if got.features is not None:
        features[row, start : start + len(got.features)] = got.features
      if got.distributions is not None:
        put_at(distribution, row, got.distributions)
    round_ = check_round(rounds, cursor, agreement)
    moved = cursor._replace(last=last, length=length, live=live, round=np.int32(round_))
    if agreement.target_draws_alone(round_):
      check_rows(frames, live)
      require(round_ == int(cursor.round) and (length == cursor.length).all(), "order", "the cloud draws this token alone")
      return no_drafts(number, moved), moved
    payload = PendingTokens(by_position, read, features if self.feature_width else ())
    proposal = () if self.codec is None else distribution
    return Draft(tokens, proposal, number, needs_verify=calling, payload=payload), moved


@functools.cache
def _gated_of(wire: CiarWire, max_len: int) -> GatedWire:
  sizes = dict(vocab=wire.vocab, window=wire.window, max_len=max_len, feature_width=wire.feature_width)
  return GatedWire.of(wire.codec, **sizes)


def check_round(rounds: set[int], cursor: Cursor, agreement: Agreement) -> int:
  """The one round of all frames; every round commits a token in every live row, so there are not more than tokens."""
  require(len(rounds) == 1, "order", f"rounds {sorted(rounds)} in one exchange")
  (round_,) = rounds
  require(round_ >= int(cursor.round), "order", f"round {round_} after round {int(cursor.round) - 1}")
  require(round_ < agreement.max_len, "range", f"round {round_} of rows of {agreement.max_len} tokens")
  return round_
