"""The uplink message of an edge that accepts tokens locally: pending tokens, then a window of drafts.

Payload of a frame (`jaxspec.serving.wire.framing`) of kind `CIAR`, whose number is the number of drafts:

* position of the first pending token, 16 bits; number of pending tokens, 16 bits. They are the newest token that the cloud
  knows, and the tokens that the edge accepted locally after it;
* the pending tokens, ``ceil(log2 V)`` bits each;
* the drafts: records with their distributions (`jaxspec.serving.wire.distribution_bits`), or tokens alone where the rule
  needs no distribution;
* interval features, where both ends agreed on them: for each of these tokens a bit that says whether it has features, then
  its features, 16 bits each (float16).

The reply is an ordinary one; it counts accepted tokens of the window.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from jaxspec.codecs.bit_costs import ceil_log2
from jaxspec.serving.wire.bitstream import BitReader, BitWriter, require
from jaxspec.serving.wire.distribution_bits import Limits, Record, put_record, take_record
from jaxspec.serving.wire.framing import OVERHEAD_BYTES, DraftMessage, Frame, frame, unframe

if TYPE_CHECKING:
  from jaxspec.codecs.codec import SparseCodec

CIAR = 20
_POSITION_BITS = 16


@dataclasses.dataclass(frozen=True)
class CiarLimits:
  """The limits of a message, equal at both ends.

  Attributes:
    limits: of records and replies.
    max_len: tokens of a row.
    sends_distributions: whether drafts come with their distributions.
    feature_width: numbers in the interval features of a token; 0 sends none.
  """

  limits: Limits
  max_len: int
  sends_distributions: bool
  feature_width: int = 0

  def __post_init__(self):
    if self.feature_width < 0:
      raise ValueError(f"Must have a feature_width of at least 0, we instead got {self.feature_width}")
    if not 1 <= self.max_len < 1 << _POSITION_BITS:
      raise ValueError(f"Must have rows of 1 to {(1 << _POSITION_BITS) - 1} tokens, we instead got {self.max_len}")

  @classmethod
  def of(cls, codec: SparseCodec | None, *, vocab: int, window: int, max_len: int, feature_width: int = 0) -> CiarLimits:
    """The limits for a codec of distributions, or for tokens alone (None)."""
    limits = Limits(vocab, 1, "paper", 1, window, False) if codec is None else Limits.of(codec, window)
    return cls(limits, max_len, codec is not None, feature_width)

  @property
  def max_bytes(self) -> int:
    """Length of the longest valid message."""
    token = ceil_log2(self.limits.vocab)
    draft = self.limits.max_record_bits if self.sends_distributions else token
    features = (1 + 16 * self.feature_width) * self.max_len if self.feature_width else 0
    return OVERHEAD_BYTES + -(-(2 * _POSITION_BITS + self.max_len * token + self.limits.max_drafts * draft + features) // 8)


def write_ciar(
  round_: int,
  read: int,
  pending: Sequence[int],
  drafts: Sequence[Record] | Sequence[int],
  agreed: CiarLimits,
  features: np.ndarray | None = None,
) -> tuple[bytes, int]:
  """The message of a round, and the bits of its payload.

  Args:
    read: position of the first pending token.
    drafts: records where distributions are sent, else tokens.
    features: ``[pending + drafts, D]``, where agreed on; rows of zeros take one bit.
  Raises:
    ValueError: for values outside of the limits.
  """
  limits, width = agreed.limits, ceil_log2(agreed.limits.vocab)
  if len(drafts) > limits.max_drafts or not pending or read + len(pending) + len(drafts) > agreed.max_len:
    raise ValueError(
      f"Must have pending tokens and at most {limits.max_drafts} drafts within {agreed.max_len} positions, "
      f"we instead got {len(pending)} and {len(drafts)} from position {read}"
    )
  writer = BitWriter()
  writer.put(read, _POSITION_BITS)
  writer.put(len(pending), _POSITION_BITS)
  for token in pending:
    writer.put(token, width)
  for draft in drafts:
    if isinstance(draft, Record):
      put_record(writer, draft, limits)
    else:
      writer.put(draft, width)
  if agreed.feature_width:
    _put_features(writer, features, len(pending) + len(drafts), agreed.feature_width)
  return frame(CIAR, round_, limits.ell, len(drafts), writer.bytes()), writer.length


def read_ciar(data: bytes | Frame, agreed: CiarLimits) -> DraftMessage:
  """Decodes a message. The caller compares its position with that of the stream.

  Raises:
    MessageError: if it is anything but a valid message within the limits.
  """
  limits, width = agreed.limits, ceil_log2(agreed.limits.vocab)
  kind, round_, ell, number, payload, _ = unframe(data, agreed.max_bytes)
  require(kind == CIAR, "kind", f"{kind} is not a message with pending tokens")
  require(ell == limits.ell, "ell", f"{ell} instead of {limits.ell}")
  require(number <= limits.max_drafts, "range", f"{number} drafts, {limits.max_drafts} agreed")
  reader = BitReader(payload)
  first, count = reader.take(_POSITION_BITS), reader.take(_POSITION_BITS)
  require(count >= 1, "range", "no pending token")
  require(first + count + number <= agreed.max_len, "range", f"{first + count + number} positions of {agreed.max_len}")
  take_token = lambda: reader.below(limits.vocab, width, "token")
  pending = tuple(take_token() for _ in range(count))
  records: tuple[Record, ...] = ()
  if agreed.sends_distributions:
    records = tuple(take_record(reader, limits) for _ in range(number))
    tokens = tuple(record.need_token() for record in records)
  else:
    tokens = tuple(take_token() for _ in range(number))
  features = _take_features(reader, count + number, agreed.feature_width) if agreed.feature_width else None
  reader.finish()
  return DraftMessage(round_, tokens, records, first, pending, features)


def _put_features(writer: BitWriter, features: np.ndarray | None, tokens: int, width: int) -> None:
  if features is None or features.shape != (tokens, width) or not np.isfinite(halves := features.astype(np.float16)).all():
    raise ValueError(f"Must have finite features [{tokens}, {width}], we instead got {getattr(features, 'shape', None)}")
  for row in halves:
    writer.put(int(row.any()), 1)
    if row.any():
      for bits in row.view(np.uint16).tolist():
        writer.put(bits, 16)


def _take_features(reader: BitReader, tokens: int, width: int) -> np.ndarray:
  features = np.zeros((tokens, width), np.uint16)
  for row in features:
    if reader.take(1):
      row[:] = reader.halves(width)
      require(bool(row.view(np.float16).any()), "range", "features of zeros were sent in full")
  halves = features.view(np.float16)
  require(bool(np.isfinite(halves).all()), "range", "a feature is not a number")
  return halves
