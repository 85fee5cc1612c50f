"""Several devices: rows of a batch are divided over the axis ``data`` of a mesh, heads and hidden units over ``model``.

Rows are independent: each group of devices with the same index on ``data`` decodes its rows (`over_rows`), and stops when
these are done. Within a group the compiler divides the work like parameters and caches (`param_specs`, `constrain`).

| weights ``[out, in]`` | divided | exchange within a group |
|---|---|---|
| queries, keys, values, gate, up, first layer of an MLP; their biases | out | nothing |
| output of attention, down, second layer of an MLP | in | one sum per block and product |
| output head, and the hidden layer of one | out | the hidden layer; logits of the wanted positions |
| token table | in | embeddings of the inputs |
| a tied token table | out | both of these |
| everything else: norms, positions, conditions, codebooks | not | nothing |
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from jaxspec.core.types import Array, PyTree

AXES = ("data", "model")
DATA, MODEL = AXES

# Names of modules with a matrix, in the state dicts of all families.
_OUT = frozenset({
  "wq", "wk", "wv", "w1", "w3", "q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "c_fc", "output", "lm_head",
  "output_mlp_projector", "vision_head",
  "wqkv",  # is divided as its three parts are, which `tensor_parallel` networks have in its place
})  # fmt: skip
_HEADS = frozenset({"output", "lm_head", "vision_head"})
_IN = frozenset({"wo", "w2", "o_proj", "out_proj", "down_proj", "c_proj"})
_TABLES = frozenset({"tok_embeddings", "embed_tokens", "wte"})

_SPELLED = re.compile(r"(data|model)=([0-9]+)")


class MeshSizes(NamedTuple):
  """Devices along the two axes."""

  data: int = 1
  model: int = 1

  @property
  def num_devices(self) -> int:
    """Devices."""
    return self.data * self.model

  def __str__(self) -> str:
    return f"data={self.data},model={self.model}"

  def rows(self, batch: int) -> int:
    """Rows of a batch in each group.

    Raises:
      ValueError: if the axis ``data`` does not divide them.
    """
    if batch % self.data:
      raise ValueError(f"Must have a number of rows that the axis data={self.data} divides, we instead got {batch}")
    return batch // self.data

  def ring(self, num_bytes: float) -> float:
    """Bytes that each device sends in one sum over the axis ``model`` of as many bytes on each (ring all-reduce)."""
    return 2 * (self.model - 1) / self.model * num_bytes


def parse(text: str) -> MeshSizes:
  """The sizes of ``data=2,model=4``; a missing axis has one device.

  Raises:
    ValueError: for other axes, a repeated axis, or sizes that are not positive.

  Example:
    >>> parse("model=4")
    MeshSizes(data=1, model=4)
  """
  found = [_SPELLED.fullmatch(part.strip()) for part in str(text).split(",")]
  sizes = {match[1]: int(match[2]) for match in found if match}
  if len(sizes) < len(found) or min(sizes.values()) < 1:
    raise ValueError(f"Must have a mesh such as data=2,model=4, we instead got {text!r}")
  return MeshSizes(**sizes)


def make_mesh(mesh: str | Mesh) -> Mesh:
  """A mesh of the first devices; a mesh with the two axes is returned unchanged.

  Raises:
    ValueError: if there are too few devices, or for a mesh with other axes.
  """
  if isinstance(mesh, Mesh):
    if tuple(mesh.axis_names) != AXES or any(kind != AxisType.Auto for kind in mesh.axis_types):
      raise ValueError(f"Must have a mesh with the automatic axes {' and '.join(AXES)}, we instead got {mesh}")
    return mesh
  sizes, devices = parse(mesh), jax.devices()
  if len(devices) < sizes.num_devices:
    raise ValueError(f"Must have {sizes.num_devices} devices for the mesh {mesh}, we instead got {len(devices)}")
  return over(sizes, devices[: sizes.num_devices])


def over(sizes: MeshSizes, devices: Sequence[Any]) -> Mesh:
  """The mesh of ``sizes.num_devices`` devices."""
  return Mesh(np.array(devices).reshape(sizes), AXES, axis_types=(AxisType.Auto,) * 2)


def constrain(x: Array, *axes: str | None) -> Array:
  """Declares to the compiler how leading axes of an array are divided within a group; without a mesh it does nothing.

  Without axes, every device of the group has the full array. Embeddings and logits need this, because tables and output
  heads are divided, and the compiler would continue with parts of them.
  """
  if jax.sharding.get_abstract_mesh().empty:
    return x
  return jax.lax.with_sharding_constraint(x, PartitionSpec(*axes))


def can_divide(config: Any) -> bool:
  """Whether networks of a config can be divided by the axis ``model``."""
  return "tensor_parallel" in {field.name for field in dataclasses.fields(config)}


def sides(config: Any) -> dict[str, int]:
  """Sizes of a network that the axis ``model`` must divide, heads and units of an MLP, by name in messages."""
  hidden = getattr(config, "ffn_hidden", None) or 4 * config.dim
  kv_heads = getattr(config, "kv_heads", config.num_heads)
  return {"heads": config.num_heads, "key and value heads": kv_heads, "units of an MLP": hidden}


def allowed(config: Any) -> list[int]:
  """Valid sizes of the axis ``model`` for a network, ascending."""
  common = math.gcd(*sides(config).values()) if can_divide(config) else 1
  return [size for size in range(1, common + 1) if common % size == 0]


def check_fits(config: Any, model: int, name: Any) -> None:
  """Checks a size of the axis ``model``.

  Args:
    name: name of the network in messages.
  Raises:
    ValueError: with the number that the axis does not divide, and the valid sizes.
  """
  if model == 1:
    return
  if not can_divide(config):
    raise ValueError(f"Must have model=1 for {name}, whose networks are copied to all devices, we instead got {model}")
  for what, size in sides(config).items():
    if size % model:
      sizes = ", ".join(map(str, allowed(config)))
      raise ValueError(
        f"Must have an axis model that divides the {size} {what} of {name} (one of {sizes}), we instead got model={model}"
      )


def divided_axis(path: str, shape: tuple[int, ...], model: int, *, tied: bool = False, vocab: bool = True) -> int | None:
  """The axis of a parameter that the axis ``model`` of a mesh divides; None is a copied parameter.

  A token table or an output head whose side it does not divide is copied: vocabularies may have any size.

  Args:
    path: names joined by dots.
    model: size of the axis.
    tied: whether the token table is also the output head.
    vocab: whether token table and output head are divided.
  """
  *_, module, kind = ("", *path.split("."))
  axis = None
  if not vocab and module in _HEADS | _TABLES:
    return None
  if module in _OUT or (tied and module in _TABLES):
    axis = 0
  elif kind == "weight" and (module in _IN or module in _TABLES):
    axis = 1
  return None if axis is None or shape[axis] % model else axis


def param_specs(params: PyTree, model: int, *, tied: bool = False, vocab: bool = True) -> PyTree:
  """The division of every parameter of a network with ``tensor_parallel`` (`divided_axis`).

  Args:
    params: parameters or their shapes, as nested dicts by the names of modules, or a tree that contains them.
  """

  def spec(path: tuple[Any, ...], leaf: Any) -> PartitionSpec:
    name = ".".join(str(getattr(key, "key", getattr(key, "name", key))) for key in path)
    axis = divided_axis(name, leaf.shape, model, tied=tied, vocab=vocab)
    return PartitionSpec() if axis is None else PartitionSpec(*[None] * axis, MODEL)

  return jax.tree_util.tree_map_with_path(spec, params)


def over_rows(function: Callable[..., PyTree], mesh: Mesh) -> Callable[..., PyTree]:
  """``function(params, *rows)`` for every group of devices and its rows; results are concatenated by rows.

  Args:
    function: pure; all leaves of its results and of its arguments after the first are ``[B, ...]``.
  """

  def mapped(params: PyTree, *rows: PyTree) -> PyTree:
    specs = (PartitionSpec(), *(PartitionSpec(DATA) for _ in rows))
    run = jax.shard_map(
      function, mesh=mesh, in_specs=specs, out_specs=PartitionSpec(DATA), axis_names={DATA}, check_vma=False
    )
    return run(params, *rows)

  return mapped


def place(tree: PyTree, mesh: Mesh, specs: PyTree | PartitionSpec = PartitionSpec()) -> PyTree:
  """Arrays on the devices of a mesh, copied to all of them unless ``specs`` divide them.

  With several processes, all must give the same arrays.
  """
  if isinstance(specs, PartitionSpec):
    specs = jax.tree.map(lambda _: specs, tree)
  shardings = jax.tree.map(lambda spec: NamedSharding(mesh, spec), specs)
  if all(sharding.is_fully_addressable for sharding in jax.tree.leaves(shardings)):
    return jax.device_put(tree, shardings)
  return jax.tree.map(_placed, tree, shardings)


def rows(tree: PyTree, mesh: Mesh) -> PyTree:
  """Arrays ``[B, ...]`` whose rows are divided over the axis ``data``.

  Raises:
    ValueError: if the axis does not divide them.
  """
  sizes = MeshSizes(**mesh.shape)
  for leaf in jax.tree.leaves(tree):
    sizes.rows(leaf.shape[0])
  return place(tree, mesh, PartitionSpec(DATA))


def on_host(tree: PyTree) -> PyTree:
  """Full arrays as numpy arrays. With several processes, all must call this, and all get the arrays."""
  leaves, structure = jax.tree.flatten(tree)
  far = [index for index, leaf in enumerate(leaves) if isinstance(leaf, jax.Array) and not _is_here(leaf)]
  if far:
    copies = _copied_to_all(leaves[far[0]].sharding.mesh)([leaves[index] for index in far])
    for index, copy in zip(far, copies):
      leaves[index] = copy
  return structure.unflatten(map(np.asarray, jax.device_get(leaves)))


def _is_here(array: Array) -> bool:
  """Whether this process has all of an array."""
  return array.is_fully_addressable or array.is_fully_replicated


@functools.cache
def _copied_to_all(mesh: Mesh) -> Callable[[list[Array]], list[Array]]:
  return jax.jit(lambda leaves: leaves, out_shardings=NamedSharding(mesh, PartitionSpec()))


def _placed(leaf: Any, sharding: NamedSharding) -> Array:
  """An array on devices of several processes."""
  if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
    return leaf if leaf.sharding == sharding else jax.jit(lambda whole: whole, out_shardings=sharding)(leaf)
  whole = np.asarray(leaf)
  return jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index])
