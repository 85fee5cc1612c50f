"""Conversions of released weights, kept in ``jaxspec/models`` of the user's cache folder, each under a digest of its source.

A lock lets one process convert while others wait. A conversion is written beside its place and then renamed, so it is whole
or not there; what a killed process left is removed by the next one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any

from jaxspec.errors import CheckpointError
from jaxspec.io.cache_folder import cache_folder
from jaxspec.io.checkpoints import CONFIG_FILE, PARAMS_FILE

# Of what converters write. Raise it if a later version cannot use, or would not write, the conversions of an earlier one:
# they are then made anew. A release alone does not do that, because a large network takes minutes and gigabytes.
FORM = 1


def of_files(files: Iterable[Path]) -> list[Any]:
  """The identity of files: sizes and times instead of the content, whose reading takes as long as a conversion."""
  return [[str(file.resolve()), (state := file.stat()).st_size, state.st_mtime_ns] for file in files]


def found(identity: list[Any], name: str) -> Path | None:
  """The conversion of a source; None if it was not made.

  Args:
    identity: of the source, JSON.
    name: of the network.
  """
  folder = _place(identity) / name
  return folder if (folder / PARAMS_FILE).is_file() and (folder / CONFIG_FILE).is_file() else None


def made(identity: list[Any], name: str, convert: Callable[[Path], Any]) -> Path:
  """The conversion of a source, made by ``convert(folder)`` if it is not there.

  Raises:
    CheckpointError: if it cannot be kept; and what ``convert`` raises.
  """
  if (kept := found(identity, name)) is not None:
    return kept
  place = _place(identity)
  try:
    place.mkdir(parents=True, exist_ok=True)
    with _locked(place / "lock"):
      if (kept := found(identity, name)) is not None:
        return kept
      for left in place.iterdir():  # by a process that was killed, or a user who deleted a part
        if left.is_dir():
          shutil.rmtree(left)
      convert(place / name)
  except OSError as error:
    raise CheckpointError(f"Cannot keep a converted network in {place}: {error.strerror or error}") from error
  return place / name


def _place(identity: list[Any]) -> Path:
  text = json.dumps([FORM, *identity])
  try:
    return cache_folder("models") / hashlib.sha256(text.encode()).hexdigest()[:24]
  except RuntimeError as error:
    raise CheckpointError(f"Must have a folder for converted networks: set XDG_CACHE_HOME ({error})") from error


@contextlib.contextmanager
def _locked(path: Path) -> Generator[None, None, None]:
  """Waits until no other process or thread is inside, on systems with such locks; a killed process loses its lock."""
  with path.open("w") as file:
    with contextlib.suppress(ImportError, OSError):
      import fcntl

      fcntl.flock(file, fcntl.LOCK_EX)
    yield
