"""Cached decodes: a file per batch, named after everything that determines its tokens.

The name is a SHA-256 of the weights (target, draft, code book), of the encoded condition and the keys, of the settings
(method, options, sampling, lengths, precision) and of the code (`code_digest`). A cached value is therefore never stale:
other weights, settings or code have another name.
"""

from __future__ import annotations

import functools
import hashlib
import json
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jaxspec

PACKAGE = Path(jaxspec.__file__).parent
# Parts of the package that affect no token.
WITHOUT_A_SAY = ("cli", "training", "metrics", "testing", "py.typed")


def code_digest(package: Path = PACKAGE) -> str:
  """Hash of the sources of the package that affect tokens."""
  found = hashlib.sha256()
  for path in sorted(package.rglob("*.py")):
    name = path.relative_to(package)
    if name.parts[0] not in WITHOUT_A_SAY:
      found.update(f"{name.as_posix()}\0".encode() + path.read_bytes() + b"\0")
  return found.hexdigest()


@functools.cache
def _code() -> str:
  return code_digest()


def tree_digest(tree: Any) -> str:
  """Hash of the arrays of a tree, with their paths, shapes and dtypes."""
  found = hashlib.sha256()
  for path, leaf in jax.tree_util.tree_leaves_with_path(jax.device_get(tree)):
    array = np.asarray(leaf)
    found.update(f"{jax.tree_util.keystr(path)}{array.dtype}{array.shape}".encode())
    found.update(np.ascontiguousarray(array).tobytes())
  return found.hexdigest()


def key_of(weights: Sequence[str], settings: dict[str, Any], *, code: str | None = None) -> str:
  """The name of a decode.

  Args:
    weights: digests of the networks and tables (`tree_digest`).
    settings: everything else that determines the tokens; JSON.
    code: hash of the code, by default of this package.
  """
  machine = [jax.__version__, jax.devices()[0].device_kind]
  text = json.dumps([list(weights), settings, code or _code(), machine], sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()[:24]


class Cache:
  """A folder of values by name."""

  def __init__(self, folder: Path):
    self.folder = folder

  def __contains__(self, name: str) -> bool:
    return self._path(name).is_file()

  def get(self, name: str, make: Callable[[], Any], *, again: bool = False) -> Any:
    """The value of a name; computed and atomically written if it is missing (or with ``again``)."""
    path = self._path(name)
    if again or not path.is_file():
      value = make()
      path.parent.mkdir(parents=True, exist_ok=True)
      part = path.with_suffix(".part")
      part.write_bytes(pickle.dumps(value))
      part.replace(path)
      return value
    return pickle.loads(path.read_bytes())

  def _path(self, name: str) -> Path:
    return self.folder / f"{name}.pickle"
