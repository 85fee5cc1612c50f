"""The compiled programs of a server and the host arrays that they take: all shapes are chosen before any call comes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.codecs.sparse_distribution import SparseDistribution
from jaxspec.link.arrays import no_distributions, on_host
from jaxspec.models.conditions import Prompt
from jaxspec.models.guidance import Guided
from jaxspec.models.sampling import ModelParams, Sampling
from jaxspec.server import table as tables
from jaxspec.server.cuts import Cut
from jaxspec.server.kinds import StreamKind
from jaxspec.server.table import Batch, Judged, RowSettings, Table
from jaxspec.types import Array, Cache, Cursor, Draft, ModelFns, PyTree, Verdict
from jaxspec.verifiers.chunk import Chunk

MAX_END_TOKENS = 8
_SHORTEST_PROMPT = 8


class Sizes(NamedTuple):
  """The numbers that shapes are made of."""

  max_streams: int  # slots N
  max_rows: int  # rows M of a step
  max_len: int  # most tokens of a row
  widths: tuple[int, ...]  # ascending inputs W of a pass


class Settings(NamedTuple):
  """`RowSettings` of one row, and what the host alone needs of it."""

  row: RowSettings  # leaves without rows
  end_tokens: tuple[int, ...]


class Row(NamedTuple):
  """One row of a step."""

  slot: int
  settings: Settings
  cursor: Cursor  # leaves [1], round []
  cut: Cut
  tokens: np.ndarray  # [size] int32, what the cut reads
  features: np.ndarray | None = None  # [size, D] float32
  draft: Draft | None = None  # leaves [1, K, ...]; None: a forced row


@dataclasses.dataclass(frozen=True, eq=False)
class Programs:
  """Everything that a server compiles.

  Attributes:
    params: the target's parameters; every row brings sampling and guidance of its own instead of theirs.
    model: the target.
    kinds: kinds of streams.
    sizes: what shapes are made of.
    example: a condition of one row, of the largest length that is served.
  Raises:
    ValueError: for sizes or kinds that do not go together.
  """

  params: ModelParams
  model: ModelFns
  kinds: tuple[StreamKind, ...]
  sizes: Sizes
  example: PyTree

  def __post_init__(self):
    streams, rows, max_len, widths = self.sizes
    if min(streams, rows, max_len) < 1:
      raise ValueError(f"Must have max_streams, max_rows and max_len of at least 1, we instead got {self.sizes}")
    # Narrower passes are other products on some processors, and their bits may then depend on the row.
    if not widths or widths[0] < 8 or any(a >= b for a, b in zip(widths, widths[1:])) or any(rows * w % 8 for w in widths):
      raise ValueError(f"Must have ascending widths from 8 on, rows x width a multiple of 8, we instead got {widths}")
    if not self.kinds or len({kind.vocab for kind in self.kinds}) > 1:
      raise ValueError(f"Must have kinds of streams of one vocabulary, we instead got {len(self.kinds)}")
    for kind in self.kinds:
      if kind.window + 2 > widths[-1]:
        raise ValueError(f"Must have a width of at least {kind.window + 2} for this window, we instead got {widths}")
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

  @property
  def idle_slot(self) -> int:
    """The slot that nobody owns."""
    return self.sizes.max_streams

  def table(self) -> Table:
    """An empty table."""
    keeps_p = any(kind.may_request for kind in self.kinds)
    sizes = dict(num_slots=self.sizes.max_streams, num_cache_slots=self.num_cache_slots)
    return tables.init_table(self.model, **sizes, vocab=self.vocab if keeps_p else None)

  def condition(self, condition: PyTree) -> PyTree:
    """The condition in one of the lengths that are compiled: prompts are padded on the left, all others have one length.

    Raises:
      ValueError: for another kind of condition than the example, other arrays, or a prompt that is too long.
    """
    if type(condition) is not type(self.example) or condition.batch_size != 1:
      raise ValueError(f"Must have one row of {type(self.example).__name__}, we instead got {type(condition).__name__}")
    condition = jax.tree.map(np.asarray, condition)
    if isinstance(condition, Prompt):
      most, own = self.example.tokens.shape[1], condition.tokens.shape[1]
      if not 1 <= own <= most or not condition.mask.any():
        raise ValueError(f"Must have a prompt of 1 to {most} tokens, we instead got {int(condition.mask.sum())} in {own}")
      length = min(most, max(_SHORTEST_PROMPT, 1 << (own - 1).bit_length()))
      condition = Prompt(*(np.pad(leaf, ((0, 0), (length - own, 0))) for leaf in condition))
    else:
      for leaf, like in zip(jax.tree.leaves(condition), jax.tree.leaves(self.example)):
        if leaf.shape != like.shape:
          raise ValueError(f"Must have a condition of shapes {like.shape}, we instead got {leaf.shape}")
    return jax.tree.map(lambda leaf, like: leaf.astype(like.dtype), condition, self.example)

  def conditions(self) -> list[PyTree]:
    """The example in every length that is compiled."""
    example = self.condition(self.example)
    if not isinstance(example, Prompt):
      return [example]
    most = example.tokens.shape[1]
    lengths = [length for length in (_SHORTEST_PROMPT << power for power in range(most.bit_length())) if length < most]
    return [Prompt(*(leaf[:, -length:] for leaf in example)) for length in (*lengths, most)]

  def prefill(self, number: int, settings: Settings, condition: PyTree) -> tuple[Cache, int]:
    """Reads a `condition` of this class for a kind of stream; the row's cache, and token 0."""
    rows = jax.tree.map(lambda leaf: leaf[None], settings.row)
    kwargs = dict(model=self.model, num_cache_slots=self.num_cache_slots, widest=self.sizes.widths[-1])
    verifier = self.kinds[number].verifier(self.model)
    cache, first = tables.prefill(self.params, rows, condition, verifier=verifier, **kwargs)
    return cache, int(first[0])

  def insert(self, table: Table, row: Cache, slot: int) -> Table:
    """Writes a whole row into a slot; the table is donated."""
    return tables.insert(table, row, jnp.int32(slot), model=self.model)

  def row(self, table: Table, slot: int) -> Cache:
    """A copy of the cache of one slot."""
    return self.model.take(table.cache, jnp.full((1,), slot, jnp.int32))

  def step(self, table: Table, number: int, width: int, rows: Sequence[Row]) -> tuple[Table, Judged]:
    """Runs the program of a kind and a width for up to ``M`` rows; the table is donated.

    Returns:
      The table, and what was found, on the host.
    """
    kind = self.kinds[number]
    slots, batch = self.batch(kind, width, rows)
    statics = dict(model=self.model, verifier=kind.verifier(self.model), may_request=kind.may_request)
    table, judged = tables.step(self.params, table, slots, batch, **statics)
    return table, on_host(judged)

  def finish(
    self, table: Table, number: int, rows: Sequence[Row], verdicts: Sequence[Verdict], distributions: Sequence[PyTree]
  ) -> tuple[Verdict, Cursor]:
    """Ends rounds that wait for distributions.

    Args:
      rows: as they were judged.
      verdicts: what was found about each, leaves ``[1]``.
      distributions: `SparseDistribution` of each, leaves ``[1]``.
    Returns:
      Verdicts and cursors of the rows, on the host.
    """
    kind = self.kinds[number]
    slots, batch = self.batch(kind, self.sizes.widths[0], [row._replace(cut=Cut(0, 0, 0), tokens=()) for row in rows])
    verdict = _stack(verdicts, self.sizes.max_rows)
    distribution: SparseDistribution = no_distributions((self.sizes.max_rows,), kind.wire.codec.max_sent)
    for index, one in enumerate(distributions):
      _set_row(distribution, index, one)
    batch = batch._replace(draft=batch.draft._replace(payload=()))
    return on_host(tables.finish(table.p, slots, batch, verdict, distribution))

  def batch(self, kind: StreamKind, width: int, rows: Sequence[Row]) -> tuple[np.ndarray, Batch]:
    """Slots and `Batch` of up to ``M`` rows; the others are idle."""
    number = self.sizes.max_rows
    zeros = lambda *shape: np.zeros((number, *shape), np.int32)
    ones = np.ones(number, np.float32)
    slots = np.full(number, self.idle_slot, np.int32)
    settings = RowSettings(np.zeros((number, 2), np.uint32), zeros() + 1, zeros(), Sampling(ones, ones.copy()), ones.copy())
    end_tokens = np.full((number, MAX_END_TOKENS), -1, np.int32)
    cursor = Cursor(zeros(), zeros() + 1, np.zeros(number, bool), zeros(), end_tokens)
    draft, asked = kind.no_drafts(number), np.zeros(number, bool)
    features = np.zeros((number, width, kind.feature_width), np.float32) if kind.feature_width else ()
    chunk = Chunk(zeros(width), zeros(), zeros(), features)
    for index, row in enumerate(rows):
      slots[index] = row.slot
      _set_row(settings, index, jax.tree.map(lambda leaf: leaf[None], row.settings.row))
      for leaf, own in zip((cursor.last, cursor.length, cursor.live), row.cursor[:3]):
        leaf[index] = own[0]
      cursor.round[index] = row.cursor.round
      end_tokens[index, : len(row.settings.end_tokens)] = row.settings.end_tokens
      chunk.tokens[index, : len(row.tokens)] = row.tokens
      chunk.start[index] = row.cut.start
      if row.features is not None:
        features[index, : len(row.features)] = row.features
      if row.draft is not None:
        asked[index] = True
        chunk.skipped[index] = row.cursor.length[0] - 1 - row.cut.start
        _set_row(draft._replace(payload=()), index, row.draft)
    return slots, Batch(settings, cursor, draft._replace(payload=chunk), asked)


def row_of(tree: PyTree, index: int) -> PyTree:
  """One row of a tree with leaves ``[M, ...]``, as leaves ``[1, ...]``."""
  return jax.tree.map(lambda leaf: leaf[index : index + 1], tree)


def _set_row(tree: PyTree, index: int, row: PyTree) -> None:
  """Writes leaves ``[1, ...]`` into leaves ``[M, ...]``, in place."""

  def write(leaf: np.ndarray, own: Array) -> None:
    leaf[index] = own[0]

  jax.tree.map(write, tree, row)


def _stack(rows: Sequence[PyTree], number: int) -> PyTree:
  """Leaves ``[1, ...]`` of some rows as leaves ``[number, ...]``; the others repeat the first one."""
  rows = [*rows, *[rows[0]] * (number - len(rows))]
  return jax.tree.map(lambda *leaves: np.concatenate(leaves), *rows)
