"""Checks of paths and network files before reading: unreadable and unfetched files get their own errors."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from jaxspec.errors import CheckpointError

_LFS = b"version https://git-lfs.github.com/spec/"


def check_path(path: Any, what: str) -> Path:
  """A path; the empty text of an unset variable would be the current folder.

  Args:
    what: of the message, with its article.
  Raises:
    ValueError: for anything else.
  """
  if not isinstance(path, (str, os.PathLike)) or path == "":
    raise ValueError(f"Must have {what}, we instead got {path!r}")
  return Path(path)


def check_readable(path: str | os.PathLike) -> None:
  """Checks that a file can be opened and holds its content, not a pointer to it.

  A clone without Git LFS has such a pointer, a text of three lines.

  Raises:
    CheckpointError: one line with the file and the remedy.
  """
  try:
    with open(path, "rb") as file:
      head = file.read(len(_LFS))
  except OSError as error:
    raise CheckpointError(f"Cannot read {path}: {error.strerror}") from error
  if head == _LFS:
    raise CheckpointError(f"Must have the content of {path}, it is a pointer of Git LFS: fetch the file (git lfs pull)")
