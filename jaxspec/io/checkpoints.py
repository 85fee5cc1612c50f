"""Checkpoints of one network: a folder with ``config.json`` and ``params.safetensors``.

``config.json`` holds ``family``, ``config`` (the fields of the family's frozen config), ``meta`` (provenance, licence,
figures), and ``sha256`` of the weights, which identifies a network without its weights. Leaves of the parameter tree are
stored under their path joined by dots. A folder is written beside its destination and then renamed, so that writes are
atomic.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from safetensors import SafetensorError, safe_open

from jaxspec.core.mesh import MODEL, check_fits, param_specs
from jaxspec.core.network import Network
from jaxspec.core.types import Params, PyTree
from jaxspec.errors import CheckpointError, values_as
from jaxspec.io import tensor_files
from jaxspec.io.stored_files import check_path, check_readable
from jaxspec.models import registry

CONFIG_FILE = "config.json"
PARAMS_FILE = "params.safetensors"

_KINDS = {str: "a string", dict: "an object"}  # the names of these types in JSON


def flatten(tree: PyTree, prefix: str = "") -> dict[str, Any]:
  """Nested dict to ``{"a.b.c": leaf}``, for leaves of any type."""
  flat = {}
  for name, value in tree.items():
    path = f"{prefix}.{name}" if prefix else name
    flat.update(flatten(value, path) if isinstance(value, dict) else {path: value})
  return flat


def unflatten(flat: Mapping[str, Any]) -> PyTree:
  """Inverse of `flatten`."""
  tree: dict[str, Any] = {}
  for path, leaf in flat.items():
    *parents, name = path.split(".")
    node = tree
    for parent in parents:
      node = node.setdefault(parent, {})
    node[name] = leaf
  return tree


@values_as(CheckpointError)
def save(
  path: str | os.PathLike,
  config: Any,
  params: Params,
  *,
  meta: dict[str, Any] | None = None,
  dtype=None,
  write_more: Callable[[Path], None] | None = None,
  on_write: Callable[[int, int], None] = lambda done, total: None,
) -> None:
  """Writes a checkpoint folder, replacing an existing one.

  Args:
    config: the family's frozen config.
    params: parameter tree; leaves are converted to arrays and written one after another, so lazy leaves are possible.
    meta: provenance, licence and figures; must be JSON.
    dtype: optional storage dtype of the floating leaves, e.g. ``jnp.bfloat16``.
    write_more: writes further files into the given folder. If it fails, nothing is written.
    on_write: as for `jaxspec.io.tensor_files.write`.
  Raises:
    CheckpointError: if the destination exists and is no checkpoint of this family, or cannot be written.
  """
  check_destination(path, family=registry.family_name(config))
  path = Path(os.path.realpath(path))  # the target of a link is replaced, not the link
  flat = flatten(params)
  if dtype is not None:
    flat = {k: v.astype(dtype) if jnp.issubdtype(v.dtype, jnp.floating) else v for k, v in flat.items()}
  fields = dataclasses.asdict(config)
  document = {"family": registry.family_name(config), "config": fields, "meta": meta or {}}
  made = [folder for folder in path.parents if not folder.exists()]
  work = None
  try:
    path.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    tensor_files.write(work / PARAMS_FILE, flat, on_write)
    document["sha256"] = _sha256(work / PARAMS_FILE)
    (work / CONFIG_FILE).write_text(json.dumps(document, indent=2) + "\n")
    if write_more is not None:
      write_more(work)
    work.chmod(0o755)  # temporary folders and safetensors files are private to their owner
    (work / PARAMS_FILE).chmod(0o644)
    if path.exists():
      shutil.rmtree(path)
    work.rename(path)
  except OSError as error:
    raise ValueError(f"Cannot write a checkpoint to {path}: {error.strerror or error}") from error
  finally:
    if work is not None:
      shutil.rmtree(work, ignore_errors=True)
    for folder in made:  # removed if empty
      with contextlib.suppress(OSError):
        folder.rmdir()


def check_destination(path: str | os.PathLike, *sources: str | os.PathLike, family: str | None = None) -> None:
  """Checks that writing a checkpoint deletes nothing else.

  Args:
    path: destination, which is replaced.
    sources: its source files and folders.
    family: of the new checkpoint, None before it is known.
  Raises:
    ValueError: if the destination is not a checkpoint, is one of another family, or contains a source.
  """
  path = check_path(path, "a folder to write to")
  try:
    there = json.loads((path / CONFIG_FILE).read_text(encoding="utf-8")) if path.exists() else {"family": "", "config": {}}
  except (ValueError, OSError, RecursionError):
    there = None
  if not isinstance(there, dict) or not {"family", "config"} <= there.keys():
    raise ValueError(f"Must have a new folder or an old checkpoint to write to, {path} is neither")
  if family is not None and there["family"] not in ("", family):
    raise ValueError(f"Must have a new folder or a checkpoint of {family} to write to, {path} holds a {there['family']}")
  resolved = path.resolve()
  for source in sources:
    if resolved in (Path(source).resolve(), *Path(source).resolve().parents):
      raise ValueError(f"Must have another folder to write to, {source} is in {path} and would be replaced")


@values_as(CheckpointError)
def read_config(path: str | os.PathLike) -> dict[str, Any]:
  """The checked content of ``config.json``.

  Raises:
    CheckpointError: one line with the file and the error.
  """
  path = check_path(path, "the folder of a network")
  file = path / CONFIG_FILE
  if not path.is_dir():
    raise ValueError(f"No checkpoint folder at {path}{': it is a file' if path.is_file() else ''}")
  if not file.exists():
    raise ValueError(f"No {CONFIG_FILE} in {path}: not a checkpoint folder")
  check_readable(file)
  try:
    document = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(document, dict) or not {"family", "config"} <= document.keys():
      if isinstance(document, dict) and "model_type" in document:
        raise ValueError("it is of a folder of the Hugging Face hub, convert that first (jaxspec convert)")
      raise ValueError("fields 'family' and 'config' are missing")
    document["meta"] = {} if document.get("meta") is None else document["meta"]
    for name, kind in {"family": str, "config": dict, "meta": dict, "sha256": str}.items():
      if name in document and not isinstance(document[name], kind):
        raise ValueError(f"field {name!r} must be {_KINDS[kind]}")
  except (ValueError, OSError, RecursionError) as error:
    raise ValueError(f"Corrupt {file}: {error}") from error
  return document


@values_as(CheckpointError)
def add_meta(path: str | os.PathLike, meta: Mapping[str, Any]) -> None:
  """Adds to the ``meta`` of a checkpoint folder before other processes read it.

  Raises:
    CheckpointError: for a damaged ``config.json``.
  """
  document = read_config(path)
  document["meta"] |= meta
  (Path(path) / CONFIG_FILE).write_text(json.dumps(document, indent=2) + "\n")


@values_as(CheckpointError)
def digest(path: str | os.PathLike) -> bytes:
  """Identifier of a network: SHA-256 of its family, its config and its stored weights.

  The weights are read in pieces. Without them, their hash comes from ``config.json``.

  Raises:
    CheckpointError: for a damaged checkpoint, or without both.
  """
  document, file = read_config(path), Path(path) / PARAMS_FILE
  weights = _sha256(file) if file.exists() else document.get("sha256")
  if weights is None:
    raise ValueError(f"Must have {PARAMS_FILE}, or its sha256 in {CONFIG_FILE}, in {path} to name the network")
  fields = {"family": document["family"], "config": document["config"], "weights": weights}
  return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).digest()


def _sha256(file: Path) -> str:
  check_readable(file)
  with file.open("rb") as opened:
    return hashlib.file_digest(opened, "sha256").hexdigest()


@values_as(CheckpointError)
def load(
  path: str | os.PathLike, *, dtype=jnp.float32, weights: bool = True, mesh: Mesh | None = None, divide: bool = True
) -> Network:
  """Reads a checkpoint folder as a network of the same name, and checks every leaf against the shapes of the config.

  Args:
    dtype: compute dtype of floating leaves (float32 on CPU; bfloat16 halves the bytes on GPU and TPU). It also
      replaces the config's ``dtype`` field where the family has one.
    weights: False reads the config alone. Parameters are then `jax.ShapeDtypeStruct`, from which everything can be built and
      nothing computed.
    mesh: devices of the parameters (`jaxspec.core.mesh`); each reads its own part of every leaf.
    divide: whether the network is divided over the axis ``model`` of the mesh; False replicates it on all devices.
  Raises:
    CheckpointError: one line with the file and at most a dozen each of missing, unknown and misshapen leaves, or the
      dimension that the mesh does not divide.
  """
  document, path = read_config(path), Path(path)
  try:
    config = registry.make_config(document["family"], document["config"])
  except ValueError as error:
    raise ValueError(f"{path / CONFIG_FILE}: {error}") from error
  if hasattr(config, "dtype"):
    config = dataclasses.replace(config, dtype=jnp.dtype(dtype).name)
  model = mesh.shape[MODEL] if mesh is not None and divide else 1
  if model > 1:
    check_fits(config, model, path)
    config = dataclasses.replace(config, tensor_parallel=True)
  fns = registry.FAMILIES[document["family"]].make_fns(config)
  try:
    # JAX keeps what it traced by function: several checkpoints of one config are traced once.
    template = flatten(jax.eval_shape(fns.init, jax.eval_shape(jax.random.key, 0)))
  except (TypeError, ArithmeticError, LookupError, AttributeError) as error:
    # A damaged file can hold any JSON in place of a number.
    reason = " ".join(f"{type(error).__name__} {error}".split())[:160]
    raise ValueError(f"{path / CONFIG_FILE}: must have a config that makes a {document['family']} ({reason})") from error
  made = lambda flat: Network(fns, unflatten(flat), config, document["meta"], path.name, document["family"], path)
  kept = lambda leaf: dtype if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf.dtype
  if not weights:
    return made({name: jax.ShapeDtypeStruct(leaf.shape, kept(leaf)) for name, leaf in template.items()})
  file = path / PARAMS_FILE
  if not file.exists():
    raise ValueError(f"No {PARAMS_FILE} in {path}: the checkpoint is incomplete")
  check_readable(file)
  stored = {name: _stored_in(name, getattr(config, "fused", {})) for name in template}
  specs = {}
  if model > 1:
    tied = getattr(config, "tie_embeddings", False)
    specs = flatten(param_specs(unflatten(template), model, tied=tied))
  try:
    with safe_open(file, framework="numpy") as archive:
      _check_leaves(file, archive, template, stored)
      if mesh is None:
        return made({name: _on_device(archive.get_tensor(name), kept(leaf)) for name, leaf in template.items()})
      flat = {}
      for name, leaf in template.items():
        sharding = NamedSharding(mesh, specs.get(name, PartitionSpec()))
        flat[name] = _read_divided(archive, *stored[name], leaf.shape, kept(leaf), sharding)
  except (SafetensorError, OSError) as error:
    raise ValueError(f"Corrupt {file}: {error}") from error
  return made(flat)


def _on_device(array: np.ndarray, dtype) -> jax.Array:
  """The array on the device in a dtype, finished before the next: all arrays in the dtype of the file may exceed the memory.

  The conversion runs on the host, because on the device every shape would compile a program.
  """
  return jax.block_until_ready(jax.device_put(array.astype(dtype, copy=False)))


def _stored_in(name: str, fused: dict[str, dict[str, slice]]) -> tuple[str, slice]:
  """The stored name of a leaf, and its rows in that array."""
  for matrix, parts in fused.items():
    for part, rows in parts.items():
      if f".{part}." in name:
        return name.replace(f".{part}.", f".{matrix}."), rows
  return name, slice(None)


def _check_leaves(file: Path, archive, template: dict[str, Any], stored: dict[str, tuple[str, slice]]) -> None:
  """Raises a ValueError with the missing, unknown and misshapen leaves."""
  wanted: dict[str, tuple[int, ...]] = {}
  for name, leaf in template.items():
    held, rows = stored[name]
    wanted[held] = leaf.shape if rows.stop is None else (max(rows.stop, wanted.get(held, (0,))[0]), *leaf.shape[1:])
  found = {name: tuple(archive.get_slice(name).get_shape()) for name in archive.keys()}
  problems = [f"missing {name}" for name in wanted.keys() - found.keys()]
  problems += [f"unknown {name}" for name in found.keys() - wanted.keys()]
  for name in wanted.keys() & found.keys():
    if wanted[name] != found[name]:
      problems.append(f"{name} has shape {list(found[name])}, must have {list(wanted[name])}")
  if problems:
    raise ValueError(f"{file} does not fit its config: {tensor_files.listed(problems)}")


def _read_divided(archive, name: str, rows: slice, shape: tuple[int, ...], dtype, sharding: NamedSharding) -> jax.Array:
  """A divided leaf: every part is read once, for its devices."""
  offset, view, parts = rows.start or 0, archive.get_slice(name), {}

  def read(index: tuple[slice, ...] | None) -> np.ndarray:
    if not shape or index is None:
      return archive.get_tensor(name).astype(dtype)
    start, stop, _ = index[0].indices(shape[0])
    key = (slice(start + offset, stop + offset), *(slice(*one.indices(size)[:2]) for one, size in zip(index[1:], shape[1:])))
    if str(key) not in parts:  # replicas share one read
      parts[str(key)] = view[key].astype(dtype)
    return parts[str(key)]

  return jax.make_array_from_callback(shape, sharding, read)
