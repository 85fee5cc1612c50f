"""The caches of all streams, and the steps that compute a few of them: pure functions of fixed shape.

The table has the caches of ``N`` slots, and one idle slot. A step gathers ``M`` slots, runs one pass of ``W`` inputs over
them, and writes ``W`` cache slots of each back. So the cost of a step depends on ``M``, not on ``N``.

The rest of a row is small and stays on the host: its cursor, its key, its sampling parameters. They are in a `Batch`. The
state of a row on the device is its cache alone, which can be rebuilt from its tokens.

On a mesh (`jaxspec.core.mesh`) every group of devices has a table of its own slots, and computes its own rows of a step. The
groups exchange nothing.

Rows of a step are *verified* (their drafts are verified and their cursor moves), *forced* (they read committed tokens) or
*idle* (in the idle slot).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from jaxspec.codecs.sparse_distribution import SparseDistribution
from jaxspec.core import commits, rng
from jaxspec.core import mesh as meshes
from jaxspec.core.rounds import verify_round
from jaxspec.core.state import TargetSide
from jaxspec.core.types import Array, Cache, Cursor, Draft, ModelFns, PyTree, Verdict, Verifier
from jaxspec.models.guidance import Guided
from jaxspec.sampling.logit_processing import ModelParams, Sampling
from jaxspec.serving.wire.handshake import KEY_KIND
from jaxspec.serving.wire.two_phase import Tested, finish_round, judge_round
from jaxspec.verifiers.chunk_target import ChunkState


class Table(NamedTuple):
  """The arrays of all streams on the device."""

  cache: Cache  # of N + 1 rows, or as many of each group of devices; the last one is idle
  p: PyTree  # [N + 1, V] float32, target distributions of rows that wait for a draft's; () without such rows


class RowSettings(NamedTuple):
  """Settings of every row that do not change."""

  keys: Array  # [M, 2] uint32, data of threefry2x32 row keys
  max_len: Array  # [M] int32
  prefix_len: Array  # [M] int32
  sampling: Sampling  # leaves [M] float32
  scale: Array  # [M] float32, guidance; not read by a model without


class Batch(NamedTuple):
  """The ``M`` rows of a step, from the host."""

  settings: RowSettings
  cursor: Cursor  # leaves [M], end tokens [M, E]
  draft: Draft  # leaves [M, K, ...], payload a `Chunk` of [M, W]
  verified: Array  # [M] bool


class StepResult(NamedTuple):
  """The results of a step for its ``M`` rows; valid where a row was verified."""

  verdict: Verdict
  requests: Array  # [M] bool, the last token waits for the distribution of the rejected draft
  cursor: Cursor  # after the round; not valid where ``requests``
  finite: Array  # [M] bool, no logit was NaN or +inf
  bits: Array  # [M] uint32, a sum over the bits of the logits


def init_table(
  model: ModelFns, *, num_slots: int, num_cache_slots: int, vocab: int | None, mesh: Mesh | None = None
) -> Table:
  """An empty table.

  Args:
    num_slots: N, of each group of devices.
    num_cache_slots: cache slots of a row, at least those of the condition, of its tokens, and of the widest pass.
    vocab: V if rows may wait for distributions, else None.
    mesh: devices that share the table; None is one device.
  Raises:
    ValueError: for a model whose caches no table can hold.
  """
  if model.take is None or model.put is None:
    raise ValueError("Must have a model with `take` and `put` for its caches to serve it, we instead got one without")

  def build(_) -> Table:
    p = () if vocab is None else jnp.zeros((num_slots + 1, vocab), jnp.float32)
    return Table(model.init_cache(num_slots + 1, num_cache_slots), p)

  return build(()) if mesh is None else jax.jit(meshes.over_rows(build, mesh))(())


def of_rows(params: ModelParams, settings: RowSettings) -> ModelParams:
  """The target's parameters with the sampling and guidance of every row."""
  model = params.model._replace(scale=settings.scale) if isinstance(params.model, Guided) else params.model
  return params._replace(model=model, sampling=settings.sampling)


@functools.partial(jax.jit, static_argnames=("model", "verifier", "num_cache_slots", "widest", "mesh"))
def prefill(
  params: ModelParams, settings: RowSettings, condition: PyTree, *, model: ModelFns, verifier: Verifier,
  num_cache_slots: int, widest: int, mesh: Mesh | None = None,
) -> tuple[Cache, Array]:  # fmt: skip
  """Reads the condition of one row; a new length of conditions compiles a new program.

  Args:
    settings: of one row.
    num_cache_slots: those of a row of the table.
    widest: most inputs of a pass.
    mesh: devices that share the table; every group of them reads the condition.
  Returns:
    The row's cache, zeros after the condition, and token 0 ``[1]`` int32; both once for each group of devices.
  """

  def run(given: tuple[ModelParams, RowSettings, PyTree]) -> tuple[Cache, Array]:
    params, settings, condition = given
    keys = rng.stream_keys(_keys(settings), rng.Stream.FIRST, jnp.int32(0))
    max_len = num_cache_slots - model.prefix_len(condition) - widest
    verdict, state = verifier.init(of_rows(params, settings), keys, condition, max_len, widest)
    return state.cache, verdict.next_tokens[:, 0]

  return _in_groups(run, mesh)((params, settings, condition))


@functools.partial(jax.jit, static_argnames=("model", "mesh"), donate_argnames=("table",))
def insert(table: Table, row: Cache, slots: Array, *, model: ModelFns, mesh: Mesh | None = None) -> Table:
  """Writes a whole row, so that nothing of the slot's last stream remains. The table is donated.

  Args:
    row: a cache of one row, once for each group of devices.
    slots: ``[1]`` int32 of each group; the idle slot for groups without the row.
  """

  def run(_, table: Table, row: Cache, slots: Array) -> Table:
    assert model.put is not None, "`init_table` refuses other models"
    return table._replace(cache=model.put(table.cache, row, slots))

  return _in_groups(run, mesh)((), table, row, slots)


@functools.partial(jax.jit, static_argnames=("model", "mesh"))
def take(table: Table, slots: Array, *, model: ModelFns, mesh: Mesh | None = None) -> Cache:
  """Copies of the caches of ``slots [1]`` int32, one of each group of devices."""
  assert model.take is not None, "`init_table` refuses other models"
  rows_of = model.take
  return _in_groups(lambda _, cache, slots: rows_of(cache, slots), mesh)((), table.cache, slots)


@functools.partial(jax.jit, static_argnames=("model", "verifier", "may_request", "mesh"), donate_argnames=("table",))
def step(
  params: ModelParams, table: Table, slots: Array, batch: Batch, *, model: ModelFns, verifier: Verifier, may_request: bool,
  mesh: Mesh | None = None,
) -> tuple[Table, StepResult]:  # fmt: skip
  """One pass over ``M`` rows. The table is donated.

  Args:
    slots: ``[M]`` int32; only the idle one may occur twice. On a mesh ``M / data`` of each group, numbered within its table.
    batch: the rows. Its shapes, hence the program, do not depend on the waiting streams.
    verifier: a `jaxspec.verifiers.chunk_target.ChunkVerifier`; it returns logits where ``may_request``.
    may_request: static; whether verdicts may wait for distributions (`finish`).
    mesh: devices that share the table.
  """
  run = functools.partial(_step, model=model, verifier=verifier, may_request=may_request)
  return _in_groups(run, mesh)(params, table, slots, batch)


def _step(
  params: ModelParams, table: Table, slots: Array, batch: Batch, *, model: ModelFns, verifier: Verifier, may_request: bool
) -> tuple[Table, StepResult]:
  """A step of one group of devices."""
  assert model.take is not None and model.put is not None, "`init_table` refuses other models"
  settings, chunk = batch.settings, batch.draft.payload
  unseen = jnp.zeros(slots.shape, jnp.uint32)
  state = ChunkState(model.take(table.cache, slots), settings.prefix_len, unseen == 0, unseen)
  side = dataclasses.replace(_side(batch), verifier=state)
  p, requests = table.p, jnp.zeros(slots.shape, bool)
  if may_request:
    side, tested = judge_round(of_rows(params, settings), side, batch.draft, verifier=verifier)
    verdict, requests = tested.verdict, tested.requests
    p = p.at[slots].set(tested.p, mode="promise_in_bounds")
    cursor = commits.advance(side.cursor, batch.draft, verdict, settings.max_len)
  else:
    side, verdict = verify_round(of_rows(params, settings), side, batch.draft, verifier=verifier)
    verdict, cursor = verdict._replace(feedback=()), side.cursor
  state = side.verifier
  cache = model.put(table.cache, state.cache, slots, settings.prefix_len + chunk.start, chunk.tokens.shape[1])
  return Table(cache, p), StepResult(verdict, requests, cursor, state.finite, state.bits)


@functools.partial(jax.jit, static_argnames=("mesh",))
def finish(
  p: Array, slots: Array, batch: Batch, verdict: Verdict, distribution: SparseDistribution, *, mesh: Mesh | None = None
) -> tuple[Verdict, Cursor]:
  """Finishes rounds that waited for the distribution of a rejected draft.

  Args:
    p: `Table.p`.
    batch: the rows of the step; their payload is not read.
    verdict: of the step, leaves ``[M]``.
    distribution: ``[M]``.
    mesh: devices that share the table.
  Returns:
    The whole verdict, and the cursor after the round.
  """

  def run(_, p, slots, batch, verdict, distribution) -> tuple[Verdict, Cursor]:
    tested = Tested(verdict, batch.verified, p.at[slots].get(mode="promise_in_bounds"))
    side, verdict = finish_round(_side(batch), batch.draft, tested, distribution)
    return verdict, side.cursor

  return _in_groups(run, mesh)((), p, slots, batch, verdict, distribution)


def _in_groups(run: Callable[..., PyTree], mesh: Mesh | None) -> Callable[..., PyTree]:
  """``run(params, *rows)`` in each group of devices with its own slots and rows."""
  return run if mesh is None else meshes.over_rows(run, mesh)


def _keys(settings: RowSettings) -> Array:
  return jax.random.wrap_key_data(settings.keys, impl=KEY_KIND)


def _side(batch: Batch) -> TargetSide:
  """The target side of the rows; rows that are not verified count as finished, so their cursor stays."""
  cursor = batch.cursor._replace(live=batch.cursor.live & batch.verified)
  return TargetSide(cursor, _keys(batch.settings), batch.settings.max_len, ())
