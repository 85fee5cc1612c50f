"""From what a user names to a checkpoint folder: `model_folder`, the one way of every argument that takes a network.

| named | folder |
|---|---|
| a bundle or a checkpoint, by path or shipped name | itself |
| a folder or a file of released weights | its conversion, made once |
| a reference to the hub (`jaxspec.io.hub`) | itself if it holds a bundle or a checkpoint, else its conversion |
"""

from __future__ import annotations

import fnmatch
import importlib
import itertools
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jaxspec.errors import CheckpointError, values_as
from jaxspec.io import checkpoints, hub, kept_conversions, shipped
from jaxspec.io.bundle import BUNDLE_FILE
from jaxspec.io.converters import AUTO, CONVERTERS

OnWrite = Callable[[int, int], None]

WEIGHT_SUFFIXES = (".pt", ".pth", ".ckpt", ".bin", ".safetensors", ".gguf")
_LEVELS, _MOST_NAMES = 3, 5000  # of a local folder; more are not looked at
# Weights of a repository in the order of preference, and its small files beside them.
_WEIGHTS = (
  "model*.safetensors",
  "pytorch_model*.bin",
  "diffusion_pytorch_model*.safetensors",
  "diffusion_pytorch_model*.bin",
)
_RELEASED_FIELDS = ("model_type", "_class_name", "architectures")  # of a config.json of the hub
_BESIDE = (".json", ".txt", ".model", ".tiktoken")
_READ = (*WEIGHT_SUFFIXES, *_BESIDE)


class Source(NamedTuple):
  """Released weights on this machine.

  Attributes:
    path: a folder or a file.
    name: of the network.
    identity: changes if the content does; JSON.
    names: of a folder's files; None for a file.
    config: content of a folder's ``config.json``, {} without one.
    meta: provenance that the path does not tell.
  """

  path: Path
  name: str
  identity: list[Any]
  names: tuple[str, ...] | None = None
  config: Mapping[str, Any] = {}
  meta: Mapping[str, Any] = {}


def model_folder(path: str | os.PathLike[str]) -> Path:
  """The checkpoint folder or bundle that ``path`` names; see the module's docstring.

  A path that is none of these is returned as it is.

  Raises:
    CheckpointError: one line, for released weights that cannot be read, or a repository that does not give them out.
    LinkError: if the hub cannot be reached.
    ImportError: without the library for the hub.
  """
  if not hub.is_reference(path):
    path = shipped.named(path)
    source = _local(path)
    return path if source is None else _converted(source)
  reference = hub.parse(path)
  if reference.is_pinned and (kept := _kept(reference)) is not None:
    return kept
  pinned = hub.pin(reference)
  if (kept := _kept(pinned.reference)) is not None:
    return kept
  if _is_own(pinned):
    return hub.fetch(pinned, pinned.names)
  return _converted(_fetched(pinned))


def network_name(path: str | os.PathLike[str]) -> str:
  """The name of a network that is given by its path: that of its folder, or of its repository or file at the hub."""
  return hub.parse(path).name if hub.is_reference(path) else Path(path).resolve().name


def _converted(source: Source) -> Path:
  """The kept conversion; one that takes long is shown on stderr."""

  def convert_shown(destination: Path) -> None:
    with _auto().command.shown(f"Converting {source.name}: ") as on_write:
      convert(source, destination, on_write)

  return kept_conversions.made(source.identity, source.name, convert_shown)


def released_config(path: str | os.PathLike[str]) -> Any | None:
  """The config of the network that released weights hold, without reading, fetching or converting the weights.

  Returns:
    A config of `jaxspec.models.registry`; None for a checkpoint or a bundle, for a path that holds neither, and for weights
    whose tensors tell their config.
  Raises:
    CheckpointError, LinkError, ImportError: as `model_folder`.
  """
  if hub.is_reference(path):
    reference = hub.parse(path)
    if reference.file is not None or (reference.is_pinned and _kept(reference) is not None):
      return None
    pinned = hub.pin(reference)
    if _is_own(pinned) or checkpoints.CONFIG_FILE not in pinned.names:
      return None
    names = tuple(name for name in pinned.names if "/" not in name and name.endswith(_BESIDE))
    folder = hub.fetch(pinned, names)
    config: Mapping[str, Any] = _config(folder / checkpoints.CONFIG_FILE)
  else:
    folder = shipped.named(path)
    source = _local(folder)
    if source is None or source.names is None:
      return None
    names, config = source.names, source.config
  found = [released.read_config for released in _auto().for_folder(names, config).values()]
  if not found or found[0] is None:
    return None
  try:
    return found[0](folder)
  except ValueError as error:
    line = str(error)
    raise CheckpointError(line if str(folder) in line else f"Cannot read the config of {path}: {line}") from error


def _kept(reference: hub.Reference) -> Path | None:
  return kept_conversions.found(list(reference), reference.name)


def source_of(path: str | os.PathLike[str]) -> Source:
  """Released weights by path or by reference, fetched if they are at the hub.

  Raises:
    CheckpointError, LinkError, ImportError: as `model_folder`; also for a path that holds none.
  """
  if hub.is_reference(path):
    pinned = hub.pin(hub.parse(path))
    if _is_own(pinned):
      raise CheckpointError(f"Must have released weights, {path} holds a checkpoint that needs no conversion")
    return _fetched(pinned)
  path = Path(path)
  if not path.exists():
    raise CheckpointError(f"No folder or file at {path}")
  if (source := _local(path)) is None:
    raise CheckpointError(_unknown(path, {}))
  return source


def convert(source: Source, destination: Path, on_write: OnWrite = lambda done, total: None) -> str:
  """Writes the checkpoint folder of released weights, with their provenance.

  Returns:
    The name of the converter.
  Raises:
    CheckpointError: one line; nothing is left at the destination then.
  """
  auto = _auto()
  with values_as(CheckpointError):
    checkpoints.check_destination(destination, source.path)
    found = auto.for_file(source.path) if source.names is None else auto.for_folder(source.names, source.config)
    if not found:
      raise CheckpointError(_unknown(source.path, source.config))
    destination.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{destination.name}.", dir=destination.parent) as work:
      whole = Path(work) / source.name
      name = auto.convert(found, source.path, whole, on_write=on_write)
      checkpoints.add_meta(whole, source.meta)
      checkpoints.check_destination(destination, family=checkpoints.read_config(whole)["family"])
      if destination.exists():
        shutil.rmtree(destination)
      whole.rename(destination)
  return name


# Sources.


def _local(path: Path) -> Source | None:
  """A folder or file of released weights; None for anything else, which its reader explains."""
  if path.is_file():
    beside = [file for file in (path, path.with_suffix(".json")) if file.is_file()]
    is_weights = path.suffix.lower() in WEIGHT_SUFFIXES
    return Source(path, path.stem, kept_conversions.of_files(beside)) if is_weights else None
  if not path.is_dir() or (path / BUNDLE_FILE).exists():
    return None
  config = _config(path / checkpoints.CONFIG_FILE)
  if "family" in config:
    return None
  seen = itertools.islice(_names(path), _MOST_NAMES)
  names = tuple(name for name in seen if name.endswith(_READ) and (path / name).is_file())
  has_weights = any(name.endswith(WEIGHT_SUFFIXES) and Path(name).name != checkpoints.PARAMS_FILE for name in names)
  has_fields = bool(config.keys() & set(_RELEASED_FIELDS))
  # A config without weights is of a released network too: a plan needs no more, and a conversion names what is missing.
  if not (has_weights or has_fields) or (not (has_weights and has_fields) and not _auto().for_folder(names, config)):
    return None
  return Source(path, path.resolve().name, kept_conversions.of_files(path / name for name in names), names, config)


def _fetched(pinned: hub.Pinned) -> Source:
  """The weights of a repository, or one file of it, on this machine."""
  reference = pinned.reference
  meta = {"source": str(reference._replace(revision=hub.MAIN)), "revision": reference.revision}
  if reference.file is not None:
    if reference.file not in pinned.names:
      raise CheckpointError(f"No file {reference.file} in {reference.repo}: {_files_in_words(pinned)}")
    beside = str(Path(reference.file).with_suffix(".json"))
    folder = hub.fetch(pinned, [name for name in (reference.file, beside) if name in pinned.names])
    return Source(folder / reference.file, reference.name, list(reference), meta=meta)
  config: Mapping[str, Any] = {}
  if checkpoints.CONFIG_FILE in pinned.names:
    config = _config(hub.fetch(pinned, [checkpoints.CONFIG_FILE]) / checkpoints.CONFIG_FILE)
  names = tuple(_needed(pinned.names))
  if not _auto().for_folder(names, config):
    if not config:
      raise CheckpointError(f"Must have one file of {hub.PREFIX}{reference.repo}: {_files_in_words(pinned)}")
    raise CheckpointError(_unknown(reference, config))
  return Source(hub.fetch(pinned, names), reference.name, list(reference), names, config, meta)


def _needed(names: Iterable[str]) -> list[str]:
  """The files of a repository that a converter may read: one form of the weights, and the small files beside them."""
  top = [name for name in names if "/" not in name]
  for pattern in _WEIGHTS:
    if weights := fnmatch.filter(top, pattern):
      return sorted({*weights, *(name for name in top if name.endswith(_BESIDE))})
  return [name for name in names if name.endswith(_READ)]


def _is_own(pinned: hub.Pinned) -> bool:
  """Whether a repository holds a bundle or a checkpoint of this library."""
  names, checkpoint = set(pinned.names), {checkpoints.CONFIG_FILE, checkpoints.PARAMS_FILE}
  return pinned.reference.file is None and (BUNDLE_FILE in names or checkpoint <= names)


def _files_in_words(pinned: hub.Pinned) -> str:
  files = [name for name in pinned.names if name.endswith(WEIGHT_SUFFIXES)]
  shown = ", ".join(f"{hub.PREFIX}{pinned.reference.repo}/{name}" for name in files[:8])
  return f"{shown}{', ...' if files[8:] else ''}" or "it has no weights that a converter reads"


def _unknown(path: Any, config: Mapping[str, Any]) -> str:
  converters = ", ".join(name for name in CONVERTERS if name != AUTO)
  found = next((repr(config[name]) for name in _RELEASED_FIELDS if config.get(name)), "none that it reads")
  return f"Must have a network that a converter reads ({converters}), {path} holds {found}"


def _names(folder: Path) -> Generator[str, None, None]:
  """Files of a folder and of those below, relative, without hidden ones."""
  for place, below, files in os.walk(folder):
    inside = Path(place).relative_to(folder)
    below[:] = [] if len(inside.parts) + 1 >= _LEVELS else sorted(name for name in below if not name.startswith("."))
    yield from ((inside / name).as_posix() for name in sorted(files) if not name.startswith("."))


def _config(file: Path) -> dict[str, Any]:
  """The content of a ``config.json``; {} if there is none or it is damaged: the reader of a checkpoint says how."""
  try:
    document = json.loads(file.read_text(encoding="utf-8"))
  except (OSError, ValueError, RecursionError):
    return {}
  return document if isinstance(document, dict) else {}


def _auto() -> Any:
  """`conversion.auto`, which finds a converter; it is above this room, as all converters are."""
  return importlib.import_module(CONVERTERS[AUTO].target.partition(":")[0])
