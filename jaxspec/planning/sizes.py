"""A network as shapes: parameters from `jax.eval_shape` of its own functions, and the operations of a pass.

Nothing is allocated. The counts of operations are formulas over these shapes: two per multiplied weight and input, four per
query channel and attended slot.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxspec.core.mesh import MeshSizes, can_divide, divided_axis
from jaxspec.core.network import Network
from jaxspec.core.types import Params
from jaxspec.io.checkpoints import flatten
from jaxspec.models import registry
from jaxspec.models.mar.mar import MARConfig, MARFns
from jaxspec.models.trunk import find_trunk
from jaxspec.planning.uses import Use, use_of


class Leaf(NamedTuple):
  """One parameter."""

  path: str
  shape: tuple[int, ...]
  use: Use
  tied: bool = False  # of a network whose token table is also its output matrix

  @property
  def size(self) -> int:
    return math.prod(self.shape)

  def divided(self, mesh: MeshSizes) -> int:
    """Number of entries on each device."""
    is_whole = divided_axis(self.path, self.shape, mesh.model, tied=self.tied) is None
    return self.size if is_whole else self.size // mesh.model


class Trunk(NamedTuple):
  """Blocks with attention."""

  layers: int
  heads: int
  kv_heads: int
  head_dim: int
  width: int


def trunks_of(config: Any) -> tuple[Trunk, ...]:
  """The blocks of a network; two trunks in a masked one."""
  if isinstance(config, MARConfig):
    sides = ((getattr(config, f"{side}_{of}") for of in ("depth", "heads", "dim")) for side in ("encoder", "decoder"))
    return tuple(Trunk(depth, heads, heads, dim // heads, dim) for depth, heads, dim in sides)
  config = getattr(config, "trunk", config)
  layers = getattr(config, "num_layers", 1)  # a head on features is one block
  heads = getattr(config, "num_heads", 0)  # spatial heads have no attention
  return (Trunk(layers, heads, getattr(config, "kv_heads", heads), getattr(config, "head_dim", 0), config.dim),)


@dataclasses.dataclass(frozen=True, eq=False)
class Sized:
  """A network whose parameters are shapes.

  Attributes:
    network: its functions, its config, and `jax.ShapeDtypeStruct` parameters in the dtype of the decode.
    is_draft: whether it drafts; draft networks are replicated on all devices.
  """

  network: Network
  is_draft: bool = False

  @functools.cached_property
  def drawing(self) -> Network:
    """The network as methods take it, over its drawn ids (`jaxspec.models.trunk`)."""
    network = self.network
    trunk = find_trunk(self.config)
    if trunk is None:
      return network
    return dataclasses.replace(network, fns=trunk.fns(self.config), params=trunk.params(self.config, network.params))

  @functools.cached_property
  def leaves(self) -> tuple[Leaf, ...]:
    """All parameters with their uses."""
    tied = bool(getattr(self.network.config, "tie_embeddings", False))
    flat = flatten(self.network.params)
    return tuple(Leaf(path, leaf.shape, use_of(path, leaf.shape, tied=tied), tied) for path, leaf in flat.items())

  @property
  def config(self) -> Any:
    return self.network.config

  @property
  def itemsize(self) -> int:
    """Bytes of a parameter and of an activation."""
    return jnp.dtype(getattr(getattr(self.config, "trunk", self.config), "dtype", "float32")).itemsize

  @property
  def draws_continuous(self) -> bool:
    """Whether its tokens are continuous."""
    return hasattr(self.config, "token_dim")

  @property
  def is_masked(self) -> bool:
    """Whether every token needs a new pass over all known tokens (`jaxspec.models.mar.masked_network`)."""
    return isinstance(self.network.fns, MARFns)

  @functools.cached_property
  def trunks(self) -> tuple[Trunk, ...]:
    return trunks_of(self.config)

  @property
  def num_parameters(self) -> int:
    return sum(leaf.size for leaf in self.leaves)

  def weight_bytes(self, mesh: MeshSizes = MeshSizes(), *uses: Use) -> int:
    """Bytes of the parameters on each device: all, or those of some uses."""
    return self.itemsize * sum(leaf.divided(mesh) for leaf in self.leaves if not uses or leaf.use in uses)

  def multiplied(self, mesh: MeshSizes, *uses: Use) -> int:
    """Number of weights that each device multiplies with every input."""
    return sum(leaf.divided(mesh) for leaf in self.leaves if leaf.use in uses)

  @property
  def widest(self) -> int:
    """Largest number of outputs of a matrix inside a block."""
    return max(leaf.shape[0] for leaf in self.leaves if leaf.use is Use.PASS)

  def fitting(self, mesh: MeshSizes) -> MeshSizes:
    """The mesh, without an axis ``model`` if the network is replicated."""
    return mesh if self.is_divisible else mesh._replace(model=1)

  @property
  def is_divisible(self) -> bool:
    """Whether the axis ``model`` of a mesh divides it (`jaxspec.core.mesh`)."""
    return not self.is_draft and can_divide(self.config)

  def as_divided(self, mesh: MeshSizes) -> Sized:
    """The network in the form that a mesh divides."""
    if mesh.model == 1 or not self.is_divisible:
      return self
    config = dataclasses.replace(self.config, tensor_parallel=True)
    dtype = getattr(self.config, "dtype", None)
    return sized(registry.family_name(config), config, self.network.name, dtype=dtype)


def sized(family: str, config: Any, name: str, *, dtype: str | None = None) -> Sized:
  """A network of shapes.

  Args:
    family: a name of `jaxspec.models.registry`.
    config: its config.
    name: its name in messages.
    dtype: of the parameters and the arithmetic; None: that of the config.
  """
  if dtype is not None and "dtype" in getattr(config, "__dataclass_fields__", {}):
    config = dataclasses.replace(config, dtype=dtype)
  fns = registry.FAMILIES[family].make_fns(config)
  return Sized(Network(fns, _shapes(family, config, dtype), config, name=name))


@functools.lru_cache(maxsize=16)
def _shapes(family: str, config: Any, dtype: str | None) -> Params:
  """Shapes of the parameters that `jaxspec.io.checkpoints.load` returns."""
  wanted = jnp.dtype(dtype or getattr(config, "dtype", "float32"))
  if "dtype" in getattr(config, "__dataclass_fields__", {}):
    config = dataclasses.replace(config, dtype="float32")  # the shapes are those of every dtype: JAX traces them once
  found = jax.eval_shape(registry.FAMILIES[family].make_fns(config).init, jax.random.key(0))
  kept = lambda leaf: wanted if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf.dtype
  return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, kept(leaf)), found)


class Pass(NamedTuple):
  """Cost of a pass of a network on each device."""

  operations: float
  read: float  # bytes of weights and caches
  exchanged: float  # bytes sent to other devices

  def __add__(self, other: Pass) -> Pass:
    return Pass(*(ours + theirs for ours, theirs in zip(self, other)))

  def __mul__(self, times: float) -> Pass:
    return Pass(*(value * times for value in self))


def pass_cost(
  network: Sized,
  mesh: MeshSizes,
  rows: int,
  inputs: int,
  slots: int,
  *,
  cache_bytes: float = 0.0,
  drawn: int = 0,
  steps: int = 0,
  logits: int | None = None,
) -> Pass:
  """Cost of a pass over ``inputs`` inputs of ``rows`` rows.

  Args:
    rows: on each device, both halves of a guided pair.
    slots: attended cache slots of each input; programs of static shapes read them all.
    cache_bytes: of the caches on each device; all of it is read once.
    drawn: continuous tokens of a row that a diffusion head draws, in ``steps`` steps.
    logits: computed rows of the output matrix; None: all.
  """
  mesh = network.fitting(mesh)
  blocks = (Use.PASS, Use.ADDED)
  exchanged = sum(2 * trunk.layers * rows * inputs * trunk.width * network.itemsize for trunk in network.trunks)
  if network.is_masked:
    # Attention is bidirectional: every input is a pass over all known tokens. The family counts its operations.
    operations = 2.0 * rows * inputs * network.network.fns.cost(slots, 0, 0) / mesh.model
    exchanged *= network.config.buffer_size + network.config.num_tokens
  else:
    attended = sum(4 * trunk.layers * slots * trunk.heads * trunk.head_dim for trunk in network.trunks)
    operations = rows * inputs * (2.0 * network.multiplied(mesh, Use.PASS) + attended / mesh.model)
  share = 1.0
  # An edge network has output rows for the drawn ids only.
  if logits is not None and (whole := getattr(network.config, "drawn", getattr(network.config, "vocab_size", None))):
    share = min(logits / whole, 1.0)
  operations += 2.0 * rows * inputs * share * network.multiplied(mesh, Use.HEAD)
  read = network.weight_bytes(mesh, *blocks) + share * network.weight_bytes(mesh, Use.HEAD) + cache_bytes
  # Every step of a chain reads the denoising head again; it is replicated on all devices.
  operations += 2.0 * rows * drawn * steps * network.multiplied(mesh, Use.STEP)
  read += steps * network.weight_bytes(mesh, Use.STEP) * bool(drawn)
  return Pass(operations, read, mesh.ring(exchanged) if mesh.model > 1 else 0.0)


def activation_bytes(network: Sized, mesh: MeshSizes, rows: int, inputs: int, slots: int) -> float:
  """Estimated peak bytes of activations of a pass, on each device.

  Of one block: the residual stream and its norm, the widest activation three times (gate, up, product), and the scores of
  all heads in float32 before and after the softmax.
  """
  mesh = network.fitting(mesh)
  width = max(trunk.width for trunk in network.trunks)
  heads = max(trunk.heads for trunk in network.trunks)
  if network.is_masked:
    rows, inputs = rows * inputs, network.config.buffer_size + network.config.num_tokens
    slots = inputs
  stream = network.itemsize * (4 * width + 3 * network.widest / mesh.model)
  return rows * inputs * (stream + 2 * 4 * heads / mesh.model * slots)
