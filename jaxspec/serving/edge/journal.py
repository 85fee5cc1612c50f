"""A file of records that a process appends to and that survives its end, at any byte.

The file begins with `BEGINNING`, so that a file of somebody else is neither read nor cut off. A file that ends within it
holds no record, and is refused too. Then, for each record:

======  ==============================================
bytes   field (big-endian)
======  ==============================================
4       length of the data
4       CRC-32 of the length
4       CRC-32 of the data
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
_LENGTH, _HEAD = struct.Struct(">I"), struct.Struct(">III")


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
      if path.exists() and not path.is_file():
        raise OSError(0, "it is no file")
      self._file = path.open("a+b")
    except OSError as error:
      raise ValueError(f"Cannot write the journal {path}: {error.strerror}") from error
    try:
      _lock(self._file, path)
      self._file.seek(0)
      self.records, end = _read(self._file, path)
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
  length = len(record)
  return _HEAD.pack(length, zlib.crc32(_LENGTH.pack(length)), zlib.crc32(record)) + record


def _lock(file: BinaryIO, path: Path) -> None:
  """Keeps others from the file until it is closed, or its process ends; nothing where there are no such locks."""
  try:
    import fcntl
  except ImportError:
    return
  try:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except BlockingIOError:
    raise ValueError(f"Must have a journal that nobody writes, we instead got {path}, open somewhere else") from None
  except OSError:
    return  # a file system without locks


def _read(file: BinaryIO, path: Path) -> tuple[list[bytes], int]:
  """The whole records of a file, and where they end; 0 for an empty file."""
  beginning = file.read(len(BEGINNING))
  if beginning != BEGINNING:
    if not beginning:
      return [], 0
    what = "one of another version" if beginning.startswith(BEGINNING[:-2]) else "a file of something else"
    raise ValueError(f"Must have a journal that this version wrote, we instead got {path}, {what}")
  data, records, position = file.read(), [], 0
  while position + _HEAD.size <= len(data):
    size, of_length, of_record = _HEAD.unpack_from(data, position)
    end = position + _HEAD.size + size
    record = data[position + _HEAD.size : end]
    is_length = of_length == zlib.crc32(_LENGTH.pack(size))
    if is_length and len(record) == size and of_record == zlib.crc32(record):
      records.append(record)
      position = end
      continue
    # The end of a write that was cut off: data that is not all there, or blocks that were never written.
    if (is_length and end >= len(data)) or not any(data[position:]):
      break
    where = len(BEGINNING) + position
    raise ValueError(f"Must have a whole journal in {path}, we instead got a damaged record at byte {where}")
  return records, len(BEGINNING) + position
