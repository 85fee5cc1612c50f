"""The division of a plan as JAX takes it: a `jax.sharding.NamedSharding` for every array of a decode.

Arrays that are placed so make `jax.jit` divide the program; nothing else of a decode changes.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from jaxspec.planning.mesh import Mesh, rule_of
from jaxspec.types import PyTree


def device_mesh(mesh: Mesh, devices: Any = None) -> jax.sharding.Mesh:
  """The mesh over devices, ``data`` first.

  Args:
    devices: as many as the mesh has; None: those of this process.
  Raises:
    ValueError: for another number of devices.
  """
  devices = np.array(jax.devices() if devices is None else devices)
  if devices.size != mesh.count:
    raise ValueError(f"Must have {mesh.count} devices for the mesh {mesh}, we instead got {devices.size}")
  return jax.sharding.Mesh(devices.reshape(mesh), mesh._fields)


def of_params(params: PyTree, mesh: jax.sharding.Mesh, *, whole: bool = False) -> PyTree:
  """Shardings of parameters by their names (`jaxspec.planning.mesh.rule_of`).

  Args:
    params: a tree of a network, or of one side of a decode; arrays or shapes.
    whole: every device has all of them, as of a draft network whose heads the axis does not divide.
  """
  size = mesh.shape["model"]

  def of(path: tuple[Any, ...], leaf: Any) -> NamedSharding:
    axis = rule_of(".".join(map(_name, path)), leaf.shape).axis
    if whole or axis is None or axis >= len(leaf.shape) or leaf.shape[axis] % size:
      return NamedSharding(mesh, PartitionSpec())
    return NamedSharding(mesh, PartitionSpec(*[None] * axis, "model"))

  return jax.tree_util.tree_map_with_path(of, params)


def of_rows(tree: PyTree, mesh: jax.sharding.Mesh) -> PyTree:
  """Shardings of arrays ``[B, ...]``: rows go over ``data``."""
  return jax.tree.map(lambda _: NamedSharding(mesh, PartitionSpec("data")), tree)


def _name(key: Any) -> str:
  """One step of a path: the key of a dict, the field of a tuple, or an index."""
  return str(next(getattr(key, field) for field in ("key", "name", "idx") if hasattr(key, field)))
