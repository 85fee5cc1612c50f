"""Envelopes: what one call between the two ends carries for all rows of a stream.

======  =====================================================================================
bytes   field (big-endian)
======  =====================================================================================
2       magic ``JE``
1       version
1       kind, a `Kind`
4       stream: the CRC-32 of the body of the `OPEN` envelope that opened it
...     body: an opening (`jaxspec.serving.wire.handshake`), or the frames of rows; empty in `CLOSE` and `CLOSED`
4       CRC-32 of everything before
======  =====================================================================================

A frame of a row (`jaxspec.serving.wire.framing`) stands after its row number, 2 bytes, and its length, 4 bytes. Rows ascend.
A row that has nothing to say has no frame. The stream number keeps messages of an earlier stream out; it is no secret.
"""

from __future__ import annotations

import enum
import struct
import zlib
from collections.abc import Sequence
from typing import NamedTuple

from jaxspec.serving.wire.bitstream import require

Frames = list[bytes | None]

MAGIC, VERSION = b"JE", 1
MAX_ROWS = 1 << 16
_HEADER, _CRC, _ROW = struct.Struct(">2sBBI"), struct.Struct(">I"), struct.Struct(">HI")
OVERHEAD_BYTES = _HEADER.size + _CRC.size
ROW_BYTES = _ROW.size


class Kind(enum.IntEnum):
  """What an envelope is; the draft side sends the first four, and every one has its own reply."""

  OPEN = 1
  DRAFT = 2
  DISTRIBUTION = 3  # the distributions that a `REPLY` requests
  CLOSE = 4
  OPENED = 5  # the reply to `OPEN`: token 0 of every row
  REPLY = 6  # the reply to `DRAFT` and to `DISTRIBUTION`
  CLOSED = 7


class Envelope(NamedTuple):
  """A decoded envelope."""

  kind: Kind
  stream: int
  body: bytes


def stream_of(opening: bytes) -> int:
  """The stream number of the body of an `OPEN` envelope."""
  return zlib.crc32(opening)


def write_envelope(kind: Kind, stream: int, body: bytes = b"") -> bytes:
  """A body between its header and its checksum."""
  data = _HEADER.pack(MAGIC, VERSION, kind, stream) + body
  return data + _CRC.pack(zlib.crc32(data))


def read_envelope(data: bytes | None, max_bytes: int) -> Envelope:
  """Decodes an envelope; its body is not looked at.

  Raises:
    MessageError: if it is anything but a valid one.
  """
  require(data is not None, "length", "no message arrived")
  require(OVERHEAD_BYTES <= len(data) <= max_bytes, "length", f"{len(data)} bytes")
  content, checksum = data[: -_CRC.size], _CRC.unpack(data[-_CRC.size :])[0]
  magic, version, kind, stream = _HEADER.unpack(content[: _HEADER.size])
  require(magic == MAGIC, "magic", repr(magic))
  require(version == VERSION, "version", f"{version}, this is {VERSION}")
  require(zlib.crc32(content) == checksum, "checksum", "the bytes are damaged")
  require(kind in Kind.__members__.values(), "kind", f"{kind} is no kind of envelope")
  return Envelope(Kind(kind), stream, content[_HEADER.size :])


def write_frames(frames: Sequence[bytes | None]) -> bytes:
  """The body that carries the frames of rows."""
  return b"".join(_ROW.pack(row, len(data)) + data for row, data in enumerate(frames) if data is not None)


def read_frames(body: bytes, num_rows: int) -> Frames:
  """The frames of a body, by row; nothing of them is decoded yet.

  Raises:
    MessageError: for rows that do not ascend or do not exist, or frames that are cut off.
  """
  frames: Frames = [None] * num_rows
  position, newest = 0, -1
  while position < len(body):
    require(position + _ROW.size <= len(body), "truncated", "half a row")
    row, length = _ROW.unpack_from(body, position)
    position += _ROW.size
    require(newest < row < num_rows, "range", f"row {row} after row {newest}, {num_rows} rows agreed")
    require(position + length <= len(body), "truncated", f"row {row} has {length} bytes, {len(body) - position} are left")
    frames[row], newest = body[position : position + length], row
    position += length
  return frames


def max_frames_bytes(num_rows: int, max_frame: int) -> int:
  """No valid envelope of frames is longer."""
  return OVERHEAD_BYTES + num_rows * (ROW_BYTES + max_frame)
