"""Compiled programs are kept in the user's cache folder, so that only the first command waits for the compiler."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

MIN_COMPILE_S = 0.02  # a program that takes longer is worth a file: a command compiles about ten


def cache_folder() -> Path:
  """``JAXSPEC_CACHE_DIR``, else ``jaxspec/xla`` in ``XDG_CACHE_HOME`` or ``~/.cache``."""
  if folder := os.environ.get("JAXSPEC_CACHE_DIR"):
    return Path(folder).expanduser()
  root = os.environ.get("XDG_CACHE_HOME")
  return (Path(root) if root else Path("~/.cache").expanduser()) / "jaxspec" / "xla"


def enable() -> Path | None:
  """Switches the persistent cache on; returns its folder, or None where that is not possible.

  A cache the user has already set up through jax's own variables is left alone.
  """
  import jax

  if jax.config.jax_compilation_cache_dir:
    return Path(jax.config.jax_compilation_cache_dir)
  try:
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
      pass
  except (OSError, RuntimeError):  # RuntimeError: there is no home folder
    return None
  jax.config.update("jax_compilation_cache_dir", str(folder))
  jax.config.update("jax_persistent_cache_min_compile_time_secs", MIN_COMPILE_S)
  return folder
