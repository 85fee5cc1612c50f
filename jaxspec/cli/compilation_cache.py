"""The cache of compiled programs in the user's cache folder, so that only the first command compiles.

Unreadable files, from a full disk or a killed process, are removed: jax alone would warn about them at every command and
never replace them.
"""

from __future__ import annotations

import glob
import os
import re
import tempfile
import time
import warnings
from pathlib import Path

import click

from jaxspec.io import cache_folder as cache_root

MIN_COMPILE_S = 0.02  # seconds of compilation from which a program is cached; a command compiles about ten

# Warnings of jax, with the name of the program; the file name is NAME-HASH-cache.
_TROUBLE = re.compile(r"Error (reading|writing) persistent compilation cache entry for '([^']+)': (.*)", re.DOTALL)


def cache_folder() -> Path:
  """``JAXSPEC_CACHE_DIR``, else ``jaxspec/xla`` in ``XDG_CACHE_HOME`` or ``~/.cache``."""
  if folder := os.environ.get("JAXSPEC_CACHE_DIR"):
    return Path(folder).expanduser()
  return cache_root.cache_folder("xla")


def enable() -> Path | None:
  """Enables the persistent cache; returns its folder, or None if that is not possible.

  A cache set up through jax's own variables is used instead.
  """
  import jax

  from jaxspec.core.platform import jax_setting, without_stack_frames

  without_stack_frames()
  if chosen := jax_setting("jax_compilation_cache_dir"):
    return Path(chosen)
  try:
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
      pass
  except (OSError, RuntimeError):  # RuntimeError: no home folder
    return None
  jax.config.update("jax_compilation_cache_dir", str(folder))
  jax.config.update("jax_persistent_cache_min_compile_time_secs", MIN_COMPILE_S)
  _remove_damaged(folder)
  return folder


def _remove_damaged(folder: Path) -> None:
  """From now on a program whose file cannot be read is compiled and kept again, without a word; one that cannot be written
  is said once, and no half of it stays."""
  show, since, said = warnings.showwarning, time.time(), False

  def showwarning(message, *args, **kwargs):
    nonlocal said
    trouble = _TROUBLE.fullmatch(str(message))
    if trouble is None:
      show(message, *args, **kwargs)
      return
    what, program, reason = trouble.groups()
    for kept in folder.glob(f"{glob.escape(program)}-*-cache"):
      # The warning does not identify the program among those with this name, so all are removed and compiled again on
      # demand.
      try:
        if what == "reading" or kept.stat().st_mtime >= since:
          kept.unlink()
      except OSError:  # removed by another process, or owned by another user
        pass
    if what == "writing" and not said:
      said = True
      click.echo(f"Note: compiled programs cannot be kept in {folder}: {' '.join(reason.split())}", err=True)

  warnings.showwarning = showwarning
