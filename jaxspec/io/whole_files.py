"""Atomic writes of files, through links, and to pipes and stdout."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

STDOUT = Path("-")
_STDOUTS = {STDOUT, *map(Path, ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"))}


def is_stdout(path: Path | None) -> bool:
  """Whether a path is a name of stdout."""
  return path in _STDOUTS


def write_whole(path: Path, write: Callable[[Path], Any]) -> None:
  """Calls ``write`` with a temporary name and renames the file: it is complete or absent.

  Links are followed, and an existing file keeps its mode. For ``-``, a pipe or a device the content is copied.
  """
  try:
    if is_stdout(path) or is_stream(path):
      with tempfile.TemporaryDirectory() as folder:
        write(work := Path(folder) / "whole")
        _copy(work.read_bytes(), path)
      return
    target = destination(path)
    # A name may already have the maximal length.
    work = target.with_name(f".{target.stem[:32]}.{os.getpid()}{target.suffix}")
    try:
      write(work)
      if target.exists():
        work.chmod(stat.S_IMODE(target.stat().st_mode))
      work.replace(target)
    finally:
      work.unlink(missing_ok=True)
  except BrokenPipeError:
    raise  # the reader closed the pipe
  except OSError as error:
    raise ValueError(f"Cannot write {path}: {error.strerror or error}") from error


def destination(path: Path) -> Path:
  """The file of a name after links; `STDOUT` for every name of stdout."""
  return STDOUT if is_stdout(path) else Path(os.path.realpath(path))


def is_stream(path: Path) -> bool:
  """Whether a path is a pipe or a device."""
  try:
    mode = path.stat().st_mode
  except OSError:
    return False
  return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)


def _copy(content: bytes, path: Path) -> None:
  if not is_stdout(path):
    with path.open("wb") as stream:
      stream.write(content)
    return
  sys.stdout.flush()
  sys.stdout.buffer.write(content)
  sys.stdout.buffer.flush()
