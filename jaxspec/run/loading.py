"""A pipeline from files: a bundle or folders of networks are read, checked and joined; drafts are loaded on first use."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
from jax.sharding import Mesh

from jaxspec.core import mesh as meshes
from jaxspec.core import precision
from jaxspec.core.options import options_of
from jaxspec.core.platform import platform
from jaxspec.errors import CheckpointError, OptionError, values_as
from jaxspec.families.family import Family, FamilyParts
from jaxspec.io import checkpoints, hub, shipped
from jaxspec.io.bundle import BUNDLE_FILE, Bundle, read_bundle
from jaxspec.io.model_folders import model_folder, network_name
from jaxspec.io.stored_files import check_path
from jaxspec.methods import METHODS, get_method
from jaxspec.models import registry
from jaxspec.run.draft_networks import Drafts
from jaxspec.run.pipeline import Pipeline

DTYPES = ("float32", "bfloat16")


@values_as(CheckpointError)
def load_pipeline(
  path: str | os.PathLike[str] | Bundle | None = None,
  *,
  draft: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
  drafts: Mapping[str, str | os.PathLike[str]] | None = None,
  dtype: str = "float32",
  matmul_precision: str | None = None,
  target_weights: bool = True,
  mesh: str | Mesh | None = None,
  **parts: Any,
) -> Pipeline:
  """Loads networks that generate together; drafts are loaded on first use.

  Args:
    path: the name of a shipped bundle (`jaxspec.io.shipped.BUNDLES`), the folder of a bundle, of one converted network, or
      of several (``target``, ``draft``, ``tokenizer``, ...). Released weights too: a folder, a file, or ``hf:ORG/NAME`` of
      the Hugging Face hub, which are converted at their first use (`jaxspec.io.model_folders`). None is the folder in
      ``JAXSPEC_CHECKPOINT``, else the default bundle.
    draft: additional drafts, as ``path``, named after their folders; the first becomes the default.
    drafts: additional drafts by name.
    dtype: compute dtype of target, drafts and a T5 encoder, one of `DTYPES`, by name or as a NumPy dtype; other encoders and
      decoders stay in float32.
    matmul_precision: precision of products in every decode, one of `jaxspec.core.precision.PRECISIONS`. None is JAX's
      setting (``JAX_DEFAULT_MATMUL_PRECISION``), else the preferred one on this machine (`Family.matmul_precision`).
    target_weights: False omits the target's weights, for decodes over a cloud; the pipeline cannot decode alone.
    mesh: devices that share every decode, such as ``data=2,model=4``: rows of a batch are divided over ``data``, the target
      over ``model``; drafts are copied. With several processes, all must make the same calls.
    parts: inputs of the family without a bundle: ``tokenizer`` and ``text`` (a T5 encoder for released networks) for
      LlamaGen, ``vae``, ``classes`` and ``latent_scale`` for MAR, by folder, file or value.
  Raises:
    OptionError: for a dtype, a precision or a mesh that does not fit.
    CheckpointError: one line that names the corrupt file, or the part that is missing or does not fit.
    LinkError: if the hub cannot be reached.

  Example:
    >>> pipe = load_pipeline("digits32-causal")
    >>> pipe.family.noun, pipe.default_method, list(pipe.drafts)
    ('image', 'cspd', ['small'])
  """
  dtype = _name(dtype)
  if dtype not in DTYPES:
    raise OptionError(f"Must have a dtype in {', '.join(DTYPES)}, we instead got {dtype!r}")
  if matmul_precision not in (None, *precision.PRECISIONS):
    raise OptionError(f"Must have a precision in {', '.join(precision.PRECISIONS)}, we instead got {matmul_precision!r}")
  platform()  # backend errors are raised before files are read
  with values_as(OptionError):
    mesh = None if mesh is None else meshes.make_mesh(mesh)
  is_read = isinstance(path, Bundle)
  bundle = path if is_read else read_bundle(model_folder(shipped.default_bundle() if path is None else path))
  sources, brought = _draft_sources(bundle, draft, drafts)
  folder = model_folder(bundle.target_folder())
  name = checkpoints.read_config(folder)["family"]
  if name in registry.FAMILIES and name not in registry.generating():
    raise ValueError(f"Must have a network that generates ({', '.join(registry.generating())}), {folder} holds a {name}")
  loaded = checkpoints.load(folder, dtype=jnp.dtype(dtype), weights=target_weights, mesh=mesh)
  given = {name: _absolute(value) for name, value in parts.items() if value is not None}
  family_parts = FamilyParts(bundle.path, {**bundle.parts, **given})
  family = registry.family_maker(name)(loaded, family_parts)
  family_parts.check_all_read()
  _check_defaults(bundle, family)
  defaults = bundle.defaults
  if not defaults.sampling:  # without defaults: a folder of converted networks, or a bundle without them
    defaults = dataclasses.replace(defaults, sampling=family.published_sampling())
  networks = Drafts(family, sources, dtype=dtype, mesh=mesh)
  if brought:
    check_families(family, {sources[name]: networks.family_name(name) for name in brought})
    first, method = brought[0], _method_with(defaults.method, family, networks.family_name(brought[0]))
    defaults = dataclasses.replace(defaults, draft=first, method=method)
  precise = matmul_precision or precision.of_user() or family.matmul_precision(dtype)
  target = family.network(loaded, "target")
  name = network_name(path) if hub.is_reference(path) else bundle.name
  return Pipeline(name, family, target, networks, defaults, dtype, precise, family_parts, mesh)


def _absolute(part: Any) -> Any:
  """A part of the caller; its paths are not relative to the bundle."""
  is_local = isinstance(part, (str, os.PathLike)) and part != "" and not hub.is_reference(part)
  return Path(part).absolute() if is_local else part


def _check_defaults(bundle: Bundle, family: Family) -> None:
  """Checks that defaults are for the target's kind of tokens.

  Raises:
    ValueError: naming the file and the first mismatch.
  """
  method, known, wrong = bundle.defaults.method, options_of(family.sampling_type), None
  if unknown := sorted(bundle.defaults.sampling.keys() - known.keys()):
    wrong = f"must have sampling settings of {family.space.noun} ({', '.join(known)}), we instead got {unknown[0]}"
  elif method is not None and not get_method(method).fits(family.space.kind):
    wrong = f"must have a default method that draws {family.space.noun}, we instead got {method}"
  if wrong is not None:
    raise ValueError(f"Corrupt {bundle.path / BUNDLE_FILE}: {wrong}")


def _name(dtype: Any) -> Any:
  """The name of a dtype that is not in `DTYPES`."""
  if dtype is None:  # NumPy reads None as float64
    return dtype
  try:
    return jnp.dtype(dtype).name
  except TypeError:
    return dtype


def _draft_sources(bundle: Bundle, draft: Any, drafts: Any) -> tuple[dict[str, Path], list[str]]:
  """Folders of all drafts by name, and the names of additional ones."""
  if drafts is not None and not isinstance(drafts, Mapping):
    raise ValueError(f"Must have drafts by name, as {{name: folder}}, we instead got {drafts!r}")
  draft = [] if draft is None else list(draft) if isinstance(draft, Iterable) and not isinstance(draft, str) else [draft]
  given = [(network_name(check_path(folder, "a folder as draft")), Path(folder)) for folder in draft]
  given += [(name, check_path(folder, "a folder as draft")) for name, folder in (drafts or {}).items()]
  # Additional drafts come first: they are the defaults of all methods that they fit.
  sources: dict[str, Path] = {}
  free = {cls.free_draft for cls in METHODS.values()}
  for name, folder in (*given, *((name, bundle.folder(folder)) for name, folder in bundle.drafts.items())):
    if name in sources:
      raise ValueError(f"Must have drafts of different names, we instead got two of {name!r}")
    if name in free:
      raise ValueError(f"Must have a draft with another name, {name!r} is that of a draft without a network")
    sources[name] = folder
  return sources, [name for name, _ in given]


def check_families(family: Family, found: Mapping[Path, str]) -> None:
  """Checks that every network is a draft of some method for the target's family.

  Args:
    found: folders of networks, and their family names.

  Raises:
    ValueError: naming the first other network.
  """
  drafting = [cls for cls in METHODS.values() if cls.fits(family.space.kind) and cls.draft_family is not None]
  known = dict.fromkeys(name for cls in drafting for name in family.family_names(cls.draft_family))
  for folder, name in found.items():
    if name not in known:
      raise ValueError(f"Must have a checkpoint of the family {' or '.join(known)} as draft, {folder} holds a {name}")


def _method_with(method: str | None, family: Family, name: str) -> str | None:
  """The bundle's default method if it drafts with the family ``name``, else None."""
  fits = method is not None and name in family.family_names(get_method(method).draft_family)
  return method if fits else None
