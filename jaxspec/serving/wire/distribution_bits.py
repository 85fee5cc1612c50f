"""A drafted token and its distribution as bits. `jaxspec.codecs.bit_costs` describes the codings.

Fields, in order:

* paper: size, rank of the support, rank of the counts, index;
* rice: size, Rice code of the support, rank of the counts, index;
* trimmed: number k of positive counts minus 1, rank of their support, rank of ``counts - 1``, index;
* dense: rank of the multiset over the whole vocabulary, index;
* lazy: token, its count minus 1;
* half: size, Rice code of the support (nothing where it is the whole vocabulary), 16 bits per weight, index.

The index counts the tokens of positive count, because no other token can be drawn. The size of a support by threshold takes
``ceil(log2 V)`` bits. A support of fixed size takes one bit, and its size follows only where it is smaller.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import TYPE_CHECKING

import numpy as np

from jaxspec.codecs.bit_costs import HALF_UNIT, ceil_log2, lattice_width, subset_width
from jaxspec.serving.wire import enumerative, rice
from jaxspec.serving.wire.bitstream import BitReader, BitWriter, require

if TYPE_CHECKING:
  from jaxspec.codecs.codec import SparseCodec


@dataclasses.dataclass(frozen=True)
class Record:
  """A drafted token and its distribution; ``token`` is None in a message that brings a distribution only."""

  ids: tuple[int, ...]  # ascending
  counts: tuple[int, ...]
  total: int
  token: int | None

  def need_token(self) -> int:
    """The drafted token.

    Raises:
      ValueError: for a record that has only a distribution.
    """
    if self.token is None:
      raise ValueError("Must have a record of a drafted token, we instead got a distribution alone")
    return self.token


@dataclasses.dataclass(frozen=True)
class Limits:
  """The limits of records and replies, equal at both ends; nothing outside of them is decoded.

  Attributes:
    vocab: tokens V.
    ell: lattice denominator.
    coding: see `jaxspec.codecs.bit_costs`.
    max_support: most tokens of a support. The work on big integers is about ``max_support^2`` machine operations a record.
    max_drafts: records of a message.
    sends_size: whether the size of a support is sent (supports by threshold).
  """

  vocab: int
  ell: int
  coding: str
  max_support: int
  max_drafts: int
  sends_size: bool

  def __post_init__(self):
    if not (0 <= self.max_drafts < 1 << 16 and 0 < self.ell < 1 << 16):
      raise ValueError(f"Must have drafts and ell below 65536, we instead got {self.max_drafts} and {self.ell}")

  @classmethod
  def of(cls, codec: SparseCodec, window: int) -> Limits:
    """The limits of a codec with at most ``window`` drafts per round.

    Raises:
      ValueError: for more drafts, or a larger denominator, than a header holds.
    """
    from jaxspec.codecs.conformal import Conformal  # a process that only checks frames needs no JAX

    by_threshold = isinstance(codec.sparsifier, Conformal)
    return cls(codec.vocab, codec.ell, codec.coding, codec.max_support, window, by_threshold)

  @functools.cached_property
  def max_record_bits(self) -> int:
    """No record is longer."""
    size, vocab = self.max_support, self.vocab
    head = 2 * ceil_log2(vocab) + 1
    if self.coding == "lazy":
      return ceil_log2(vocab) + ceil_log2(self.ell)
    if self.coding == "dense":
      return head + ceil_log2(math.comb(self.ell + vocab - 1, self.ell))
    if self.coding == "half":
      return head + rice.max_bits(size, vocab) + 16 * size
    subset = rice.max_bits(size, vocab) if self.coding == "rice" else subset_width(vocab, min(size, vocab // 2))
    return head + ceil_log2(self.ell) + subset + lattice_width(self.ell, size)


def put_record(writer: BitWriter, record: Record, limits: Limits) -> None:
  """Writes a record.

  Raises:
    ValueError: if it is not a distribution within the limits, or its token has no weight.
  """
  check_record(record, limits)
  ids, counts = record.ids, record.counts
  positive = [(token, count) for token, count in zip(ids, counts) if count > 0]
  kept, weights = [token for token, _ in positive], [count for _, count in positive]
  if limits.coding == "lazy" and record.token is not None:
    writer.put(record.token, ceil_log2(limits.vocab))
    writer.put(weights[kept.index(record.token)] - 1, ceil_log2(limits.ell))
    return
  if limits.coding in ("paper", "rice"):
    _put_size(writer, len(ids), limits)
    if limits.coding == "paper":
      writer.put(enumerative.rank_subset(ids), subset_width(limits.vocab, len(ids)))
    else:
      rice.put_ids(writer, ids)
    writer.put(enumerative.rank_composition(counts), lattice_width(limits.ell, len(ids)))
  elif limits.coding == "dense":
    writer.put(enumerative.rank_multiset(kept, weights), ceil_log2(math.comb(limits.ell + limits.vocab - 1, limits.ell)))
  elif limits.coding == "half":
    _put_size(writer, len(ids), limits)
    if len(ids) < limits.vocab:
      rice.put_ids(writer, ids)
    for bits in (np.asarray(counts, np.float32) / HALF_UNIT).astype(np.float16).view(np.uint16).tolist():
      writer.put(bits, 16)
  else:  # trimmed, and the distribution of a lazy message
    writer.put(len(kept) - 1, ceil_log2(limits.ell))
    writer.put(enumerative.rank_subset(kept), subset_width(limits.vocab, len(kept)))
    spare = limits.ell - len(kept)
    writer.put(enumerative.rank_composition([count - 1 for count in weights]), lattice_width(spare, len(kept)))
  if record.token is not None:
    writer.put(kept.index(record.token), ceil_log2(len(kept)))


def take_record(reader: BitReader, limits: Limits, *, with_token: bool = True) -> Record:
  """Reads a record.

  Raises:
    MessageError: if the bits are not the one code of a distribution within the limits.
  """
  vocab, ell, total = limits.vocab, limits.ell, limits.ell
  if limits.coding == "lazy" and with_token:
    token = reader.below(vocab, ceil_log2(vocab), "token")
    return Record((token,), (reader.below(ell, ceil_log2(ell), "count") + 1,), ell, token)
  if limits.coding in ("paper", "rice"):
    size = _take_size(reader, limits)
    if limits.coding == "paper":
      rank = reader.below(math.comb(vocab, size), subset_width(vocab, size), "rank of a support")
      ids = enumerative.unrank_subset(rank, vocab, size)
    else:
      ids = rice.take_ids(reader, size, vocab)
    cases = math.comb(ell + size - 1, size - 1)
    rank = reader.below(cases, lattice_width(ell, size), "rank of counts")
    counts = enumerative.unrank_composition(rank, ell, size)
  elif limits.coding == "dense":
    cases = math.comb(ell + vocab - 1, ell)
    rank = reader.below(cases, ceil_log2(cases), "rank of a multiset")
    ids, counts = enumerative.unrank_multiset(rank, vocab, ell)
    require(len(ids) <= limits.max_support, "range", f"support of {len(ids)} tokens, {limits.max_support} agreed")
  elif limits.coding == "half":
    size = _take_size(reader, limits)
    ids = rice.take_ids(reader, size, vocab) if size < vocab else list(range(vocab))
    patterns = reader.halves(size)
    require(int(patterns.max()) <= 0x3C00, "range", "weight outside of [0, 1]")  # the pattern of 1.0; no sign, no NaN
    counts = (patterns.view(np.float16).astype(np.float64) * HALF_UNIT).astype(np.int64).tolist()
    total = sum(counts)
    require(0 < total < 2 * HALF_UNIT, "range", f"weights add up to {total / HALF_UNIT}")
  else:
    size = reader.below(min(ell, vocab), ceil_log2(ell), "number of positive counts") + 1
    require(size <= limits.max_support, "range", f"support of {size} tokens, {limits.max_support} agreed")
    rank = reader.below(math.comb(vocab, size), subset_width(vocab, size), "rank of a support")
    ids = enumerative.unrank_subset(rank, vocab, size)
    cases = math.comb(ell - 1, size - 1)
    rank = reader.below(cases, ceil_log2(cases), "rank of counts")
    counts = [count + 1 for count in enumerative.unrank_composition(rank, ell - size, size)]
  token = None
  if with_token:
    positive = [token for token, count in zip(ids, counts) if count > 0]
    token = positive[reader.below(len(positive), ceil_log2(len(positive)), "index of the token")]
  return Record(tuple(ids), tuple(counts), total, token)


def check_record(record: Record, limits: Limits) -> None:
  """Raises a ValueError if a record of our own is not a distribution within the limits."""
  ids, counts = record.ids, record.counts
  if not 1 <= len(ids) == len(counts) <= limits.max_support:
    raise ValueError(f"Must have 1 to {limits.max_support} tokens and as many counts, we instead got {len(ids)}")
  if ids[0] < 0 or ids[-1] >= limits.vocab or any(left >= right for left, right in zip(ids, ids[1:])):
    raise ValueError(f"Must have ascending tokens below {limits.vocab}, we instead got {ids}")
  if min(counts) < 0 or sum(counts) != record.total or record.total < 1:
    raise ValueError(f"Must have counts that add up to {record.total}, we instead got {counts}")
  if limits.coding != "half" and record.total != limits.ell:
    raise ValueError(f"Must have counts that add up to ell = {limits.ell}, we instead got {record.total}")
  if record.token is not None and (record.token not in ids or counts[ids.index(record.token)] < 1):
    raise ValueError(f"Must have a token of positive count, we instead got {record.token}")


def _put_size(writer: BitWriter, size: int, limits: Limits) -> None:
  if limits.sends_size:
    writer.put(size - 1, ceil_log2(limits.vocab))
    return
  writer.put(size < limits.max_support, 1)
  if size < limits.max_support:
    writer.put(size - 1, ceil_log2(limits.max_support))


def _take_size(reader: BitReader, limits: Limits) -> int:
  if limits.sends_size:
    return reader.below(limits.max_support, ceil_log2(limits.vocab), "size of a support") + 1
  if not reader.take(1):
    return limits.max_support
  size = reader.take(ceil_log2(limits.max_support)) + 1
  require(size < limits.max_support, "canonical", "a full support is announced as a smaller one")
  return size
