"""The bundles that come with the package, by name."""

from __future__ import annotations

import os
from pathlib import Path

from jaxspec.io.stored_files import check_path

DEFAULT = "scenes"
BUNDLES = (DEFAULT, "digits32-causal", "digits32-mar", "digits32-var", "digits32-dit", "wordnet")

# Default bundles by kind of prompt, and of methods that need other networks.
_OF_PROMPTS = {"class": "digits32-causal", "text": "wordnet"}
_OF_METHODS: dict[tuple[str, str | None], str] = {
  ("class", "parallel"): "digits32-mar",  # needs a masked network
  ("class", "scale-speculative"): "digits32-var",
  ("class", "scale-ciar"): "digits32-var",
  ("class", "step-speculative"): "digits32-dit",
  ("class", "step-ciar"): "digits32-dit",
}

# The shipped bundles of an installed package; a clone has them in checkpoints/.
_INSTALLED = Path(__file__).parents[1] / "_checkpoints"

# Environment variable with the folder of the default bundle.
VARIABLE = "JAXSPEC_CHECKPOINT"


def shipped(name: str) -> Path:
  """A folder below ``checkpoints/`` of the repository, else of the installed package; it may not exist."""
  in_repository = _INSTALLED.parents[1] / "checkpoints" / name
  return in_repository if in_repository.is_dir() else _INSTALLED / name


def is_installed(folder: Path) -> bool:
  """Whether a folder is a part of the installed package, which no command changes."""
  return _INSTALLED.resolve() in folder.resolve().parents


def named(path: str | os.PathLike) -> Path:
  """The folder, or the shipped bundle of that name if there is no such folder.

  Raises:
    ValueError: if it is not a path.
  """
  path = check_path(path, "the path of a folder, or the name of a shipped bundle")
  return path if path.exists() or len(path.parts) != 1 or not shipped(path.name).is_dir() else shipped(path.name)


def default_bundle() -> Path:
  """The folder that ``JAXSPEC_CHECKPOINT`` names, else the shipped `DEFAULT`."""
  path = os.environ.get(VARIABLE)
  return Path(path) if path else shipped(DEFAULT)


def bundle_for(kind: str, method: str | None = None) -> str | None:
  """Name of the default bundle for a kind of prompt.

  Args:
    kind: ``class`` or ``text``; all other kinds take the default bundle.
    method: name of the method, None for the bundle's own.
  Returns:
    One of `BUNDLES`; None is the default bundle.

  Example:
    >>> bundle_for("class"), bundle_for("class", "parallel"), bundle_for("prompt")
    ('digits32-causal', 'digits32-mar', None)
  """
  return _OF_METHODS.get((kind, method), _OF_PROMPTS.get(kind))
