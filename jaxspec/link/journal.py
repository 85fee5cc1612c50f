"""A file of records that a process appends to and that survives its end, at any byte.

The file begins with `BEGINNING`, so that a file of somebody else is neither read nor cut off. Then, for each record:

======  ==============================================
bytes   field (big-endian)
======  ==============================================
4       length of the data
4       CRC-32 of the length and the data
...     data
======  ==============================================

A record is flushed before anybody acts on it. What a killed process left half written at the end is dropped when the file is
opened again; the record was not acted on, so it is made again.
"""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path
from typing import BinaryIO

BEGINNING = b"jaxspec journal 1\n"
_LENGTH, _CRC = struct.Struct(">I"), struct.Struct(">I")
_HEAD = _LENGTH.size + _CRC.size


class Journal:
  """Records of an earlier life of the process, and those that are added.

  Args:
    path: file to read and to append to; it is made if it is not there.
  Raises:
    ValueError: for a file that cannot be written, one that is no journal, one with a damaged record before its end, or one
      that somebody has open: records of two would mix.
  """

  def __init__(self, path: str | os.PathLike):
    path = Path(path)
    try:
      self._file = path.open("a+b")
    except OSError as error:
      raise ValueError(f"Cannot write the journal {path}: {error.strerror}") from error
    try:
      _lock(self._file, path)
      self._file.seek(0)
      data = self._file.read()
      self.records, end = _read(data, path)
      if end < len(data):
        self._file.truncate(end)
      if not end:
        self._file.write(BEGINNING)
        self._file.flush()
    except BaseException:
      self._file.close()
      raise

  def append(self, record: bytes) -> None:
    """Adds a record. When this returns, it survives the end of the process."""
    self._file.write(pack(record))
    self._file.flush()
    self.records.append(record)

  def close(self) -> None:
    """Closes the file."""
    self._file.close()

  def __enter__(self) -> Journal:
    return self

  def __exit__(self, *_) -> None:
    self.close()


def pack(record: bytes) -> bytes:
  """A record as it stands in the file."""
  length = _LENGTH.pack(len(record))
  return length + _CRC.pack(zlib.crc32(length + record)) + record


def _lock(file: BinaryIO, path: Path) -> None:
  """Keeps others from the file until it is closed, or its process ends; nothing where there are no such locks."""
  try:
    import fcntl
  except ImportError:
    return
  try:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except BlockingIOError:
    raise ValueError(f"Must have a journal that nobody writes, we instead got {path}, open in another decode") from None
  except OSError:
    return  # a file system without locks


def _read(data: bytes, path: Path) -> tuple[list[bytes], int]:
  """The whole records of a file, and where they end; 0 where not even the beginning is whole."""
  if not data.startswith(BEGINNING):
    if BEGINNING.startswith(data.rstrip(b"\0")):
      return [], 0  # nothing yet, or a beginning whose write was cut off
    raise ValueError(f"Must have a journal, we instead got {path}, a file of something else")
  records, position = [], len(BEGINNING)
  while position < len(data):
    rest = data[position:]
    size = _LENGTH.unpack_from(rest)[0] if len(rest) >= _HEAD else len(rest)
    record = rest[_HEAD : _HEAD + size]
    if rest[: len(pack(record))] == pack(record) and len(record) == size:
      records.append(record)
      position += _HEAD + size
      continue
    # The end of a write that was cut off: too short, damaged, or blocks that were never written.
    if _HEAD + size >= len(rest) or not any(rest):
      break
    raise ValueError(f"Must have a whole journal in {path}, we instead got a damaged record at byte {position}")
  return records, position
