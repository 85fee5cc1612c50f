"""Folders of language models as the Hugging Face hub stores them, read and written through the engine.

A folder holds ``config.json`` and the weights (``model.safetensors`` or ``pytorch_model.bin``, whole or in parts with an
``...index.json`` that names them). It usually holds ``generation_config.json`` too, which may declare further tokens that
end a text, and ``tokenizer.json``, which is copied into the checkpoint folder as it is.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError
from safetensors.numpy import save_file

from jaxspec.io import checkpoints
from jaxspec.io.stored_files import check_readable
from jaxspec.io.text.language_tokenizer import TOKENIZER_FILE, load_tokenizer
from jaxspec.models import registry

from . import command, engine
from .rules import Rule

CONFIG_FILE = "config.json"
GENERATION_FILE = "generation_config.json"
SAFE_FILE = "model.safetensors"
WEIGHT_FILES = (SAFE_FILE, f"{SAFE_FILE}.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
_NUMBERED = re.compile(r"(model|pytorch_model)-\d{5}-of-(\d{5})(\.safetensors|\.bin)")


class Architecture(NamedTuple):
  """One kind of network on the hub.

  Attributes:
    model_type: ``model_type`` of its ``config.json``.
    prefix: prefix of every tensor name, the output matrix excepted.
    family: the engine's table; see `family`.
    read_config: ``config.json`` -> fields of the family's config; raises ``ValueError`` with one line.
    write_config: the family's config -> ``config.json``; None if the folder cannot be written.
    copied: further files that go with the weights as they are, where a folder has them.
  """

  model_type: str
  prefix: str
  family: engine.Family
  read_config: Callable[[dict[str, Any]], dict[str, Any]]
  write_config: Callable[[Any], dict[str, Any]] | None = None
  copied: tuple[str, ...] = ()


class Source(NamedTuple):
  """The content of a folder or of a file of weights."""

  tensors: dict[str, Any]  # `engine.SourceTensor` by the names of the hub
  fields: dict[str, Any]  # of the family's config
  tokenizer: bytes | None  # content of tokenizer.json
  meta: dict[str, Any]


ReadFn = Callable[[Path, Architecture], Source]


def family(name: str, rules: tuple[Rule, ...], ignored: tuple[str, ...]) -> engine.Family:
  """Table of a family whose config comes from the fields alone; the shapes are checked against it."""
  return engine.Family(name, rules, ignored, lambda shapes, fields: registry.make_config(name, fields))


def run(
  architecture: Architecture, *, source: Path, destination: Path, config_file: Path | None, export: bool,
  tokenizer: Path | None, read: ReadFn | None = None,
) -> Any:  # fmt: skip
  """Runs the command of an architecture with its options; returns the config."""
  if export:
    return export_folder(source, destination, architecture)
  fields = command.read_fields(config_file)
  command.check_fields(architecture.family, fields)
  with command.shown() as on_write:
    return convert_folder(source, destination, architecture, fields, tokenizer, read, on_write=on_write)


def convert_folder(
  source: Path, destination: Path, architecture: Architecture, fields: dict[str, Any], tokenizer: Path | None,
  read: ReadFn | None = None, *, on_write: engine.OnWrite = engine.silent,
) -> Any:  # fmt: skip
  """Writes the checkpoint folder of a hub folder; returns its config.

  Args:
    fields: config fields that win over those of ``config.json``.
    tokenizer: ``tokenizer.json`` to take instead of the folder's.
    read: reads ``source``, `read_folder` by default.
    on_write: as for `engine.convert_file`.
  Raises:
    ValueError: one line; nothing is left at the destination then.
  """
  content = (read or read_folder)(source, architecture)
  checkpoints.check_destination(destination, source)
  tokenizer_json = content.tokenizer if tokenizer is None else read_bytes(tokenizer)
  fields = content.fields | fields
  copied = {name: read_bytes(source / name) for name in architecture.copied if (source / name).is_file()}
  try:
    config, leaves = engine.match(content.tensors, family_for(architecture, fields), fields)
    if tokenizer_json is not None:
      _check_tokenizer(tokenizer_json, source, config.vocab_size)
    engine.write(destination, config, leaves, meta=content.meta, on_write=on_write)
  except (ValueError, SafetensorError) as error:
    text = str(error)
    raise ValueError(text if str(source) in text else f"Cannot convert {source}: {text}") from error
  if tokenizer_json is not None:
    copied[TOKENIZER_FILE] = tokenizer_json
  for name, data in copied.items():
    (destination / name).write_bytes(data)
  return config


def export_folder(source: Path, destination: Path, architecture: Architecture) -> Any:
  """Writes the hub folder of a checkpoint folder; returns its config.

  Raises:
    ValueError: one line; nothing is left at the destination then.
  """
  assert architecture.write_config is not None
  if destination.exists():
    raise ValueError(f"Must have a new folder to write to, {destination} exists")
  if checkpoints.read_config(source)["family"] != architecture.family.name:
    raise ValueError(f"Must have a {architecture.family.name} checkpoint, {source} is of another family")
  checkpoint = checkpoints.load(source)
  state_dict = engine.to_state_dict(checkpoints.flatten(checkpoint.params), architecture.family, checkpoint.config)
  document = {"model_type": architecture.model_type, "dtype": "float32"} | architecture.write_config(checkpoint.config)
  try:
    destination.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{destination.name}.", dir=destination.parent))
  except OSError as error:
    raise ValueError(f"Cannot write {destination}: {error.strerror}") from error
  try:
    save_file(state_dict, work / SAFE_FILE, metadata={"format": "pt"})
    (work / CONFIG_FILE).write_text(json.dumps(document, indent=2) + "\n")
    for name in (TOKENIZER_FILE, *architecture.copied):
      if (checkpoint.folder / name).is_file():
        shutil.copyfile(checkpoint.folder / name, work / name)
    work.chmod(0o755)
    (work / SAFE_FILE).chmod(0o644)
    work.rename(destination)
  except OSError as error:
    raise ValueError(f"Cannot write {destination}: {error.strerror}") from error
  finally:
    shutil.rmtree(work, ignore_errors=True)
  return checkpoint.config


# Reading.


def read_folder(folder: Path, architecture: Architecture) -> Source:
  """Reads a hub folder; tensors stay on disk.

  Raises:
    ValueError: one line naming what is missing or damaged.
  """
  fields = read_fields(folder, architecture)
  files = weight_files(folder)
  tensors = read_tensors(folder, files)
  tokenizer = folder / TOKENIZER_FILE
  return Source(
    with_prefix(tensors, architecture.prefix),
    fields,
    read_bytes(tokenizer) if tokenizer.is_file() else None,
    {"source": folder.resolve().name, "source_sha256": digest(files), "licence": "unknown"},
  )


def read_fields(folder: Path, architecture: Architecture) -> dict[str, Any]:
  """Config fields of a hub folder; its weights need not be there.

  Raises:
    ValueError: one line naming what is missing or damaged.
  """
  if not folder.is_dir():
    raise ValueError(f"Must have a folder with {CONFIG_FILE} and weights, {folder} is none")
  document = read_json(folder / CONFIG_FILE)
  found = document.get("model_type")
  if found != architecture.model_type:
    raise ValueError(f"Must have model_type {architecture.model_type!r} in {folder / CONFIG_FILE}, we instead got {found!r}")
  file = folder / GENERATION_FILE
  try:
    # Chat models declare the end of a turn there alone.
    more = end_ids(read_json(file), None) if file.is_file() else ()
    file = folder / CONFIG_FILE
    if more:
      document["eos_token_id"] = [*end_ids(document, None), *more]
    return architecture.read_config(document)
  except (KeyError, TypeError, ValueError, AttributeError) as error:
    text = f"{error} is missing" if isinstance(error, KeyError) else str(error)
    if isinstance(error, (TypeError, AttributeError)):  # of a value that is no number or no object
      text = f"a field has another type of value than released ones ({text})"
    raise ValueError(text if str(file) in text else f"{file}: {text}") from error


def weight_files(folder: Path) -> list[Path]:
  """The files with weights, in the order of their names.

  Raises:
    ValueError: if there are none, or one of several parts is missing.
  """
  present = [folder / name for name in WEIGHT_FILES if (folder / name).is_file()]
  if not present:
    return _numbered_files(folder)
  if present[0].suffix != ".json":
    return present[:1]
  parts = read_json(present[0]).get("weight_map")
  # Only plain file names beside the index are allowed; a path could point anywhere.
  if not isinstance(parts, dict) or not all(isinstance(p, str) and Path(p).name == p for p in parts.values()):
    raise ValueError(f"Corrupt {present[0]}: must have a weight_map with file names")
  return _all_of(folder, sorted(set(parts.values())), f"of {present[0].name}")


def _numbered_files(folder: Path) -> list[Path]:
  """The parts of a network without an index, of which each has its number and their count in its name."""
  sets = {(m[1], m[2], m[3]) for path in folder.iterdir() if (m := _NUMBERED.fullmatch(path.name))}
  if not sets:
    raise ValueError(f"No weights in {folder}: must have one of {', '.join(WEIGHT_FILES)}")
  stem, count, suffix = max(sets, key=lambda found: (found[2], found))  # .safetensors before .bin
  names = [f"{stem}-{number:05}-of-{count}{suffix}" for number in range(1, int(count) + 1)]
  return _all_of(folder, names, f"of {count}")


def _all_of(folder: Path, names: list[str], of: str) -> list[Path]:
  if missing := [name for name in names if not (folder / name).is_file()]:
    raise ValueError(f"Incomplete {folder}: {', '.join(missing[:12])} {of} missing")
  return [folder / name for name in names]


def read_tensors(folder: Path, files: list[Path]) -> dict[str, Any]:
  """Lazy tensors of all weight files of a folder by name.

  Raises:
    ValueError: for a damaged file, or a name in two of them.
  """
  tensors: dict[str, Any] = {}
  for file in files:
    for name, tensor in engine.read_tensors(file).items():
      if name in tensors:
        raise ValueError(f"Corrupt {folder}: {name} is in two files")
      tensors[name] = tensor
  return tensors


def with_prefix(tensors: Mapping[str, Any], prefix: str) -> dict[str, Any]:
  """Names as they are with an output matrix; files of the bare network lack the prefix."""
  if any(isinstance(name, str) and name.startswith(prefix) for name in tensors):
    return dict(tensors)
  return {name if name == "lm_head.weight" else f"{prefix}{name}": tensor for name, tensor in tensors.items()}


def end_ids(document: dict[str, Any], default: int | None) -> tuple[int, ...]:
  """``eos_token_id`` of a ``config.json``, one or several.

  Raises:
    ValueError: for values that are not whole numbers.
  """
  value = document.get("eos_token_id", default)
  ids = value if isinstance(value, list) else [] if value is None else [value]
  if not all(type(token) is int for token in ids):
    raise ValueError(f"Must have whole numbers as eos_token_id, we instead got {value!r}")
  return tuple(token for token in dict.fromkeys(ids) if token >= 0)  # -1 stands for none


def write_end_ids(config: Any) -> int | list[int] | None:
  """Inverse of `end_ids`."""
  ids = list(config.end_ids)
  return ids[0] if len(ids) == 1 else ids or None


def family_for(architecture: Architecture, fields: dict[str, Any]) -> engine.Family:
  """The family's table; a tied network's own output matrix is a copy of its token table, which some files hold."""
  family = architecture.family
  return family._replace(ignored=(*family.ignored, r"lm_head\.weight")) if fields.get("tie_embeddings") else family


def _check_tokenizer(content: bytes, source: Path, vocab_size: int) -> None:
  with tempfile.TemporaryDirectory() as folder:
    (Path(folder) / TOKENIZER_FILE).write_bytes(content)
    try:
      tokenizer = load_tokenizer(folder)
    except ValueError as error:
      raise ValueError(f"Corrupt tokenizer of {source}: {str(error).split(': ', 1)[-1]}") from error
  size = tokenizer.get_vocab_size()
  if size > vocab_size:
    raise ValueError(f"Must have a tokenizer of at most {vocab_size} tokens for {source}, we instead got {size}")


def digest(files: list[Path]) -> str:
  """sha256 of the files one after another."""
  digest = hashlib.sha256()
  for path in files:
    with open(path, "rb") as file:
      while block := file.read(1 << 20):
        digest.update(block)
  return digest.hexdigest()


def read_json(file: Path) -> dict[str, Any]:
  """The object in a JSON file.

  Raises:
    ValueError: one line naming the file.
  """
  check_readable(file)
  try:
    document = json.loads(file.read_text(encoding="utf-8"))
  except (OSError, ValueError, RecursionError) as error:
    raise ValueError(f"Cannot read {file}: {getattr(error, 'strerror', None) or error}") from error
  if not isinstance(document, dict):
    raise ValueError(f"Corrupt {file}: must be a JSON object, is {type(document).__name__}")
  return document


def read_bytes(file: Path) -> bytes:
  """The content of a file.

  Raises:
    ValueError: one line naming it.
  """
  check_readable(file)
  return Path(file).read_bytes()
