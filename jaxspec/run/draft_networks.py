"""The draft networks of a pipeline, loaded on first use."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import jax.numpy as jnp
from jax.sharding import Mesh

from jaxspec.core.network import Network
from jaxspec.families.family import Family
from jaxspec.io import checkpoints
from jaxspec.io.model_folders import model_folder


class Drafts(Mapping[str, Network]):
  """Draft networks by name, in the order of their bundle; each is loaded on first access.

  ``name in drafts``, iteration and ``len`` load nothing.

  Args:
    family: the target's family.
    sources: checkpoint folders, or loaded networks.
    dtype: compute dtype of drafts from folders.
    mesh: devices for copies of drafts from folders.
  """

  def __init__(
    self,
    family: Family,
    sources: Mapping[str, str | os.PathLike[str] | Network] = {},
    *,
    dtype: str = "float32",
    mesh: Mesh | None = None,
  ):
    self._family, self._sources, self._dtype, self._mesh = family, dict(sources), dtype, mesh
    self._networks: dict[str, Network] = {}
    self._folders: dict[str, Path] = {}

  def __getitem__(self, name: str) -> Network:
    if name not in self:
      raise KeyError(name)
    if name not in self._networks:
      self._networks[name] = self._family.network(self.loaded(name), name)
    return self._networks[name]

  def __contains__(self, name: object) -> bool:
    return name in self._sources

  def __iter__(self) -> Iterator[str]:
    return iter(self._sources)

  def __len__(self) -> int:
    return len(self._sources)

  def loaded(self, name: str) -> Network:
    """A draft in the form of its checkpoint.

    Raises:
      ValueError: for an unknown name or a damaged checkpoint.
    """
    source = self._source(name)
    if not isinstance(source, Network):
      dtype = jnp.dtype(self._dtype)
      source = self._sources[name] = checkpoints.load(source, dtype=dtype, mesh=self._mesh, divide=False)
    return source

  def family_name(self, name: str) -> str:
    """The name of the family of a draft, without loading its weights.

    Raises:
      ValueError: for an unknown name or a damaged checkpoint.
    """
    source = self._source(name)
    return source.family_name if isinstance(source, Network) else checkpoints.read_config(source)["family"]

  def _source(self, name: str) -> Path | Network:
    """A network, or its checkpoint folder, which is looked up and perhaps converted once."""
    if name not in self:
      raise ValueError(f"Must have a draft in {', '.join(self) or '(none)'}, we instead got {name!r}")
    source = self._sources[name]
    if isinstance(source, Network):
      return source
    if name not in self._folders:
      self._folders[name] = model_folder(source)
    return self._folders[name]
