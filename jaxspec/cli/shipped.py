"""Where the checkpoints are that come with the package."""

from __future__ import annotations

from pathlib import Path

import jaxspec


def shipped(name: str) -> Path:
  """A folder below ``checkpoints/`` of the repository, else of the installed package; it may not exist."""
  package = Path(jaxspec.__file__).parent
  in_repository = package.parent / "checkpoints" / name
  return in_repository if in_repository.is_dir() else package / "_checkpoints" / name


def named(path: Path) -> Path:
  """The folder itself, or the shipped one of that name where there is no such folder."""
  return path if path.exists() or len(path.parts) != 1 or not shipped(path.name).is_dir() else shipped(path.name)
