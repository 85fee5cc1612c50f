"""Files that commands write: checked before the long work, complete or not there, to links, pipes and stdout too."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxspec.cli.errors import UserError

STDOUT = Path("-")
_STDOUTS = {STDOUT, *map(Path, ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"))}
_TEXTS = (".json", ".md")


def is_stdout(path: Path | None) -> bool:
  """Whether a name is one of stdout."""
  return path in _STDOUTS


def check_writable(path: Path, *, suffix: str) -> None:
  """Finds out before the long work whether a file can be written.

  Texts (JSON, Markdown) may also go to ``-``, which is stdout, to a pipe, or to a device. Nothing is opened here then: a
  pipe waits for its reader.

  Raises:
    UserError: if the name is wrong, the folder is missing, or writing there fails.
  """
  if suffix in _TEXTS and is_stdout(path):
    if sys.stdout is None:
      raise UserError(f"Cannot write {path}: stdout is closed, give a file name")
    return
  if suffix in _TEXTS and _is_stream(path):
    return
  if path.suffix.lower() != suffix:
    raise UserError(f"Must have a file name that ends in {suffix}, we instead got {str(path)!r}")
  try:
    target = destination(path)
    if target.is_symlink():
      raise UserError(f"Cannot write {path}: its links lead in a circle")
    if target.is_dir():
      raise UserError(f"Cannot write {path}: it is a folder, give a file name inside it")
    if not target.parent.is_dir():
      folder = target.parent if path.is_symlink() else path.parent
      raise UserError(f"Cannot write {path}: there is no folder {folder}, make it first")
    with tempfile.TemporaryFile(dir=target.parent):
      pass
    if target.exists():
      with target.open("ab"):
        pass
  except OSError as error:
    raise UserError(f"Cannot write {path}: {error.strerror}, choose another place") from error


def write_whole(path: Path, write: Callable[[Path], Any]) -> None:
  """Calls ``write`` with a temporary name and moves what it wrote: the file is complete or not there.

  Links are followed, and a file that is there keeps its mode. To ``-``, a pipe or a device the content is copied.
  """
  try:
    if is_stdout(path) or _is_stream(path):
      with tempfile.TemporaryDirectory() as folder:
        write(work := Path(folder) / "whole")
        _copy(work.read_bytes(), path)
      return
    target = destination(path)
    # A name may already be as long as names can be.
    work = target.with_name(f".{target.stem[:32]}.{os.getpid()}{target.suffix}")
    try:
      write(work)
      if target.exists():
        work.chmod(stat.S_IMODE(target.stat().st_mode))
      work.replace(target)
    finally:
      work.unlink(missing_ok=True)
  except BrokenPipeError:
    raise  # the reader has seen enough
  except OSError as error:
    raise UserError(f"Cannot write {path}: {error.strerror or error}") from error


def report_console(*files: Path | None) -> Any:
  """Where a command reports to people: stdout, or stderr where a file of it is stdout."""
  from rich.console import Console

  return Console(highlight=False, stderr=any(map(is_stdout, files)))


def print_written(console: Any, *paths: Path) -> None:
  """The last lines of a report: what was written, if it is not stdout."""
  from rich.text import Text

  for path in paths:
    if not is_stdout(path):
      console.print(Text.assemble(("wrote ", "dim"), str(path)), soft_wrap=True)


def destination(path: Path) -> Path:
  """The file that a name leads to; `STDOUT` for every name of it."""
  return STDOUT if is_stdout(path) else Path(os.path.realpath(path))


def _is_stream(path: Path) -> bool:
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
