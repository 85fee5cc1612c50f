"""The compiled programs of a server; their shapes are fixed before the first call."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from jaxspec.core import mesh as meshes
from jaxspec.core.footprint import available_bytes, tree_bytes
from jaxspec.core.types import Cache, Cursor, ModelFns, PyTree, Verdict
from jaxspec.models.guidance import Guided
from jaxspec.sampling.logit_processing import ModelParams
from jaxspec.serving.server import cache_table
from jaxspec.serving.server.cache_table import StepResult, Table
from jaxspec.serving.server.served_profile import ServedProfile
from jaxspec.serving.server.step_arrays import Row, Settings, Sizes, batch_of, batch_to_finish, row_positions, slots_for
from jaxspec.serving.server.stream_condition import fitted, lengths_of


@dataclasses.dataclass(frozen=True, eq=False)
class Programs:
  """All programs of a server.

  Attributes:
    params: the target's parameters, on the devices of the mesh; every row has sampling and guidance of its own instead.
    model: the target.
    profiles: served profiles.
    sizes: sizes of the shapes.
    example: a condition of one row, of the largest length that is served.
    mesh: devices of this process that share the table and every step (`jaxspec.core.mesh`); None is one device.
  Raises:
    ValueError: for inconsistent sizes or profiles, or a mesh with devices of another process.
  """

  params: ModelParams
  model: ModelFns
  profiles: tuple[ServedProfile, ...]
  sizes: Sizes
  example: PyTree
  mesh: Mesh | None = None

  def __post_init__(self):
    self.sizes.check()
    if self.mesh is not None and self.mesh.is_multi_process:
      raise ValueError("Must have a mesh of this process's own devices to serve, we instead got one of several processes")
    groups = 1 if self.mesh is None else self.mesh.shape[meshes.DATA]
    if self.sizes.groups != groups:
      raise ValueError(f"Must have sizes of {groups} groups for this mesh, we instead got {self.sizes.groups}")
    if not self.profiles or len({profile.vocab for profile in self.profiles}) > 1:
      raise ValueError(f"Must have profiles of one vocabulary, we instead got {len(self.profiles)}")
    widest = self.sizes.widths[-1]
    for profile in self.profiles:
      if profile.window + 2 > widest:
        raise ValueError(
          f"Must have a width of at least {profile.window + 2} for a window of {profile.window} drafts, we instead got "
          f"{widest}: a larger last one of --widths (widths=), or a profile with fewer drafts"
        )
    if self.example.batch_size != 1:
      raise ValueError(f"Must have an example of one row, we instead got {self.example.batch_size}")

  @property
  def vocab(self) -> int:
    """Tokens V."""
    return self.profiles[0].vocab

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
    """Cache slots of a row, in which a pass may begin at the last position."""
    return self.max_condition + self.sizes.max_len + self.sizes.widths[-1]

  def table(self) -> Table:
    """An empty table."""
    vocab = self.vocab if any(profile.may_request for profile in self.profiles) else None
    return cache_table.init_table(
      self.model, num_slots=self.sizes.slots_of_group, num_cache_slots=self.num_cache_slots, vocab=vocab, mesh=self.mesh
    )

  def check_memory(self) -> None:
    """Raises a ValueError if the table and the weights that are not loaded yet exceed the free memory of a device."""
    available = available_bytes()
    unread = [leaf for leaf in jax.tree.leaves(self.params) if isinstance(leaf, jax.ShapeDtypeStruct)]
    need = tree_bytes(jax.eval_shape(self.table)) + tree_bytes(unread)
    if self.mesh is not None and self.mesh.devices.flat[0].platform != "cpu":
      need //= self.mesh.size  # a lower bound; devices of a CPU share its memory
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
    return lengths_of(self.condition(self.example), self.sizes.least_prompt)

  def prefill(self, number: int, settings: Settings, condition: PyTree) -> tuple[Cache, int]:
    """Reads a `condition` of this class for a profile.

    Returns:
      The row's cache, once for each group of devices, and token 0.
    """
    arrays = jax.tree.map(lambda leaf: np.asarray(leaf)[None], settings.row), condition
    if self.mesh is not None:
      arrays = meshes.place(arrays, self.mesh)
    sizes = dict(num_cache_slots=self.num_cache_slots, widest=self.sizes.widths[-1])
    row, first = cache_table.prefill(self.params, *arrays, **sizes, **self._static(number))
    return row, int(meshes.on_host(first)[0])

  def insert(self, table: Table, row: Cache, slot: int) -> Table:
    """Writes a whole row into a slot; the table is donated.

    Args:
      row: what `prefill` returned, or `copies`.
    """
    slots = self._of_groups(slots_for(slot, self.sizes))
    return cache_table.insert(table, row, slots, model=self.model, mesh=self.mesh)

  def row(self, table: Table, slot: int) -> Cache:
    """A copy of the cache of one slot, on the host."""
    slots = self._of_groups(slots_for(slot, self.sizes))
    return self.one_of(cache_table.take(table, slots, model=self.model, mesh=self.mesh), self.sizes.group_of(slot))

  def one_of(self, copies: Cache, group: int = 0) -> Cache:
    """A row on the host, from one copy for each group of devices."""
    groups = self.sizes.groups
    return jax.tree.map(lambda leaf: leaf.reshape(groups, -1, *leaf.shape[1:])[group], meshes.on_host(copies))

  def copies(self, row: Cache) -> Cache:
    """Copies of a row of the host for `insert`, one for each group of devices."""
    if self.mesh is None:
      return row
    return meshes.rows(jax.tree.map(lambda leaf: np.concatenate([leaf] * self.sizes.groups), row), self.mesh)

  def step(self, table: Table, number: int, width: int, rows: Sequence[Row]) -> tuple[Table, StepResult]:
    """Runs the program of a profile and a width; the table is donated.

    Args:
      rows: up to ``M``, and ``M / groups`` of each group of devices.
    Returns:
      The table, and the results of the rows on the host.
    """
    profile = self.profiles[number]
    arrays = self._of_groups(batch_of(profile, width, rows, self.sizes))
    table, found = cache_table.step(self.params, table, *arrays, may_request=profile.may_request, **self._static(number))
    return table, self._in_order(found, rows)

  def finish(
    self, table: Table, number: int, rows: Sequence[Row], verdicts: Sequence[Verdict], distributions: Sequence[PyTree]
  ) -> tuple[Verdict, Cursor]:
    """Finishes rounds that wait for distributions; see `jaxspec.serving.server.step_arrays.batch_to_finish`.

    Returns:
      Verdicts and cursors of the rows, on the host.
    """
    arrays = self._of_groups(batch_to_finish(self.profiles[number], rows, verdicts, distributions, self.sizes))
    return self._in_order(cache_table.finish(table.p, *arrays, mesh=self.mesh), rows)

  def _static(self, number: int) -> dict[str, Any]:
    """Static arguments of the programs of a profile."""
    return dict(model=self.model, verifier=self.profiles[number].verifier(self.model), mesh=self.mesh)

  def _of_groups(self, arrays: PyTree) -> PyTree:
    """Host arrays of rows, on the devices of the groups that compute them."""
    return arrays if self.mesh is None else meshes.rows(arrays, self.mesh)

  def _in_order(self, found: PyTree, rows: Sequence[Row]) -> PyTree:
    """The results of the rows, on the host."""
    positions = row_positions(rows, self.sizes)
    return jax.tree.map(lambda leaf: leaf[positions], meshes.on_host(found))
