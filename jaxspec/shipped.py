"""The bundles that come with the package, by name."""

from __future__ import annotations

import os
from pathlib import Path

DEFAULT = "emoji64"
BUNDLES = (DEFAULT, "classes64", "classes64-causal", "digits32-causal", "wordnet")

# Names the folder of the default bundle, in place of the shipped one.
VARIABLE = "JAXSPEC_CHECKPOINT"


def shipped(name: str) -> Path:
  """A folder below ``checkpoints/`` of the repository, else of the installed package; it may not exist."""
  package = Path(__file__).parent
  in_repository = package.parent / "checkpoints" / name
  return in_repository if in_repository.is_dir() else package / "_checkpoints" / name


def named(path: str | os.PathLike) -> Path:
  """The folder itself, or the shipped one of that name where there is no such folder."""
  path = Path(path)
  return path if path.exists() or len(path.parts) != 1 or not shipped(path.name).is_dir() else shipped(path.name)


def default_bundle() -> Path:
  """The folder that ``JAXSPEC_CHECKPOINT`` names, else the shipped `DEFAULT`."""
  path = os.environ.get(VARIABLE)
  return Path(path) if path else shipped(DEFAULT)
