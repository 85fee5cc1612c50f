"""Files of networks before they are read: one that cannot be opened or was never fetched is said to be that, not damaged."""

from __future__ import annotations

import os

_LFS = b"version https://git-lfs.github.com/spec/"


def check_readable(path: str | os.PathLike) -> None:
  """Checks that a file can be opened and holds its content, not a pointer to it.

  Git leaves such a pointer, a text of three lines, where a repository was cloned without Git LFS.

  Raises:
    ValueError: one line naming the file and what to do.
  """
  try:
    with open(path, "rb") as file:
      head = file.read(len(_LFS))
  except OSError as error:
    raise ValueError(f"Cannot read {path}: {error.strerror}") from error
  if head == _LFS:
    raise ValueError(f"Must have the content of {path}, it is a pointer of Git LFS: fetch the file (git lfs pull)")
