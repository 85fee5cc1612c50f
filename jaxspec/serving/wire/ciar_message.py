"""The uplink message of an edge that accepts tokens locally: what the cloud has not read, then a window of drafts.

Payload of a frame (`jaxspec.serving.wire.framing`) of kind `GATED`, whose number is that of the drafts:

* first position that the cloud has not read, 16 bits; number of unread tokens, 16 bits: the newest token that the cloud
  knows, and those that the edge accepted locally after it;
* these tokens, ``ceil(log2 V)`` bits each;
* the drafts: records with their distributions (`jaxspec.serving.wire.records`), or, where no rule needs a distribution,
  tokens alone;
* where interval features were agreed on: for every one of these tokens a bit that says whether it has some, then those, 16
  bits each (float16).

The reply is an ordinary one; it counts accepted tokens of the window.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from jaxspec.codecs.bits import ceil_log2
from jaxspec.serving.wire.bitstream import BitReader, BitWriter, require
from jaxspec.serving.wire.framing import OVERHEAD_BYTES, Frame, frame, unframe
from jaxspec.serving.wire.records import Limits, Record, put_record, take_record

if TYPE_CHECKING:
  from jaxspec.codecs.codec import SparseCodec

GATED = 20
_POSITION_BITS = 16


@dataclasses.dataclass(frozen=True)
class GatedWire:
  """What both ends agreed on.

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
  def of(cls, codec: SparseCodec | None, *, vocab: int, window: int, max_len: int, feature_width: int = 0) -> GatedWire:
    """The agreement for a codec, or for tokens alone (None)."""
    limits = Limits(vocab, 1, "paper", 1, window, False) if codec is None else Limits.of(codec, window)
    return cls(limits, max_len, codec is not None, feature_width)

  @property
  def max_bytes(self) -> int:
    """No valid message is longer."""
    token = ceil_log2(self.limits.vocab)
    draft = self.limits.max_record_bits if self.sends_distributions else token
    features = (1 + 16 * self.feature_width) * self.max_len if self.feature_width else 0
    return OVERHEAD_BYTES + -(-(2 * _POSITION_BITS + self.max_len * token + self.limits.max_drafts * draft + features) // 8)


@dataclasses.dataclass(frozen=True)
class GatedDrafts:
  """A decoded message."""

  round: int
  read: int
  unread: tuple[int, ...]  # tokens from position ``read`` on that the cloud has not read, at least one
  drafts: tuple[Record, ...] | tuple[int, ...]
  features: np.ndarray | None = None  # [unread + drafts, D] float16, zeros where a token has none


def write_gated(
  round_: int, read: int, unread: Sequence[int], drafts: Sequence, wire: GatedWire, features: np.ndarray | None = None
) -> tuple[bytes, int]:
  """The message of a round, and the bits of its payload.

  Args:
    drafts: `Record` each where distributions are sent, else tokens.
    features: ``[unread + drafts, D]``, where agreed on; rows of zeros cost a bit.
  Raises:
    ValueError: for anything outside of the agreement.
  """
  limits, width = wire.limits, ceil_log2(wire.limits.vocab)
  if len(drafts) > limits.max_drafts or not unread or read + len(unread) + len(drafts) > wire.max_len:
    raise ValueError(
      f"Must have unread tokens and at most {limits.max_drafts} drafts within {wire.max_len} positions, "
      f"we instead got {len(unread)} and {len(drafts)} from position {read}"
    )
  writer = BitWriter()
  writer.put(read, _POSITION_BITS)
  writer.put(len(unread), _POSITION_BITS)
  for token in unread:
    writer.put(token, width)
  for draft in drafts:
    if wire.sends_distributions:
      put_record(writer, draft, limits)
    else:
      writer.put(draft, width)
  if wire.feature_width:
    _put_features(writer, features, len(unread) + len(drafts), wire.feature_width)
  return frame(GATED, round_, limits.ell, len(drafts), writer.bytes()), writer.length


def read_gated(data: bytes | Frame, wire: GatedWire) -> GatedDrafts:
  """Decodes a message. Whether it goes on where the cloud stands is not known here.

  Raises:
    MessageError: if it is anything but a valid one.
  """
  limits, width = wire.limits, ceil_log2(wire.limits.vocab)
  kind, round_, ell, number, payload, _ = unframe(data, wire.max_bytes)
  require(kind == GATED, "kind", f"{kind} is not a message of a gated edge")
  require(ell == limits.ell, "ell", f"{ell} instead of {limits.ell}")
  require(number <= limits.max_drafts, "range", f"{number} drafts, {limits.max_drafts} agreed")
  reader = BitReader(payload)
  first, count = reader.take(_POSITION_BITS), reader.take(_POSITION_BITS)
  require(count >= 1, "range", "no unread token")
  require(first + count + number <= wire.max_len, "range", f"{first + count + number} positions of {wire.max_len}")
  unread = tuple(reader.below(limits.vocab, width, "token") for _ in range(count))
  take = (
    (lambda: take_record(reader, limits)) if wire.sends_distributions else lambda: reader.below(limits.vocab, width, "token")
  )
  drafts = tuple(take() for _ in range(number))
  features = _take_features(reader, count + number, wire.feature_width) if wire.feature_width else None
  reader.finish()
  return GatedDrafts(round_, first, unread, drafts, features)


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
