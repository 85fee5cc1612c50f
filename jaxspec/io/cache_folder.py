"""The folder of the user in which the library keeps what can be made again."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(name: str) -> Path:
  """``jaxspec/NAME`` in ``XDG_CACHE_HOME`` or ``~/.cache``; it may not exist.

  Raises:
    RuntimeError: without a home folder.
  """
  root = os.environ.get("XDG_CACHE_HOME")
  return (Path(root) if root else Path("~/.cache").expanduser()) / "jaxspec" / name
