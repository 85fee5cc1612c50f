"""Finished races: kept in memory for downloads, and written into the chosen folder when somebody asks for it."""

from __future__ import annotations

import collections
import secrets
from pathlib import Path
from typing import Any, NamedTuple

from jaxspec.io.whole_files import write_whole
from jaxspec.run.json_values import as_json

_MOST = 32


class Finished(NamedTuple):
  """What is left of a race.

  Attributes:
    document: every figure; JSON.
    picture: the images side by side (PNG); None of texts.
    commands, snippets: one for each method (`jaxspec.studio.reproduce`).
  """

  document: dict[str, Any]
  picture: bytes | None
  commands: list[str]
  snippets: list[str]

  def files(self) -> dict[str, bytes]:
    """Contents by the end of their names."""
    found = {"figures.json": as_json(self.document).encode()}
    if self.picture is not None:
      found["images.png"] = self.picture
    text = "\n\n".join(f"# {command}\n\n{snippet}" for command, snippet in zip(self.commands, self.snippets))
    return found | {"repeat.py": text.encode()}


class Kept:
  """The newest races by a name that nobody guesses.

  Args:
    folder: where files may be written; None writes nothing.
  """

  def __init__(self, folder: Path | None = None):
    self.folder = folder
    self._races: collections.OrderedDict[str, Finished] = collections.OrderedDict()

  def add(self, finished: Finished) -> str:
    """Keeps a race, and forgets the oldest one of too many; returns its name."""
    name = secrets.token_hex(12)
    self._races[name] = finished
    while len(self._races) > _MOST:
      self._races.popitem(last=False)
    return name

  def get(self, name: str) -> Finished:
    """A race.

    Raises:
      ValueError: for a name that is not kept.
    """
    if name not in self._races:
      raise ValueError("Must have a race that is still kept, run it once more")
    return self._races[name]

  def write(self, name: str) -> list[str]:
    """Writes the files of a race into the folder; returns their names, which no visitor chooses.

    Raises:
      ValueError: without a folder, or for a name that is not kept.
      UserError: if writing fails.
    """
    finished = self.get(name)
    if self.folder is None:
      raise ValueError("Must have --out FOLDER on the command line to write files, use the downloads instead")
    names = []
    for end, content in finished.files().items():
      file = self.folder / f"race-{name[:8]}-{end}"
      write_whole(file, lambda path, content=content: path.write_bytes(content))
      names.append(file.name)
    return names
