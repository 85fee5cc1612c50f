"""Finished comparisons: kept in memory for downloads, and written into the chosen folder on request."""

from __future__ import annotations

import collections
import secrets
from pathlib import Path
from typing import Any, NamedTuple

from jaxspec.io.whole_files import write_whole
from jaxspec.run.json_values import as_json

_MOST = 32


class ComparisonResult(NamedTuple):
  """A finished comparison.

  Attributes:
    document: all figures; JSON.
    picture: the images side by side (PNG); None for texts.
    commands, snippets: one for each method (`jaxspec.studio.reproduce`).
  """

  document: dict[str, Any]
  picture: bytes | None
  commands: list[str]
  snippets: list[str]

  def files(self) -> dict[str, bytes]:
    """Contents by the suffix of their file names."""
    found = {"figures.json": as_json(self.document).encode()}
    if self.picture is not None:
      found["images.png"] = self.picture
    text = "\n\n".join(f"# {command}\n\n{snippet}" for command, snippet in zip(self.commands, self.snippets))
    return found | {"repeat.py": text.encode()}


class ResultStore:
  """The newest comparisons, by random names.

  Args:
    folder: for written files; None writes nothing.
  """

  def __init__(self, folder: Path | None = None):
    self.folder = folder
    self._results: collections.OrderedDict[str, ComparisonResult] = collections.OrderedDict()

  def add(self, finished: ComparisonResult) -> str:
    """Stores a comparison under a new name, and evicts the oldest one of too many; returns the name."""
    name = secrets.token_hex(12)
    self._results[name] = finished
    while len(self._results) > _MOST:
      self._results.popitem(last=False)
    return name

  def get(self, name: str) -> ComparisonResult:
    """A comparison.

    Raises:
      ValueError: for an unknown name.
    """
    if name not in self._results:
      raise ValueError("Must have the name of a stored comparison, run it once more")
    return self._results[name]

  def write(self, name: str) -> list[str]:
    """Writes the files of a comparison into the folder; returns their names, which a request cannot choose.

    Raises:
      ValueError: without a folder, or for an unknown name.
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
