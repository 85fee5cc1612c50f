"""Converts released weights of any family that a converter recognises.

``python -m conversion.auto SRC DST``: SRC is a folder or a file, or ``hf:ORG/NAME``, ``hf:ORG/NAME/FILE`` with or without
``@REVISION``. Each converter states what it recognises (`jaxspec.io.converters.Released`): the ``model_type`` of a
``config.json``, the files of a folder, or the names of tensors. `jaxspec.load_pipeline` converts through this module.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from jaxspec.io import checkpoints, model_folders
from jaxspec.io.converters import CONVERTERS, Released

from . import command, engine

_NOT_TENSORS = (".gguf",)


def for_folder(names: Iterable[str], config: Mapping[str, Any]) -> dict[str, Released]:
  """Converters, by name, that read a folder of these files with this ``config.json``."""
  names = frozenset(names)
  return {name: released for name, released in _released().items() if released.reads_folder(names, config)}


def for_file(path: Path) -> dict[str, Released]:
  """Converters, by name, that read a file.

  Raises:
    ValueError: in one line, for a damaged file.
  """
  content = {} if path.suffix.lower() in _NOT_TENSORS else engine.read_source(path)
  return {name: released for name, released in _released().items() if released.reads_file(path, content)}


def convert(
  found: Mapping[str, Released], source: Path, destination: Path, *, on_write: engine.OnWrite = engine.silent
) -> str:
  """Writes the checkpoint folder of ``source`` by the first converter that can; returns its name.

  Tables of autoencoders have names in common; only the right one finds all of its tensors.

  Raises:
    ValueError: one line; nothing is left at the destination then.
  """
  problems = {}
  for name, released in found.items():
    try:
      released.convert(source, destination, on_write=on_write)
      return name
    except ValueError as error:
      problems[name] = error
  if len(problems) == 1:
    name, error = problems.popitem()
    raise ValueError(f"{error} (converter {name})") from error
  tried = "; ".join(f"{name}: {error}" for name, error in problems.items())
  raise ValueError(f"Must have weights that a converter reads, we instead got {source}" + (f" ({tried})" if tried else ""))


def _released() -> dict[str, Released]:
  """What the converters recognise, by their names."""
  found = {}
  for name, converter in CONVERTERS.items():
    if converter.released is not None:
      module, _, attribute = converter.released.partition(":")
      found[name] = getattr(importlib.import_module(module), attribute)
  return found


@command.converter(exports=False, takes_fields=False)
def main(source: Path, destination: Path) -> str:
  """Converts SRC, a folder, a file or hf:ORG/NAME, to the checkpoint folder DST."""
  with command.shown() as on_write:
    name = model_folders.convert(model_folders.source_of(source), destination, on_write)
  return f"{checkpoints.read_config(destination)['family']} (converter {name})"


if __name__ == "__main__":
  main()
