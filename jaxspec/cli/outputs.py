"""Output files of commands (`jaxspec.io.whole_files`): checked before the work, printed after it."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from jaxspec.core.command_line import UserError
from jaxspec.io.whole_files import destination, is_stdout, is_stream

_TEXTS = (".json", ".md")


def check_writable(path: Path, *, suffix: str) -> None:
  """Checks before the work that a file can be written.

  Texts (JSON, Markdown) may also go to ``-``, which is stdout, and to pipes and devices of any name. No pipe or device is
  opened here, because a pipe waits for its reader.

  Raises:
    UserError: if the name is invalid, the folder is missing, or writing fails.
  """
  if suffix in _TEXTS and is_stdout(path):
    if sys.stdout is None:
      raise UserError(f"Cannot write {path}: stdout is closed, give a file name")
    return
  is_named = path.suffix.lower() == suffix
  if is_stream(path) and (is_named or suffix in _TEXTS):
    return
  if not is_named:
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


def check_report(options: dict[str, Any]) -> dict[str, Path]:
  """The files of ``--out`` (.json) and ``--plot`` (.png), checked to be writable.

  Raises:
    UserError: as `check_writable`, or if there is nothing to draw with.
  """
  files = {name: options[name] for name in ("out", "plot") if options[name] is not None}
  for name, path in files.items():
    check_writable(path, suffix=".json" if name == "out" else ".png")
  if "plot" in files:
    try:
      import matplotlib  # noqa: F401
    except ImportError as error:
      raise UserError("Must have matplotlib for --plot: pip install 'jaxspec-decoding[train]'") from error
  return files


def report_console(*files: Path | None) -> Any:
  """The console of a report: stdout, or stderr if an output file is stdout."""
  from rich.console import Console

  return Console(highlight=False, stderr=any(map(is_stdout, files)))


def print_written(console: Any, *paths: Path) -> None:
  """The last lines of a report: written files other than stdout."""
  from rich.text import Text

  for path in paths:
    if not is_stdout(path):
      console.print(Text.assemble(("wrote ", "dim"), str(path)), soft_wrap=True)
