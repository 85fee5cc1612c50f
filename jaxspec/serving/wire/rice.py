"""Rice coding of ascending ids: gaps in ``2^r`` steps by unary, the rest in r bits.

Within two per cent of ``log2 C(V, K)`` and linear in K, where enumerative coding needs integers of thousands of bits: the
better choice above about 128 tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jaxspec.serving.wire.bitstream import BitReader, BitWriter, require

PARAMETER_BITS = 4


def gaps(ids: Sequence[int]) -> list[int]:
  """Numbers skipped before each id."""
  return [right - left - 1 for left, right in zip([-1, *ids], ids)]


def best_parameter(skipped: Sequence[int]) -> int:
  """The r with the shortest code, the smallest of equals."""
  parameters = np.arange(1 << PARAMETER_BITS)
  lengths = (np.asarray(skipped, np.int64)[:, None] >> parameters).sum(axis=0) + len(skipped) * (1 + parameters)
  return int(np.argmin(lengths))


def put_ids(writer: BitWriter, ids: Sequence[int]) -> None:
  """Writes ascending ids."""
  skipped = gaps(ids)
  r = best_parameter(skipped)
  writer.put(r, PARAMETER_BITS)
  for gap in skipped:
    writer.unary(gap >> r)
    writer.put(gap & ((1 << r) - 1), r)


def take_ids(reader: BitReader, size: int, vocab: int) -> list[int]:
  """Reads ``size`` ascending ids below ``vocab``."""
  r = reader.take(PARAMETER_BITS)
  ids, newest = [], -1
  for _ in range(size):
    newest += (reader.unary() << r) + reader.take(r) + 1
    require(newest < vocab, "range", f"token {newest} outside of the vocabulary")
    ids.append(newest)
  require(best_parameter(gaps(ids)) == r, "canonical", f"parameter {r} is not the shortest")
  return ids


def max_bits(size: int, vocab: int) -> int:
  """No set of at most ``size`` ids needs more: with ``2^r <= V / K`` the code has fewer than K (r + 3) bits."""
  return PARAMETER_BITS + 18 * size + (vocab >> 15)
