"""The determinism check: all compiled programs read one fixed row, on the real weights, before the port opens.

1. Every program reads the row. The digest of the bits of its logits and of its cache identifies the numerics: servers of
   equal digests reply with equal bytes.
2. The row is read as the first and as the last one among rows of zeros, noise and NaN. If a bit differs, rows depend on each
   other. On a mesh these are the first and the last group of devices, so the check compares the groups too.
3. The row is read again in other chunks and widths. If no bit differs, a replay may use any chunks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from jaxspec.core.mesh import MeshSizes
from jaxspec.core.types import Cache, PyTree, Verdict
from jaxspec.sampling.logit_processing import Sampling
from jaxspec.serving.server.cache_table import RowSettings
from jaxspec.serving.server.chunking import ChunkSpan, narrowest
from jaxspec.serving.server.digests import environment
from jaxspec.serving.server.server_programs import Programs
from jaxspec.serving.server.step_arrays import Row, Settings
from jaxspec.serving.server.stream_state import cursor_at
from jaxspec.serving.wire.arrays import host_array

NUMERICS = ("exact", "fast")
_NEIGHBOURS = ("zeros", "noise", "nan")


class Determinism(NamedTuple):
  """Result of the check."""

  digest: bytes  # SHA-256
  is_exact: bool  # a row depends on no other row
  replay_in_chunks: bool  # nor on its chunks


class _Pass(NamedTuple):
  """The bits of the results of a pass."""

  logits: int
  cache: bytes  # of the condition and the tokens


def check_determinism(programs: Programs, numerics: str = "exact") -> Determinism:
  """Runs all programs; this compiles them.

  Args:
    numerics: ``exact`` or ``fast``.
  Raises:
    ValueError: with ``exact``, if rows depend on each other; for another ``numerics``.
  """
  if numerics not in NUMERICS:
    raise ValueError(f"Must have numerics in {', '.join(NUMERICS)}, we instead got {numerics!r}")
  found = _DeterminismCheck(programs).run()
  if numerics == "exact" and not found.is_exact:
    raise ValueError(
      "Must have rows that do not depend on other rows of a step for exact numerics, we instead got other bits beside other "
      "rows; numerics 'fast' serves such programs"
    )
  return found


class _DeterminismCheck:
  """The passes of the check over one row, in a table of its own."""

  def __init__(self, programs: Programs):
    self._programs = programs
    sizes = programs.sizes
    self._prefix = programs.max_condition
    number, size = (lambda value: host_array(np.float32(value))), (lambda value: host_array(np.int32(value)))
    row = RowSettings(
      host_array(np.array([1, 2], np.uint32)), size(sizes.max_len), size(self._prefix), Sampling(number(1), number(1)),
      number(1.5),
    )  # fmt: skip
    self._settings = Settings(row, ())
    length = min(sizes.max_len, 2 * sizes.widths[-1])
    self._tokens = ((7 * np.arange(length) + 3) % programs.vocab).astype(np.int32)
    self._row = programs.one_of(programs.prefill(0, self._settings, programs.conditions()[-1])[0])
    self._table = programs.table()

  def run(self) -> Determinism:
    """All three parts."""
    digest = hashlib.sha256(_environment(self._programs).encode())
    is_exact, last = True, []
    for number, profile in enumerate(self._programs.profiles):
      for condition in self._programs.conditions():
        row, first = self._programs.prefill(number, self._settings, condition)
        digest.update(first.to_bytes(4, "big") + _bits_of(self._programs.one_of(row)))
      for width in self._programs.sizes.widths:
        alone = self._pass(number, width, at=0, neighbours="")
        digest.update(alone.logits.to_bytes(4, "big") + alone.cache)
        is_exact &= all(
          self._pass(number, width, at=at, neighbours=beside) == alone
          for beside in _NEIGHBOURS
          for at in (0, self._programs.sizes.max_rows - 1)
        )
      last.append(self._is_free_of_chunks(number))
      if profile.may_request:
        digest.update(self._finished(number).to_bytes(4, "big"))
    return Determinism(digest.digest(), is_exact, is_exact and all(last))

  def _pass(self, number: int, width: int, *, at: int, neighbours: str) -> _Pass:
    """The first tokens in one pass. The row is the first one of the step, in the first slot (``at`` 0), or the last one."""
    sizes = self._programs.sizes
    slot = sizes.max_streams - 1 if at else 0
    span = ChunkSpan(0, min(width, len(self._tokens)), width)
    rows = []
    for other in self._others(slot) if neighbours else ():
      self._insert(_like(self._row, neighbours, other), other)
      tokens = (self._tokens[: span.size] * (other + 2) + other) % self._programs.vocab
      rows.append(self._verified(number, other, span, tokens))
    self._insert(self._row, slot)
    position = len(rows) if at else 0
    rows.insert(position, self._verified(number, slot, span, self._tokens[: span.size]))
    self._table, found = self._programs.step(self._table, number, width, rows)
    return _Pass(int(found.bits[position]), self._read(slot, span.size))

  def _others(self, slot: int) -> list[int]:
    """Slots for all other rows of a step, in ascending order."""
    sizes, found = self._programs.sizes, []
    for first in range(0, sizes.max_streams, sizes.slots_of_group):
      others = [other for other in range(first, first + sizes.slots_of_group) if other != slot]
      found += others[: sizes.rows_of_group - (len(others) < sizes.slots_of_group)]
    return found

  def _insert(self, row: Cache, slot: int) -> None:
    self._table = self._programs.insert(self._table, self._programs.copies(row), slot)

  def _finished(self, number: int) -> int:
    """The token that ends a round with a requested distribution, after the last pass."""
    zeros = lambda dtype: host_array(np.zeros(1, dtype))
    verdict = Verdict.one(zeros(np.int32), zeros(np.int32), is_drafted=zeros(bool)[:, None])
    row = self._verified(number, 0, ChunkSpan(0, 1, self._programs.sizes.widths[0]), self._tokens[:1])
    distribution = self._programs.profiles[number].no_requested(1)
    found, _ = self._programs.finish(self._table, number, [row], [verdict], [distribution])
    return int(found.next_tokens[0, 0])

  def _verified(self, number: int, slot: int, span: ChunkSpan, tokens: np.ndarray) -> Row:
    """A row whose last tokens are verified as drafts, so that the bits contain as many logits as possible."""
    draft = self._programs.profiles[number].no_drafts(1)
    drafted = min(self._programs.profiles[number].window, span.size - 1)
    draft.tokens[0, :drafted] = tokens[span.size - drafted :]
    draft.num_drafted[0] = drafted
    cursor = cursor_at(int(tokens[span.size - drafted - 1]), span.start + span.size - drafted, live=True, round_=1)
    return Row(slot, self._settings, cursor, span, tokens.astype(np.int32), draft=draft)

  def _is_free_of_chunks(self, number: int) -> bool:
    """Whether the tokens give the same cache and the same last logits in any chunks."""
    widths, length = self._programs.sizes.widths, len(self._tokens)
    left = []
    for sizes in ([widths[-1]], *([width] for width in widths), [3, 1, widths[0], 5]):
      self._insert(self._row, 0)
      left.append(self._read_in(number, sizes, length))
    return all(other == left[0] for other in left)

  def _read_in(self, number: int, sizes: Sequence[int], length: int) -> _Pass:
    """Reads the tokens in passes of these sizes in turn; the logits are those after the last token."""
    start, turn, bits = 0, 0, 0
    while start < length:
      size = min(sizes[turn % len(sizes)], length - start)
      span = ChunkSpan(start, size, narrowest(size, self._programs.sizes.widths))
      row = self._verified(number, 0, span, self._tokens[start : start + size])
      if start + size == length:  # the last token alone, so that passes of all sizes are compared
        row = self._last_only(row, number)
      self._table, found = self._programs.step(self._table, number, span.width, [row])
      start, turn, bits = start + size, turn + 1, int(found.bits[0])
    return _Pass(bits, self._read(0, length))

  def _last_only(self, row: Row, number: int) -> Row:
    """The same pass without drafts."""
    cursor = cursor_at(int(row.tokens[-1]), row.span.start + row.span.size, live=True, round_=1)
    return row._replace(cursor=cursor, draft=self._programs.profiles[number].no_drafts(1))

  def _read(self, slot: int, size: int) -> bytes:
    """The cache of a slot up to its first ``size`` tokens."""
    return _bits_of(self._programs.row(self._table, slot), self._prefix + size)


def _bits_of(cache: Cache, length: int | None = None) -> bytes:
  """The leaves of a cache, ``[.., S, D]`` or ``[B, S]``, of their cache slots the first ``length``."""
  leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(cache)]
  first = lambda leaf: leaf[:, :length] if leaf.ndim == 2 else leaf[..., :length, :]
  return b"".join(np.ascontiguousarray(first(leaf)).tobytes() for leaf in leaves)


def _like(row: Cache, kind: str, seed: int) -> Cache:
  """A row of the same arrays, of zeros, noise or NaN; masks stay."""
  generator = np.random.default_rng(seed)

  def fill(leaf: PyTree) -> np.ndarray:
    leaf = np.asarray(leaf)
    if leaf.dtype == bool:
      return leaf
    values = np.zeros(leaf.shape) if kind == "zeros" else generator.normal(size=leaf.shape)
    values = np.full(leaf.shape, np.nan) if kind == "nan" else values
    if leaf.dtype == np.uint16:  # bfloat16 as its bits
      return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return values.astype(leaf.dtype)

  return jax.tree.map(fill, row)


def _environment(programs: Programs) -> str:
  """What affects the bits besides the programs."""
  mesh = [] if programs.mesh is None else [str(MeshSizes(**programs.mesh.shape))]
  return "\n".join([environment(), *mesh])
