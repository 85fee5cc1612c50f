"""An append-only file of records that survives a crash of its process at any byte.

The file begins with `BEGINNING`, so that other files are neither read nor truncated. A file that ends within `BEGINNING` is
refused too. Then, for each record:

======  ==============================================
bytes   field (big-endian)
======  ==============================================
4       length of the data
4       CRC-32 of the length
4       CRC-32 of the data
...     data
======  ==============================================

A record is flushed before it is used. An incomplete record at the end of the file, from a killed process, is dropped when
the file is opened again: it was not used, so it is computed again.
"""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path
from typing import BinaryIO

BEGINNING = b"jaxspec journal 2\n"
_LENGTH, _HEAD = struct.Struct(">I"), struct.Struct(">III")


class Journal:
  """The records of earlier processes, and those that are added.

  Args:
    path: file to read and to append to; a missing one is created.
  Raises:
    ValueError: for a file that cannot be written, one that is no journal, one with a damaged record before its end, or one
      that another process has open.

  Attributes:
    records: all of them, in order.
  """

  def __init__(self, path: str | os.PathLike):
    path = Path(path)
    try:
      if path.exists() and not path.is_file():
        raise OSError(0, "it is not a file")
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
    """Adds a record, which survives a crash of the process after this returns."""
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
  """The bytes of a record in the file."""
  length = len(record)
  return _HEAD.pack(length, zlib.crc32(_LENGTH.pack(length)), zlib.crc32(record)) + record


def _lock(file: BinaryIO, path: Path) -> None:
  """Locks the file until it is closed or its process ends; does nothing on systems without such locks."""
  try:
    import fcntl
  except ImportError:
    return
  try:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except BlockingIOError:
    raise ValueError(f"Must have a journal that no other process writes, we instead got {path}, which is open") from None
  except OSError:
    return  # a file system without locks


def _read(file: BinaryIO, path: Path) -> tuple[list[bytes], int]:
  """The complete records of a file, and the byte where they end; 0 for an empty file."""
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
    # The end of an interrupted write: incomplete data, or blocks of zeros.
    if (is_length and end >= len(data)) or not any(data[position:]):
      break
    where = len(BEGINNING) + position
    raise ValueError(f"Must have a whole journal in {path}, we instead got a damaged record at byte {where}")
  return records, len(BEGINNING) + position
