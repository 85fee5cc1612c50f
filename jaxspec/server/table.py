"""A table of rows, and the steps that compute a few of them: pure functions of fixed shape.

The table holds the caches of ``N`` slots, and one more slot that nobody owns. A step gathers ``M`` slots, runs one pass of
``W`` inputs over them, and writes ``W`` cache slots of each back. So a step costs what ``M`` rows cost, whatever ``N`` is.

Everything else about a row is small and stays on the host: its cursor, its key, its sampling parameters. A `Batch` brings
it. The state of a row on the device is its cache alone, which can be made again from its tokens.

Rows of a step are *asked* (their drafts are judged and their cursor moves), *forced* (they read committed tokens) or *idle*
(in the slot that nobody owns).
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxspec import drafts, rng
from jaxspec.codecs.sparse_distribution import SparseDistribution
from jaxspec.decode.loop import verify_round
from jaxspec.decode.state import TargetSide
from jaxspec.link.cloud import KEY_KIND
from jaxspec.link.lazy import Tested, finish_round, judge_round
from jaxspec.models.guidance import Guided
from jaxspec.models.sampling import ModelParams, Sampling
from jaxspec.types import Array, Cache, Cursor, Draft, ModelFns, PyTree, Verdict, Verifier
from jaxspec.verifiers.chunk import ChunkState


class Table(NamedTuple):
  """What the device holds of all streams."""

  cache: Cache  # of N + 1 rows; the last one is idle
  p: PyTree  # [N + 1, V] float32, target distributions of rows that wait for one of the draft side; () if none ever do


class RowSettings(NamedTuple):
  """Settings of every row that do not change."""

  keys: Array  # [M, 2] uint32, data of threefry2x32 row keys
  max_len: Array  # [M] int32
  prefix_len: Array  # [M] int32
  sampling: Sampling  # leaves [M] float32
  scale: Array  # [M] float32, guidance; not read by a model without


class Batch(NamedTuple):
  """The ``M`` rows of a step, as they come from the host."""

  settings: RowSettings
  cursor: Cursor  # leaves [M], end tokens [M, E]
  draft: Draft  # leaves [M, K, ...], payload a `Chunk` of [M, W]
  asked: Array  # [M] bool


class Judged(NamedTuple):
  """What a step found, one of each for its ``M`` rows; valid where a row was asked."""

  verdict: Verdict
  asks: Array  # [M] bool, the last token waits for the distribution of the rejected draft
  cursor: Cursor  # after the round; not valid where ``asks``
  finite: Array  # [M] bool, no logit was NaN or +inf
  bits: Array  # [M] uint32, a sum over the bits of the logits


def init_table(model: ModelFns, *, num_slots: int, num_cache_slots: int, vocab: int | None) -> Table:
  """An empty table.

  Args:
    num_slots: N.
    num_cache_slots: cache slots of a row, at least those of the condition, of its tokens, and of the widest pass.
    vocab: V where rows may wait for distributions, else None.
  Raises:
    ValueError: for a model whose caches no table can hold.
  """
  if model.take is None or model.put is None:
    raise ValueError("Must have a model with `take` and `put` for its caches to serve it, we instead got one without")
  p = () if vocab is None else jnp.zeros((num_slots + 1, vocab), jnp.float32)
  return Table(model.init_cache(num_slots + 1, num_cache_slots), p)


def of_rows(params: ModelParams, settings: RowSettings) -> ModelParams:
  """The target's parameters with the sampling and guidance of every row."""
  model = params.model._replace(scale=settings.scale) if isinstance(params.model, Guided) else params.model
  return params._replace(model=model, sampling=settings.sampling)


@functools.partial(jax.jit, static_argnames=("model", "verifier", "num_cache_slots", "widest"))
def prefill(
  params: ModelParams, settings: RowSettings, condition: PyTree, *, model: ModelFns, verifier: Verifier,
  num_cache_slots: int, widest: int,
) -> tuple[Cache, Array]:  # fmt: skip
  """Reads the condition of one row; a new length of conditions compiles a new program.

  Args:
    settings: of one row.
    num_cache_slots: those of a row of the table.
    widest: most inputs of a pass.
  Returns:
    The row's cache, zeros after the condition, and token 0 ``[1]`` int32.
  """
  keys = rng.stream_keys(_keys(settings), rng.Stream.FIRST, jnp.int32(0))
  max_len = num_cache_slots - model.prefix_len(condition) - widest
  verdict, state = verifier.init(of_rows(params, settings), keys, condition, max_len, widest)
  return state.cache, verdict.next_token


@functools.partial(jax.jit, static_argnames=("model",), donate_argnames=("table",))
def insert(table: Table, row: Cache, slot: Array, *, model: ModelFns) -> Table:
  """Writes a whole row into ``slot []`` int32, so that nothing of its last owner stays. The table is donated."""
  return table._replace(cache=model.put(table.cache, row, slot[None]))


@functools.partial(jax.jit, static_argnames=("model", "verifier", "may_request"), donate_argnames=("table",))
def step(
  params: ModelParams, table: Table, slots: Array, batch: Batch, *, model: ModelFns, verifier: Verifier, may_request: bool
) -> tuple[Table, Judged]:
  """One pass over ``M`` rows. The table is donated.

  Args:
    slots: ``[M]`` int32; no slot but the idle one occurs twice.
    batch: the rows. Its shapes, hence the program, do not depend on who waits.
    verifier: a `jaxspec.verifiers.chunk.chunk_target`; it returns logits where ``may_request``.
    may_request: static; whether verdicts may wait for distributions (`finish`).
  """
  settings, chunk = batch.settings, batch.draft.payload
  unseen = jnp.zeros(slots.shape, jnp.uint32)
  state = ChunkState(model.take(table.cache, slots), settings.prefix_len, unseen == 0, unseen)
  side = _side(batch).replace(verifier=state)
  p, asks = table.p, jnp.zeros(slots.shape, bool)
  if may_request:
    side, tested = judge_round(of_rows(params, settings), side, batch.draft, verifier=verifier)
    verdict, asks = tested.verdict, tested.asks
    p = p.at[slots].set(tested.p, mode="promise_in_bounds")
    cursor = drafts.advance(side.cursor, batch.draft, verdict, settings.max_len)
  else:
    side, verdict = verify_round(of_rows(params, settings), side, batch.draft, verifier=verifier)
    verdict, cursor = verdict._replace(feedback=()), side.cursor
  state = side.verifier
  cache = model.put(table.cache, state.cache, slots, settings.prefix_len + chunk.start, chunk.tokens.shape[1])
  return Table(cache, p), Judged(verdict, asks, cursor, state.finite, state.bits)


@jax.jit
def finish(
  p: Array, slots: Array, batch: Batch, verdict: Verdict, distribution: SparseDistribution
) -> tuple[Verdict, Cursor]:
  """Ends rounds that waited for the distribution of a rejected draft.

  Args:
    p: `Table.p`.
    batch: the rows as they were judged; their payload is not read.
    verdict: what the step found about them, leaves ``[M]``.
    distribution: ``[M]``.
  Returns:
    The whole verdict, and the cursor after the round.
  """
  tested = Tested(verdict, batch.asked, p.at[slots].get(mode="promise_in_bounds"))
  side, verdict = finish_round(_side(batch), batch.draft, tested, distribution)
  return verdict, side.cursor


def _keys(settings: RowSettings) -> Array:
  return jax.random.wrap_key_data(settings.keys, impl=KEY_KIND)


def _side(batch: Batch) -> TargetSide:
  """The target side of the rows; those that are not asked count as finished, so nothing moves in them."""
  cursor = batch.cursor._replace(live=batch.cursor.live & batch.asked)
  return TargetSide(cursor, _keys(batch.settings), batch.settings.max_len, ())
