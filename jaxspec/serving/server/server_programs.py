"""The compiled programs of a server: all shapes are chosen before any call comes.

Each program takes host arrays besides the parameters, the table, and a row that is to be inserted (`Call`). So what several
processes compute together is what one of them tells the others: which programs, and with which arrays.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from jaxspec.core import mesh as meshes
from jaxspec.core.footprint import available_bytes, tree_bytes
from jaxspec.core.types import Cache, Cursor, ModelFns, PyTree, Verdict
from jaxspec.models.guidance import Guided
from jaxspec.sampling.logit_processing import ModelParams, Sampling
from jaxspec.serving.server import cache_table
from jaxspec.serving.server.cache_table import Judged, RowSettings, Table
from jaxspec.serving.server.served_profile import StreamKind
from jaxspec.serving.server.step_arrays import Row, Settings, Sizes, batch_of, batch_to_finish, places_of, slots_for
from jaxspec.serving.server.stream_condition import fitted, lengths_of


class Op(enum.IntEnum):
  """The programs."""

  PREFILL = 1
  INSERT = 2
  STEP = 3
  FINISH = 4
  TAKE = 5


class Call(NamedTuple):
  """One run of a program."""

  op: Op
  number: int = 0  # of the kind of stream
  size: int = 0  # place of the length of the condition among `Programs.conditions`, or the width of a pass
  arrays: PyTree = ()  # on the host; their shapes follow from the three above


class State(NamedTuple):
  """What the device holds between programs."""

  table: Table
  row: Cache | None = None  # what `Op.PREFILL` read last, once for each group of devices


@dataclasses.dataclass(frozen=True, eq=False)
class Programs:
  """Everything that a server compiles.

  Attributes:
    params: the target's parameters, on the devices of the mesh; every row brings sampling and guidance of its own instead of
      theirs.
    model: the target.
    kinds: kinds of streams.
    sizes: what shapes are made of.
    example: a condition of one row, of the largest length that is served.
    mesh: devices that share the table and every step (`jaxspec.core.mesh`); None is one device. In several processes all
      must run the same programs in the same order.
    tell: is called with every program before it runs.
  Raises:
    ValueError: for sizes or kinds that do not go together.
  """

  params: ModelParams
  model: ModelFns
  kinds: tuple[StreamKind, ...]
  sizes: Sizes
  example: PyTree
  mesh: Mesh | None = None
  tell: Callable[[Call], None] | None = None

  def __post_init__(self):
    self.sizes.check()
    groups = 1 if self.mesh is None else self.mesh.shape[meshes.DATA]
    if self.sizes.groups != groups:
      raise ValueError(f"Must have sizes of {groups} groups for this mesh, we instead got {self.sizes.groups}")
    if not self.kinds or len({kind.vocab for kind in self.kinds}) > 1:
      raise ValueError(f"Must have kinds of streams of one vocabulary, we instead got {len(self.kinds)}")
    widest = self.sizes.widths[-1]
    for kind in self.kinds:
      if kind.window + 2 > widest:
        raise ValueError(
          f"Must have a width of at least {kind.window + 2} for a window of {kind.window} drafts, we instead got {widest}: "
          "a larger last one of --widths (widths=), or a profile with fewer drafts"
        )
    if self.example.batch_size != 1:
      raise ValueError(f"Must have an example of one row, we instead got {self.example.batch_size}")

  @property
  def vocab(self) -> int:
    """Tokens V."""
    return self.kinds[0].vocab

  @property
  def is_guided(self) -> bool:
    """Whether the target reads a guidance scale."""
    return isinstance(self.params.model, Guided)

  @property
  def max_condition(self) -> int:
    """Most positions of a condition."""
    return self.model.prefix_len(self.example)

  @property
  def num_cache_slots(self) -> int:
    """Cache slots of a row: a pass may begin at its last position."""
    return self.max_condition + self.sizes.max_len + self.sizes.widths[-1]

  def table(self) -> Table:
    """An empty table."""
    vocab = self.vocab if any(kind.may_request for kind in self.kinds) else None
    sizes = dict(num_slots=self.sizes.slots_of_group, num_cache_slots=self.num_cache_slots, vocab=vocab)
    return cache_table.init_table(self.model, **sizes, mesh=self.mesh)

  def check_memory(self) -> None:
    """Raises a ValueError if the table, and weights that are not read yet, are more than what a device has free."""
    available = available_bytes()
    unread = [leaf for leaf in jax.tree.leaves(self.params) if isinstance(leaf, jax.ShapeDtypeStruct)]
    need = tree_bytes(jax.eval_shape(self.table)) + tree_bytes(unread)
    if self.mesh is not None and self.mesh.devices.flat[0].platform != "cpu":
      need //= self.mesh.size  # at least; devices of a CPU share its memory
    if available is not None and need > available:
      needs, free = need / 2**30, max(available, 0) / 2**30
      found = f"{self.sizes.max_streams} streams of {self.num_cache_slots} positions need about {needs:.1f} GiB"
      raise ValueError(
        f"Must have caches of all streams in memory, {found} but {free:.1f} GiB are free: fewer --max-streams, or a smaller "
        "--max-len or --max-prompt"
      )

  def condition(self, condition: PyTree) -> PyTree:
    """The condition in one of the lengths that are compiled; see `jaxspec.serving.server.stream_condition.fitted`."""
    return fitted(condition, self.example)

  def conditions(self) -> list[PyTree]:
    """The example in every length that is compiled."""
    return lengths_of(self.condition(self.example))

  def prefill(self, number: int, settings: Settings, condition: PyTree) -> tuple[Cache, int]:
    """Reads a `condition` of this class for a kind of stream.

    Returns:
      The row's cache, once for each group of devices, and token 0.
    """
    lengths = [_shapes(example) for example in self.conditions()]
    rows = jax.tree.map(lambda leaf: np.asarray(leaf)[None], settings.row)
    call = Call(Op.PREFILL, number, lengths.index(_shapes(condition)), (rows, condition))
    state, first = self._tell_and_run(call, State(()))
    return state.row, int(first[0])

  def insert(self, table: Table, row: Cache, slot: int) -> Table:
    """Writes a whole row into a slot; the table is donated.

    Args:
      row: what `prefill` returned last, or `copies`.
    """
    return self._tell_and_run(Call(Op.INSERT, arrays=slots_for(slot, self.sizes)), State(table, row))[0].table

  def row(self, table: Table, slot: int) -> Cache:
    """A copy of the cache of one slot, on the host."""
    rows = self._tell_and_run(Call(Op.TAKE, arrays=slots_for(slot, self.sizes)), State(table))[1]
    return self.one_of(rows, self.sizes.group_of(slot))

  def one_of(self, copies: Cache, group: int = 0) -> Cache:
    """A row on the host, of what holds it once for each group of devices."""
    groups = self.sizes.groups
    return jax.tree.map(lambda leaf: leaf.reshape(groups, -1, *leaf.shape[1:])[group], meshes.on_host(copies))

  def copies(self, row: Cache) -> Cache:
    """A row of the host, for `insert`: once for each group of devices."""
    if self.mesh is None:
      return row
    return meshes.rows(jax.tree.map(lambda leaf: np.concatenate([leaf] * self.sizes.groups), row), self.mesh)

  def step(self, table: Table, number: int, width: int, rows: Sequence[Row]) -> tuple[Table, Judged]:
    """Runs the program of a kind and a width; the table is donated.

    Args:
      rows: up to ``M``, as many of each group of devices as it has room for.
    Returns:
      The table, and what was found about each of the rows, on the host.
    """
    call = Call(Op.STEP, number, width, batch_of(self.kinds[number], width, rows, self.sizes))
    state, judged = self._tell_and_run(call, State(table))
    return state.table, self._in_order(judged, rows)

  def finish(
    self, table: Table, number: int, rows: Sequence[Row], verdicts: Sequence[Verdict], distributions: Sequence[PyTree]
  ) -> tuple[Verdict, Cursor]:
    """Ends rounds that wait for distributions; see `jaxspec.serving.server.step_arrays.batch_to_finish`.

    Returns:
      Verdicts and cursors of the rows, on the host.
    """
    arrays = batch_to_finish(self.kinds[number], rows, verdicts, distributions, self.sizes)
    return self._in_order(self._tell_and_run(Call(Op.FINISH, number, arrays=arrays), State(table))[1], rows)

  def arrays_like(self, call: Call) -> PyTree:
    """Host arrays of the shapes that a call has."""
    kind = self.kinds[call.number]
    if call.op is Op.PREFILL:
      integers, numbers = np.zeros((2, 1), np.int32), np.zeros((3, 1), np.float32)
      row = RowSettings(np.zeros((1, 2), np.uint32), *integers, Sampling(*numbers[:2]), numbers[2])
      return row, self.conditions()[call.size]
    if call.op is Op.STEP:
      return batch_of(kind, call.size, (), self.sizes)
    if call.op is Op.FINISH:
      return batch_to_finish(kind, (), (), (), self.sizes)
    return slots_for(0, self.sizes)

  def run(self, call: Call, state: State) -> tuple[State, PyTree]:
    """Runs a program in this process; a table that it writes is donated.

    Returns:
      What the device holds now, and the result on the host.
    """
    kind, mesh = self.kinds[call.number], dict(mesh=self.mesh)
    (table, row), arrays = state, self._placed(call)
    judge = dict(model=self.model, verifier=kind.verifier(self.model), **mesh)
    if call.op is Op.PREFILL:
      sizes = dict(num_cache_slots=self.num_cache_slots, widest=self.sizes.widths[-1])
      row, result = cache_table.prefill(self.params, *arrays, **sizes, **judge)
    elif call.op is Op.INSERT:
      table, row, result = cache_table.insert(table, row, arrays, model=self.model, **mesh), None, ()
    elif call.op is Op.STEP:
      table, result = cache_table.step(self.params, table, *arrays, may_request=kind.may_request, **judge)
    elif call.op is Op.FINISH:
      result = cache_table.finish(table.p, *arrays, **mesh)
    else:
      result = cache_table.take(table, arrays, model=self.model, **mesh)
    return State(table, row), meshes.on_host(result)

  def _tell_and_run(self, call: Call, state: State) -> tuple[State, PyTree]:
    if self.tell is not None:
      self.tell(call)
    return self.run(call, state)

  def _placed(self, call: Call) -> PyTree:
    """The arrays of a call where they belong: conditions on all devices, rows on those of their groups."""
    if self.mesh is None:
      return call.arrays
    return (meshes.place if call.op is Op.PREFILL else meshes.rows)(call.arrays, self.mesh)

  def _in_order(self, found: PyTree, rows: Sequence[Row]) -> PyTree:
    places = places_of(rows, self.sizes)
    return jax.tree.map(lambda leaf: leaf[places], found)


def _shapes(tree: PyTree) -> list[tuple[int, ...]]:
  return [leaf.shape for leaf in jax.tree.leaves(tree)]
