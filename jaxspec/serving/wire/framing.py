"""Framed messages: a header with magic, version, kind and round, the payload, and a checksum.

======  =====================================================================================
bytes   field (big-endian)
======  =====================================================================================
2       magic ``SQ``
1       version
1       kind: the coding of a message of drafts, or `REPLY`, `FIRST`, `REQUEST`, `DISTRIBUTION`, `VOID`
4       round
2       denominator ell
2       number of records, or of accepted drafts
...     payload: records, or the next token (4 bytes); where rounds may end without a token of the
        cloud, the digest of the assumed replies (8 bytes) before the records
4       CRC-32 of everything before
======  =====================================================================================

The reader trusts no byte. It checks length and checksum first. The limits bound its work: memory by about a hundred times
``max_message_bytes`` (decoded ids and counts are Python integers), time by ``max_drafts`` records. The checksum detects
damage, not forgery; authenticate the channel against forgery.
"""

from __future__ import annotations

import dataclasses
import functools
import struct
import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxspec.codecs.bit_costs import CODINGS
from jaxspec.serving.wire.bitstream import BitReader, BitWriter, MessageError, require
from jaxspec.serving.wire.distribution_bits import Limits, Record, put_record, take_record

MAGIC, VERSION = b"SQ", 1
_HEADER, _CRC, _TOKEN = struct.Struct(">2sBBIHH"), struct.Struct(">I"), struct.Struct(">I")
OVERHEAD_BYTES = _HEADER.size + _CRC.size
REPLY_BYTES = OVERHEAD_BYTES + _TOKEN.size
REPLY, FIRST, REQUEST, DISTRIBUTION, VOID = 16, 17, 18, 19, 20  # kinds below 16 are codings

__all__ = [
  "DISTRIBUTION", "FIRST", "MAGIC", "OVERHEAD_BYTES", "REPLY", "REPLY_BYTES", "REQUEST", "VERSION", "VOID", "DraftMessage",
  "Frame",
  "MessageError", "Reply", "frame", "max_distribution_bytes", "max_message_bytes", "read_distribution", "read_drafts",
  "read_reply", "unframe", "write_distribution", "write_drafts", "write_reply",
]  # fmt: skip


class Frame(NamedTuple):
  """A frame whose length, magic, version and checksum are valid."""

  kind: int
  round: int
  ell: int
  number: int
  payload: bytes
  data: bytes  # the whole frame


class DraftMessage(NamedTuple):
  """A decoded message of drafts, of any codec.

  Attributes:
    round: of the edge.
    tokens: the drafts.
    records: of the drafts, with their distributions; () where tokens are sent alone.
    read: position of the first pending token; 0 where no pending tokens are sent.
    pending: committed tokens from position ``read`` on that the cloud has not read.
    features: ``[pending + drafts, D]`` float16, zeros for a token without features; None where none are sent.
  """

  round: int
  tokens: tuple[int, ...]
  records: tuple[Record, ...] = ()
  read: int = 0
  pending: tuple[int, ...] = ()
  features: np.ndarray | None = None


@dataclasses.dataclass(frozen=True)
class Reply:
  """A decoded reply.

  Attributes:
    next_token: the cloud's own token. None in a `REQUEST` for the distribution at the rejected position, in a `VOID`, and in
      a reply that ends a round after full acceptance.
  """

  round: int
  num_accepted: int
  next_token: int | None
  kind: int = REPLY


def max_message_bytes(limits: Limits) -> int:
  """Length of the longest valid message of drafts."""
  return OVERHEAD_BYTES + -(-limits.max_drafts * limits.max_record_bits // 8)


@functools.cache
def max_distribution_bytes(limits: Limits) -> int:
  """Length of the longest valid reply to a `REQUEST`, which is coded as ``trimmed``."""
  return OVERHEAD_BYTES + -(-dataclasses.replace(limits, coding="trimmed").max_record_bits // 8)


def write_drafts(round_: int, records: Sequence[Record], limits: Limits, *, assumes: bytes = b"") -> tuple[bytes, int]:
  """The message of a round, and the bits of its records (without padding, header and checksum).

  Args:
    assumes: the digest of the assumed replies; empty where none is sent.
  Raises:
    ValueError: for a record outside of the limits.
  """
  if len(records) > limits.max_drafts:
    raise ValueError(f"Must have at most {limits.max_drafts} drafts, we instead got {len(records)}")
  writer = BitWriter()
  for record in records:
    put_record(writer, record, limits)
  kind = CODINGS.index(limits.coding)
  return frame(kind, round_, limits.ell, len(records), assumes + writer.bytes()), writer.length


def read_drafts(data: bytes | Frame, limits: Limits, *, skipped: int = 0) -> DraftMessage:
  """Decodes a message of drafts.

  Args:
    skipped: bytes of the digest before the records.
  Raises:
    MessageError: if it is anything but a valid one.
  """
  kind, round_, ell, number, payload, _ = unframe(data, skipped + max_message_bytes(limits))
  require(kind == CODINGS.index(limits.coding), "kind", f"{kind} is not coding {limits.coding!r}")
  require(ell == limits.ell, "ell", f"{ell} instead of {limits.ell}")
  require(number <= limits.max_drafts, "range", f"{number} drafts, {limits.max_drafts} agreed")
  require(len(payload) >= skipped, "length", f"payload of {len(payload)} bytes")
  reader = BitReader(payload[skipped:])
  records = tuple(take_record(reader, limits) for _ in range(number))
  reader.finish()
  return DraftMessage(round_, tuple(record.need_token() for record in records), records)


def write_distribution(round_: int, position: int, record: Record, limits: Limits) -> tuple[bytes, int]:
  """The reply to a `REQUEST`, which has the distribution at one position; and the bits of its payload."""
  writer = BitWriter()
  put_record(writer, dataclasses.replace(record, token=None), limits)
  return frame(DISTRIBUTION, round_, limits.ell, position, writer.bytes()), writer.length


def read_distribution(data: bytes | Frame, limits: Limits) -> tuple[int, int, Record]:
  """Decodes the reply to a request: its round, the position in it, and the distribution.

  Raises:
    MessageError: if it is anything but a distribution.
  """
  kind, round_, ell, position, payload, _ = unframe(data, max_distribution_bytes(limits))
  require(kind == DISTRIBUTION, "kind", f"{kind} is not a distribution")
  require(ell == limits.ell, "ell", f"{ell} instead of {limits.ell}")
  reader = BitReader(payload)
  record = take_record(reader, limits, with_token=False)
  reader.finish()
  return round_, position, record


def write_reply(round_: int, num_accepted: int, next_token: int | None, limits: Limits, *, kind: int = REPLY) -> bytes:
  """A reply of a kind; a `REQUEST`, a `VOID`, and a reply after full acceptance may have no token."""
  return frame(kind, round_, limits.ell, num_accepted, b"" if next_token is None else _TOKEN.pack(next_token))


def read_reply(
  data: bytes | Frame, limits: Limits, *, round_: int, num_drafted: int, expected: int = REPLY, bonus: bool = True
) -> Reply:
  """Decodes the reply to a message of ``num_drafted`` drafts.

  Args:
    expected: the kind of the reply: `REPLY`, `FIRST`, `REQUEST` or `VOID`.
    bonus: whether the cloud adds a token after full acceptance.
  Raises:
    MessageError: if it is anything but a valid one of that kind.
  """
  kind, got_round, ell, accepted, payload, _ = unframe(data, OVERHEAD_BYTES + _TOKEN.size)
  require(kind == expected, "kind", f"{kind} instead of {expected}")
  require(ell == limits.ell, "ell", f"{ell} instead of {limits.ell}")
  require(got_round == round_, "order", f"reply to round {got_round} in round {round_}")
  require(accepted <= num_drafted, "range", f"{accepted} of {num_drafted} drafts accepted")
  if kind == REQUEST:
    require(limits.coding == "lazy" and accepted < num_drafted, "kind", "a request without a rejected draft")
  if kind == VOID:
    require(not accepted, "range", f"{accepted} drafts of a void call accepted")
  if kind in (REQUEST, VOID) or (kind == REPLY and not bonus and accepted == num_drafted > 0):
    require(not payload, "length", f"payload of {len(payload)} bytes in a reply without a token")
    return Reply(got_round, accepted, None, kind)
  require(len(payload) == _TOKEN.size, "length", f"payload of {len(payload)} bytes")
  token = _TOKEN.unpack(payload)[0]
  require(token < limits.vocab, "range", f"token {token} outside of the vocabulary")
  return Reply(got_round, accepted, token, kind)


def frame(kind: int, round_: int, ell: int, number: int, payload: bytes) -> bytes:
  """A payload between its header and its checksum."""
  body = _HEADER.pack(MAGIC, VERSION, kind, round_, ell, number) + payload
  return body + _CRC.pack(zlib.crc32(body))


def unframe(data: bytes | Frame, max_bytes: int) -> Frame:
  """Checks length, magic, version and checksum of bytes. A `Frame` is checked already, so only its length is.

  Raises:
    MessageError: if one of them is invalid.
  """
  size = len(data.data if isinstance(data, Frame) else data)
  require(OVERHEAD_BYTES <= size <= max_bytes, "length", f"{size} bytes")
  if isinstance(data, Frame):
    return data
  body, checksum = data[: -_CRC.size], _CRC.unpack(data[-_CRC.size :])[0]
  magic, version, kind, round_, ell, number = _HEADER.unpack(body[: _HEADER.size])
  require(magic == MAGIC, "magic", repr(magic))
  require(version == VERSION, "version", f"{version}, this is {VERSION}")
  require(zlib.crc32(body) == checksum, "checksum", "the bytes are damaged")
  return Frame(kind, round_, ell, number, body[_HEADER.size :], data)
