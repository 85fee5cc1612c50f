"""Bundles: the networks that generate together, and the settings they were trained for.

A bundle is a folder with ``bundle.json`` and one checkpoint folder per network::

    {"version": 2,
     "target": "target",
     "drafts": {"small": "draft"},
     "parts": {"tokenizer": "tokenizer", "text": "text", "vocabulary": "vocabulary.json"},
     "defaults": {"method": "speculative", "draft": "small", "sampling": {"temperature": 0.7}, "options": {"gamma": 3}}}

``parts`` are the inputs of the target's family (`jaxspec.models.registry.FamilySpec.make_family`): names of folders and
files, or plain values such as ``classes`` and ``latent_scale``. ``sampling`` are fields of `jaxspec.SamplingConfig` or
another of `jaxspec.sampling`; ``options`` go to every method that declares them.

Also valid: files of versions before 2, a folder with one converted network, and a folder with several in ``target``,
``draft``, ``tokenizer``, ``text`` and ``vae``.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxspec.core.options import suggestion
from jaxspec.errors import CheckpointError, values_as
from jaxspec.io import hub, shipped
from jaxspec.io.checkpoints import CONFIG_FILE
from jaxspec.io.stored_files import check_path, check_readable

BUNDLE_FILE = "bundle.json"
VERSION = 2

# Parts of a folder without a file, by the names of their folders.
_PARTS = ("tokenizer", "text", "vae")

# Fields of bundles before version 2.
_VECTOR_KIND = "vector_tokens"
_FORMER_OPTIONS = {"rho": "target_prefix", "prefill": "target_prefix"}


@dataclasses.dataclass(frozen=True)
class Defaults:
  """Default settings of a bundle, for which its networks were trained.

  Attributes:
    method: name of a method; None leaves the choice to `jaxspec.run.loaded_networks.LoadedNetworks.default_method`.
    draft: name of the draft of this method.
    sampling: fields of the family's sampling settings.
    options: options of methods; each applies to every method that declares it.
  """

  method: str | None = None
  draft: str | None = None
  sampling: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  options: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Bundle:
  """The checked content of a bundle; nothing is loaded.

  Attributes:
    path: the folder; other folders are relative to it.
    target: folder of the target, None only while a bundle is being made.
    drafts: folders by name, in the order of the file.
    parts: other inputs of the family.
    version: of the file; None for a folder without one.
  """

  path: Path
  target: str | None
  drafts: Mapping[str, str] = dataclasses.field(default_factory=dict)
  parts: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  defaults: Defaults = Defaults()
  version: int | None = VERSION

  @property
  def name(self) -> str:
    """The name of its folder."""
    return self.path.resolve().name

  def target_folder(self) -> Path:
    """The folder of the target.

    Raises:
      ValueError: for an unfinished bundle without a target.
    """
    if self.target is None:
      raise ValueError(f"Must have a bundle with a target, {self.path} has none yet")
    return self.folder(self.target)

  def folder(self, name: str) -> Path:
    """The folder that a field names, relative to the bundle; a reference to the hub as it is."""
    return Path(name) if hub.is_reference(name) else self.path / name


@values_as(CheckpointError)
def read_bundle(path: str | os.PathLike, *, complete: bool = True) -> Bundle:
  """Reads and checks the description of a bundle.

  Args:
    complete: whether a target is required; an unfinished bundle may have none.
  Raises:
    CheckpointError: one line naming the file and what is wrong with it.
  """
  path = check_path(path, "the folder of a bundle")
  file = path / BUNDLE_FILE
  if not path.is_dir():
    hint = ""
    if path.is_file():
      hint = ": it is a file"
    elif path.name in shipped.BUNDLES:
      hint = ": the shipped bundle of this name cannot be changed"
    elif len(path.parts) == 1:  # a name
      hint = suggestion(path.name, shipped.BUNDLES) or f"; {', '.join(shipped.BUNDLES)} come with the package"
    raise ValueError(f"No checkpoint folder at {path}{hint}")
  if not file.exists():
    return _without_file(path)
  check_readable(file)
  try:
    document = json.loads(file.read_text(encoding="utf-8"))
  except (ValueError, OSError, RecursionError) as error:
    raise ValueError(f"Corrupt {file}: {error}") from error
  try:
    if not isinstance(document, dict):
      raise ValueError(f"must be an object, not {type(document).__name__}")
    version = document.get("version", 1)
    if version not in (1, VERSION) or isinstance(version, bool):
      raise ValueError(f"version {version!r}, this package reads up to {VERSION}")
    bundle = _parse(path, _of_version_1(document, complete) if version == 1 else document, version, complete)
    _check_defaults(bundle)
  except ValueError as error:
    raise ValueError(f"Corrupt {file}: {error}") from error
  return bundle


def completed(
  path: str | os.PathLike,
  *,
  target: str | None = None,
  drafts: Mapping[str, str] | None = None,
  parts: Mapping[str, Any] | None = None,
  method: str | None = None,
  draft: str | None = None,
  sampling: Mapping[str, Any] | None = None,
  options: Mapping[str, Any] | None = None,
) -> Bundle:
  """A new bundle, or the existing one with additions: mappings are merged into its own, and None leaves a field unchanged.

  Writes nothing (`write_bundle`) and opens no folder.

  Raises:
    ValueError: if the existing file is damaged, or a default is declared neither by a method nor by the sampling settings.
  """
  path = check_path(path, "the folder of a bundle")
  file = path / BUNDLE_FILE
  old = read_bundle(path, complete=False) if file.exists() else Bundle(path, None)
  bundle = Bundle(
    path,
    old.target if target is None else target,
    {**old.drafts, **(drafts or {})},
    {**old.parts, **(parts or {})},
    Defaults(
      method or old.defaults.method,
      draft or old.defaults.draft,
      {**old.defaults.sampling, **(sampling or {})},
      {**old.defaults.options, **(options or {})},
    ),
  )
  document = json.loads(json.dumps(_document(bundle)))  # normalised as after reading: lists, no tuples
  try:
    bundle = _parse(path, document, VERSION, complete=False)
    _check_defaults(bundle)
  except ValueError as error:
    raise ValueError(f"Cannot write {file}: {error}") from error
  return bundle


def write_bundle(path: str | os.PathLike, **fields: Any) -> Bundle:
  """Writes ``bundle.json``, or completes the existing one; ``fields`` and errors are those of `completed`.

  A file of an older version is rewritten. The write is atomic.

  Returns:
    The new bundle.
  """
  bundle = completed(path, **fields)
  bundle.path.mkdir(parents=True, exist_ok=True)
  file = bundle.path / BUNDLE_FILE
  work = file.with_name(f".{file.name}.{os.getpid()}")
  try:
    work.write_text(json.dumps(_document(bundle), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    work.replace(file)
  finally:
    work.unlink(missing_ok=True)
  return bundle


def _document(bundle: Bundle) -> dict[str, Any]:
  defaults = {name: getattr(bundle.defaults, name) for name in ("method", "draft", "sampling", "options")}
  fields = {"target": bundle.target, "drafts": bundle.drafts, "parts": bundle.parts}
  fields["defaults"] = {name: value for name, value in defaults.items() if value is not None}
  return {"version": VERSION} | {name: value for name, value in fields.items() if value is not None}


def _without_file(path: Path) -> Bundle:
  """A folder of converted networks."""
  is_network = lambda name: (path / name / CONFIG_FILE).is_file()
  if is_network("."):
    return Bundle(path, ".", version=None)
  if not is_network("target"):
    raise ValueError(f"No {BUNDLE_FILE} and no {CONFIG_FILE} in {path}: not a bundle of networks, nor one of them")
  drafts, parts = ({name: name for name in names if is_network(name)} for names in (("draft",), _PARTS))
  return Bundle(path, "target", drafts, parts, version=None)


def _parse(path: Path, document: dict[str, Any], version: int, complete: bool) -> Bundle:
  """Checks the form of a document of version 2; messages are completed by the caller."""
  needed = {"drafts", "defaults"} | ({"target"} if complete else set())
  if missing := sorted(needed - document.keys()):
    raise ValueError(f"fields {', '.join(missing)} are missing")
  if unknown := sorted(document.keys() - {"version", "target", "drafts", "parts", "defaults"}):
    raise ValueError(f"fields {', '.join(unknown)} are unknown")
  for name in ("drafts", "parts", "defaults"):
    if not isinstance(document.get(name, {}), dict):
      raise ValueError(f"field {name!r} must be an object")
  folders = list(document["drafts"].items()) + [(name, document[name]) for name in ("target",) if name in document]
  if wrong := [name for name, folder in folders if not isinstance(folder, str) or not folder]:
    raise ValueError(f"{wrong[0]!r} must be the name of a folder")
  fields = document["defaults"]
  if unknown := sorted(fields.keys() - {field.name for field in dataclasses.fields(Defaults)}):
    raise ValueError(f"fields {', '.join(unknown)} of 'defaults' are unknown")
  for name in ("sampling", "options"):
    if not isinstance(fields.get(name, {}), dict):
      raise ValueError(f"field {name!r} of 'defaults' must be an object")
  for name in ("method", "draft"):
    if not isinstance(fields.get(name), str | None):
      raise ValueError(f"must have defaults that fit, we instead got {fields[name]!r} as {name}")
  if fields.get("draft") is not None and fields["draft"] not in document["drafts"]:
    known = ", ".join(document["drafts"]) or "(none)"
    raise ValueError(f"must have a default draft in {known}, we instead got {fields['draft']!r}")
  parts = document.get("parts", {})
  return Bundle(path, document.get("target"), document["drafts"], parts, Defaults(**fields), version)


def _check_defaults(bundle: Bundle) -> None:
  """Compares defaults with the declarations of methods and sampling settings."""
  from jaxspec.core.options import options_of
  from jaxspec.methods import METHODS
  from jaxspec.sampling import SAMPLING_TYPES

  defaults = bundle.defaults
  if defaults.method is not None and defaults.method not in METHODS:
    raise ValueError(f"must have a default method in {', '.join(METHODS)}, we instead got {defaults.method!r}")
  declared = [options_of(method) for method in METHODS.values()]
  for name, value in defaults.options.items():
    found = [options[name] for options in declared if name in options]
    if not found:
      raise ValueError(f"must have options that a method declares, we instead got {name!r}")
    for option in found:
      _check_value(option, value)
  kinds = [options_of(cls) for cls in SAMPLING_TYPES.values()]
  fitting = [options for options in kinds if defaults.sampling.keys() <= options.keys()]
  if not fitting:
    known = " or ".join(", ".join(options) for options in kinds)
    raise ValueError(f"must have sampling settings in {known}, we instead got {', '.join(defaults.sampling)}")
  for name, value in defaults.sampling.items():
    _check_value(fitting[0][name], value)


def _check_value(option, value: Any) -> None:
  try:
    option.check(value)
  except ValueError as error:
    reason = str(error).partition(", we instead")[0]
    raise ValueError(f"must have defaults that fit, we instead got {value!r} as {option.name} ({reason})") from error


def _of_version_1(document: dict[str, Any], complete: bool) -> dict[str, Any]:
  """Converts one of the two earlier kinds to a document of version 2: flat defaults, and parts beside the target."""
  from jaxspec.core.options import options_of
  from jaxspec.methods import METHODS
  from jaxspec.sampling import ContinuousSampling, SamplingConfig

  is_vectors = document.get("kind") == _VECTOR_KIND
  names = ("vae", "classes", "latent_scale") if is_vectors else ("tokenizer", "text")
  needed = {*names, "target"} if complete else set()
  if missing := sorted((needed | {"drafts", "defaults"}) - document.keys()):
    raise ValueError(f"fields {', '.join(missing)} are missing")
  if not isinstance(document["defaults"], dict):
    raise ValueError("field 'defaults' must be an object")
  networks = ("vae",) if is_vectors else names
  if wrong := [name for name in networks if not isinstance(document.get(name, ""), str)]:
    raise ValueError(f"{wrong[0]!r} must be the name of a folder")
  parts = {name: document[name] for name in names if name in document}
  if not is_vectors:
    parts["vocabulary"] = "vocabulary.json"
  # Undeclared names were ignored, and None was a missing setting.
  flat = {_FORMER_OPTIONS.get(name, name): value for name, value in document["defaults"].items() if value is not None}
  of_sampling = options_of(ContinuousSampling if is_vectors else SamplingConfig)
  of_methods = {name for method in METHODS.values() for name in options_of(method)}
  defaults: dict[str, Any] = {name: flat[name] for name in ("method", "draft") if name in flat}
  if is_vectors:
    defaults.setdefault("method", "cspd")
  defaults["sampling"] = {name: value for name, value in flat.items() if name in of_sampling}
  defaults["options"] = {name: value for name, value in flat.items() if name in of_methods and name not in of_sampling}
  new = {"version": VERSION, "drafts": document["drafts"], "parts": parts, "defaults": defaults}
  return new | ({"target": document["target"]} if "target" in document else {})
