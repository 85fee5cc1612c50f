"""The table-driven converter between a source's state dict and a checkpoint folder.

A family is a table of `Rule` rows, one per kind of tensor, read in both directions. Converting

1. reads the file without running any code in it and finds the state dict under its wrapper;
2. infers the config from the tensors' shapes and the user's fields;
3. maps every source key by exactly one rule (or the explicit list of ignored keys) to one leaf of the model's parameter
   tree, and compares shapes;
4. reports every unknown, missing and misshapen tensor in one message, or writes the checkpoint folder at once.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from jaxspec.io import checkpoints, tensor_files
from jaxspec.io.stored_files import check_readable
from jaxspec.models import registry

from . import torch_files
from .rules import Rule, Shape

_WRAPPERS = ("model", "module", "state_dict", "trainer")
_DEPTH = 4  # of nested wrappers; a file may have a cycle
# Parts of names added by torch.compile, FSDP and activation checkpointing, and the prefix of modules for many devices.
_ADDED = re.compile(r"(?<![^.])(_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")
_PARALLEL = "module."
_TORCH_SUFFIXES = (".pt", ".pth", ".ckpt", ".bin")
_SAFE_SUFFIX = ".safetensors"
_SUFFIXES = ".pt, .pth, .ckpt, .bin or .safetensors"

OnWrite = Callable[[int, int], None]


def silent(done: int, total: int) -> None:
  """An `OnWrite` without output."""


class SourceTensor(Protocol):
  """A tensor of a source file, read on demand."""

  @property
  def shape(self) -> Shape: ...

  def read(self) -> np.ndarray: ...


class _SafeTensor(NamedTuple):
  archive: Any
  name: str
  shape: Shape

  def read(self) -> np.ndarray:
    try:
      return self.archive.get_tensor(self.name)
    except (AttributeError, TypeError) as error:  # of a dtype unknown to NumPy
      dtype = self.archive.get_slice(self.name).get_dtype()
      raise ValueError(f"Must have weights of 16 to 64 bits, {self.name} is {dtype}") from error


class LazyLeaf:
  """A leaf of the model's tree, read from the source on every access to its array.

  Attributes:
    tensor: its source tensor.
    shape, dtype: of the leaf; float32 unless changed by `astype`.
  Raises:
    ValueError: on reading, if the source's numbers are not real and finite, or the file is damaged.
  """

  def __init__(self, name: str, tensor: SourceTensor, rule: Rule, dtype: Any = np.float32):
    self._name, self.tensor, self._rule, self.dtype = name, tensor, rule, np.dtype(dtype)
    self.shape = rule.target_shape(tensor.shape)

  def astype(self, dtype: Any) -> LazyLeaf:
    """The same leaf in another dtype."""
    return LazyLeaf(self._name, self.tensor, self._rule, dtype)

  def __array__(self, dtype=None, copy=None) -> np.ndarray:
    array = self.tensor.read()
    if not _is_real(array.dtype):
      raise ValueError(f"Must have real floating-point weights, {self._name} is {array.dtype}")
    with np.errstate(invalid="ignore"):
      ends = (array.min(), array.max()) if array.size else ()  # both keep a NaN, and take no memory
    if not np.isfinite(ends).all():
      raise ValueError(f"Must have finite weights, {self._name} holds NaN or infinity")
    return self._rule.to_target_array(array).astype(self.dtype, copy=False)


class Family(NamedTuple):
  """One source format.

  Attributes:
    name: the family in `jaxspec.models.registry`.
    rules: the table.
    ignored: regular expressions of source names that the converter skips.
    infer_config: ``(shapes of the source's tensors, the user's fields) -> config``; raises a ``ValueError`` of one line that
      names missing fields.
    buffers: function from a config to further tensors for the official loader, by name; only exported.
    averaged: key of a training file's averaged weights.
    prefer_averaged: whether the averaged weights are read by default.
    exported: keys of the state dict for the official loader; none for a bare one.
    wrappers: keys of the state dict in files of the official training, before the usual ones.
    fit: selects the family for the names of a file's tensors, or the paths of a parameter tree, if one table is not enough;
      None: this family.
  """

  name: str
  rules: tuple[Rule, ...]
  ignored: tuple[str, ...]
  infer_config: Callable[[Mapping[str, Shape], dict[str, Any]], Any]
  buffers: Callable[[Any], Mapping[str, np.ndarray]] = lambda config: {}
  averaged: str = "ema"
  prefer_averaged: bool = False
  exported: tuple[str, ...] = ("model",)
  wrappers: tuple[str, ...] = ()
  fit: Callable[[Iterable[Any]], Family] | None = None

  def fitted(self, names: Iterable[Any]) -> Family:
    """The family for a file or a parameter tree with these names."""
    return self if self.fit is None else self.fit(names)


# Reading.


def read_source(path: str | os.PathLike) -> Any:
  """Content of a ``.pt``, ``.pth``, ``.ckpt``, ``.bin`` or ``.safetensors`` file with lazy tensors.

  Raises:
    ValueError: in one line, if the file cannot be read, has another format or is damaged.
  """
  path = Path(path)
  if path.is_dir():
    raise ValueError(f"Must have a file to read, {path} is a folder")
  if not path.is_file():
    raise ValueError(f"No file at {path}")
  if path.suffix.lower() in _TORCH_SUFFIXES:
    return torch_files.read(path)
  if path.suffix.lower() == _SAFE_SUFFIX:
    check_readable(path)
    try:
      archive = safe_open(path, framework="numpy")  # supports bfloat16 with JAX
      return {k: _SafeTensor(archive, k, tuple(archive.get_slice(k).get_shape())) for k in archive.keys()}
    except (SafetensorError, OSError) as error:
      raise ValueError(f"Corrupt {path}: {error}") from error
  raise ValueError(f"Must have a {_SUFFIXES} file, we instead got {path.name}")


def unwrap(content: Any, *, ema: bool = False, averaged: str = "ema", wrappers: tuple[str, ...] = ()) -> dict[str, Any]:
  """The state dict in a training file, under the names of the bare network.

  It is under ``wrappers``, ``model``, ``module``, ``state_dict`` or ``trainer``, in this order, possibly nested; else it is
  the file itself.

  Args:
    ema: read the averaged weights under the key ``averaged`` instead.
  Raises:
    ValueError: if there is no state dict.
  """
  if not isinstance(content, Mapping):
    raise ValueError(f"Must have a state dict, we instead got {type(content).__name__}")
  usual = (*wrappers, *_WRAPPERS)
  keys = (averaged,) if ema else usual
  key = _wrapper_of(content, keys)
  if key is None and (ema or not _has_tensors(content)):
    found = ", ".join(repr(k) for k in list(content)[:8]) or "nothing"
    raise ValueError(f"Must have a state dict under {' or '.join(map(repr, keys))}, we instead got {found}")
  for _ in range(_DEPTH):
    if key is None:
      break
    content = content[key]
    key = None if _has_tensors(content) else _wrapper_of(content, usual)
  return plain_names(content)


def _wrapper_of(content: Mapping[Any, Any], keys: Iterable[str]) -> str | None:
  return next((key for key in keys if isinstance(content.get(key), Mapping)), None)


def _has_tensors(content: Mapping[Any, Any]) -> bool:
  return any(_is_tensor(value) for value in content.values())


def plain_names(tensors: Mapping[Any, Any]) -> dict[Any, Any]:
  """Tensors without the name parts added by ``torch.compile`` and modules for many devices.

  If two would get the same name, all names are unchanged.
  """
  plain = lambda name: _ADDED.sub("", name) if isinstance(name, str) else name
  names = {name: plain(name) for name in tensors}
  while (stored := [names[k] for k, value in tensors.items() if _is_tensor(value)]) and all(
    isinstance(name, str) and name.startswith(_PARALLEL) for name in stored
  ):
    names = {name: now.removeprefix(_PARALLEL) if isinstance(now, str) else now for name, now in names.items()}
  return {names[k]: v for k, v in tensors.items()} if len(set(names.values())) == len(names) else dict(tensors)


def read_tensors(file: Path) -> dict[str, Any]:
  """The tensors of a file, by name.

  Raises:
    ValueError: as `read_source`, without a state dict, for a name that is not text, or a value that is not a tensor.
  """
  content = read_source(file)
  try:
    tensors = unwrap(content)
  except ValueError as error:
    raise ValueError(f"{file}: {error}") from error
  for name, value in tensors.items():
    if not isinstance(name, str) or not _is_tensor(value):
      raise ValueError(f"Corrupt {file}: {name} is no tensor")
  return tensors


def knows(family: Family, content: Any) -> bool:
  """Whether a file's content (`read_source`) has a state dict whose names are all in the family's table."""
  try:
    tensors = _state_dict(content, family, _is_averaged(content, family))
    family = family.fitted(tensors)
  except ValueError:
    return False
  is_ignored = lambda name: any(re.fullmatch(pattern, name) for pattern in family.ignored)
  names = [name for name in tensors if not (isinstance(name, str) and is_ignored(name))]
  return bool(names) and all(isinstance(name, str) and _rule_for(family, name, "to_target")[0] for name in names)


def _is_averaged(content: Any, family: Family) -> bool:
  """Whether the averaged weights of a file are read by default."""
  return family.prefer_averaged and isinstance(content, Mapping) and isinstance(content.get(family.averaged), Mapping)


def _state_dict(content: Any, family: Family, ema: bool) -> dict[str, Any]:
  return unwrap(content, ema=ema, averaged=family.averaged, wrappers=family.wrappers)


def _is_tensor(value: Any) -> bool:
  return hasattr(value, "read") and hasattr(value, "shape")


# Mapping.


def template_of(config: Any) -> dict[str, Shape]:
  """Shapes of the parameter leaves of a config's model, by dotted path."""
  fns = registry.FAMILIES[registry.family_name(config)].make_fns(config)
  return {k: tuple(v.shape) for k, v in checkpoints.flatten(jax.eval_shape(fns.init, jax.random.key(0))).items()}


def source_shapes(family: Family, template: Mapping[str, Shape]) -> dict[str, Shape]:
  """Names and shapes of the official state dict (without its buffers) of a parameter tree."""
  family, shapes = family.fitted(template), {}
  for path, shape in template.items():
    rule, name = _source_of(family, path)
    shapes[name] = rule.source_shape(shape)
  return shapes


def convert(
  state_dict: Mapping[str, Any], family: Family, fields: dict[str, Any] | None = None
) -> tuple[Any, dict[str, np.ndarray]]:
  """`match`, with all leaves in memory."""
  config, leaves = match(state_dict, family, fields)
  return config, {path: np.asarray(leaf) for path, leaf in leaves.items()}


def match(
  state_dict: Mapping[str, Any], family: Family, fields: dict[str, Any] | None = None
) -> tuple[Any, dict[str, LazyLeaf]]:
  """Config and parameter leaves of a state dict; no tensor is read.

  Args:
    state_dict: `SourceTensor` by name.
    fields: config fields given by the user; they override those inferred from the shapes.
  Returns:
    The family's config, and leaves by dotted path.
  Raises:
    ValueError: one line with the unknown, missing and misshapen tensors, at most a dozen of each, and missing config fields.
  """
  family = family.fitted(state_dict)
  tensors, matches, problems = {}, {}, []
  for name, value in state_dict.items():
    if isinstance(name, str) and any(re.fullmatch(pattern, name) for pattern in family.ignored):
      continue
    rule, path = _rule_for(family, name, "to_target") if isinstance(name, str) else (None, None)
    if rule is None:
      problems.append(f"unknown {name}")
    elif not _is_tensor(value):
      problems.append(f"{name} is no tensor")
    elif path in matches:
      problems.append(f"{name} and {matches[path][0]} both give {path}")
    else:
      tensors[name], matches[path] = value, (name, rule)
  if not matches:
    if not_tensors := [problem for problem in problems if problem.endswith(" is no tensor")]:
      raise ValueError(tensor_files.listed(not_tensors))
    found = ", ".join(map(str, list(state_dict)[:3])) or "nothing"
    raise ValueError(f"Must have the tensors of a {family.name} network, we instead got {found}, ...")
  config = None
  try:
    inferred = family.infer_config({name: tuple(value.shape) for name, value in tensors.items()}, dict(fields or {}))
    template = template_of(inferred)
    config = inferred
  except (TypeError, ArithmeticError, LookupError, AttributeError) as error:
    problems.append(f"Must have a valid config, we instead got {fields}: {error}")
  except ValueError as error:
    problems.append(str(error))
  if config is not None:
    for path, shape in template.items():
      if path not in matches:
        problems.append(f"missing {_rule_for(family, path, 'to_source')[1] or path}")
        continue
      name, rule = matches[path]
      got = tensors[name].shape
      if rule.target_shape(got) != shape:
        problems.append(f"{name} has shape {list(got)}, must have {list(rule.source_shape(shape))}")
    problems += [f"unknown {name}" for path, (name, _) in matches.items() if path not in template]
  if problems:
    raise ValueError(tensor_files.listed(problems))

  return config, {path: LazyLeaf(name, tensors[name], rule) for path, (name, rule) in matches.items()}


def _is_real(dtype: np.dtype) -> bool:
  return jax.numpy.issubdtype(dtype, np.floating)  # NumPy's own test does not support bfloat16


def _rule_for(family: Family, name: str, direction: str) -> tuple[Rule | None, str | None]:
  """The one rule for a name, and the path of its leaf."""
  found = [(rule, other) for rule in family.rules if (other := getattr(rule, direction)(name))]
  assert len(found) <= 1, f"{name} has {len(found)} rules"
  return found[0] if found else (None, None)


def _source_of(family: Family, path: str) -> tuple[Rule, str]:
  """The rule of a leaf and its source name.

  Raises:
    ValueError: if the source's form has no such tensor.
  """
  rule, name = _rule_for(family, path, "to_source")
  if rule is None or name is None:
    raise ValueError(f"Must have a network that the official form can hold, it has no name for {path}")
  return rule, name


def to_state_dict(params: Mapping[str, Any], family: Family, config: Any = None) -> dict[str, np.ndarray]:
  """Official state dict, float32, of parameter leaves by dotted path.

  Args:
    config: adds the buffers for the official loader; None adds none.
  """
  family, state_dict = family.fitted(params), {}
  for path, leaf in params.items():
    rule, name = _source_of(family, path)
    state_dict[name] = rule.to_source_array(np.asarray(leaf))
  return state_dict if config is None else state_dict | dict(family.buffers(config))


# Files.


def write(destination: str | os.PathLike, config: Any, leaves: Mapping[str, LazyLeaf], **more: Any) -> None:
  """Writes the checkpoint folder of a result of `match`; see `jaxspec.io.checkpoints.save` for ``more``."""
  checkpoints.save(destination, config, checkpoints.unflatten(leaves), **more)


def convert_file(
  source: str | os.PathLike,
  destination: str | os.PathLike,
  family: Family,
  fields: dict[str, Any] | None = None,
  *,
  ema: bool | None = None,
  on_write: OnWrite = silent,
) -> Any:
  """Writes the checkpoint folder of a source file; returns its config.

  Args:
    ema: True reads the averaged weights of a training file, False the others. By default the averaged ones are read if
      the family prefers them and the file has them.
    on_write: receives the number of written tensors, and their total.
  Raises:
    ValueError: one line; nothing is left at the destination then.
  """
  source, destination = Path(source), Path(destination)
  checkpoints.check_destination(destination, source)
  content = read_source(source)
  ema = _is_averaged(content, family) if ema is None else ema
  try:
    config, leaves = match(_state_dict(content, family, ema), family, fields)
    with open(source, "rb") as file:
      digest = hashlib.file_digest(file, "sha256").hexdigest()
    meta = {"source": source.name, "source_sha256": digest, "licence": "unknown"}
    if ema:
      meta["source_weights"] = family.averaged
    write(destination, config, leaves, meta=meta, on_write=on_write)
  except (ValueError, SafetensorError) as error:
    text = str(error)
    raise ValueError(text if str(source) in text else f"Cannot convert {source}: {text}") from error
  return config


def export_file(source: str | os.PathLike, destination: str | os.PathLike, family: Family) -> Any:
  """Writes the official-style file (for .pt as `Family.exported` says) of a checkpoint folder; returns its config.

  Raises:
    ValueError: one line; nothing is left at the destination then.
  """
  destination = Path(destination)
  if destination.suffix.lower() not in (*_TORCH_SUFFIXES, _SAFE_SUFFIX):
    raise ValueError(f"Must have a {_SUFFIXES} file to write, we instead got {destination.name}")
  if destination.is_dir():
    raise ValueError(f"Must have a file to write, {destination} is a folder")
  if checkpoints.read_config(source)["family"] != family.name:
    raise ValueError(f"Must have a {family.name} checkpoint, {source} is of another family")
  checkpoint = checkpoints.load(source)
  state_dict = to_state_dict(checkpoints.flatten(checkpoint.params), family, checkpoint.config)
  try:
    destination.parent.mkdir(parents=True, exist_ok=True)
    handle, work = tempfile.mkstemp(prefix=f".{destination.name}.", dir=destination.parent)
    os.close(handle)
  except OSError as error:
    raise ValueError(f"Cannot write {destination}: {error.strerror}") from error
  try:
    if destination.suffix.lower() == _SAFE_SUFFIX:
      save_file(state_dict, work)
    else:
      torch_files.write(work, {key: state_dict for key in family.exported} or state_dict)
    os.chmod(work, 0o644)
    os.replace(work, destination)
  except OSError as error:
    raise ValueError(f"Cannot write {destination}: {error.strerror}") from error
  finally:
    Path(work).unlink(missing_ok=True)
  return checkpoint.config


# Inference of configs.


def multiples(channels: Sequence[int | None], base: int | None) -> tuple[int, ...] | None:
  """Channels of each level in units of those of the first convolution; None if it does not follow from the shapes."""
  known = [number for number in channels if number]
  return tuple(number // base for number in known) if base and known and len(known) == len(channels) else None


def most_common(candidates: Iterable[int | None]) -> int | None:
  """The most common candidate, so that one misshapen tensor does not mislead; ``None`` if there are no candidates."""
  counts: dict[int, int] = {}
  for value in candidates:
    if value is not None:
      counts[value] = counts.get(value, 0) + 1
  return max(counts, key=counts.__getitem__) if counts else None


def axis_sizes(shapes: Mapping[str, Shape], pattern: str, axis: int, ndim: int) -> Iterator[int]:
  """Sizes along ``axis`` of the tensors with ``ndim`` axes whose whole name matches ``pattern``."""
  compiled = re.compile(pattern)
  return (shape[axis] for name, shape in shapes.items() if len(shape) == ndim and compiled.fullmatch(name))


def count_distinct(shapes: Mapping[str, Shape], pattern: str) -> int:
  """Number of different values of the pattern's one group among the tensors' names."""
  compiled = re.compile(pattern)
  return len({match[1] for name in shapes if (match := compiled.match(name))})


def mlp_ratio(hidden: int | None, dim: int | None) -> float | None:
  """Hidden width of an MLP in units of the width; networks that round ``ratio * dim`` down get ``hidden`` back."""
  if not hidden or not dim:
    return None
  ratio = hidden / dim
  return ratio if int(ratio * dim) == hidden else math.nextafter(ratio, math.inf)


def require(fields: dict[str, Any], inferred: dict[str, Any]) -> dict[str, Any]:
  """Fields from shapes, overridden by the user's.

  Raises:
    ValueError: if neither gives a field; it names every such field.
  """
  fields = inferred | fields
  if missing := [name for name, value in fields.items() if value is None and inferred.get(name, 0) is None]:
    raise ValueError(f"Must have {', '.join(missing)} in --config, the tensors do not tell")
  return fields
