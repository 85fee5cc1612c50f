"""Every distribution of small sizes comes back from its bits; lengths are the exact ceilings; refusals are typed."""

import dataclasses
import functools
import itertools
import math

import numpy as np
import pytest

from jaxspec.codecs.bit_costs import CODINGS, ceil_log2
from jaxspec.codecs.lattice import HALF_UNIT
from jaxspec.serving.wire.bitstream import BitReader, BitWriter, MessageError
from jaxspec.serving.wire.distribution_bits import Limits, Record, put_record, take_record

COUNTED = [coding for coding in CODINGS if coding != "half"]


def limits_of(coding, vocab, ell, max_support=None, sends_size=False, max_drafts=3):
  return Limits(vocab, ell, coding, max_support or vocab, max_drafts, sends_size)


def written(record, limits):
  writer = BitWriter()
  put_record(writer, record, limits)
  return writer.bytes(), writer.length


def read(data, limits, with_token=True):
  reader = BitReader(data)
  got = take_record(reader, limits, with_token=with_token)
  reader.finish()
  return got


def through(record, limits, with_token=True):
  data, length = written(record, limits)
  return read(data, limits, with_token), length


def distribution_of(record):
  return {token: count for token, count in zip(record.ids, record.counts) if count}


def compositions(total, size):
  bars = itertools.combinations(range(total + size - 1), size - 1)
  return [tuple(b - a - 1 for a, b in itertools.pairwise((-1, *c, total + size - 1))) for c in bars]


@functools.cache
def expected_bits(coding, limits, size, k):
  """Exact ceilings for a support of ``size`` tokens, k of positive count; written down once more."""
  vocab, ell = limits.vocab, limits.ell
  top = 0 if size == limits.max_support else ceil_log2(limits.max_support)
  head = ceil_log2(vocab) if limits.sends_size else 1 + top
  index = ceil_log2(k)
  if coding == "paper":
    return head + ceil_log2(math.comb(vocab, size)) + ceil_log2(math.comb(ell + size - 1, size - 1)) + index
  if coding == "trimmed":
    return ceil_log2(ell) + ceil_log2(math.comb(vocab, k)) + ceil_log2(math.comb(ell - 1, k - 1)) + index
  if coding == "dense":
    return ceil_log2(math.comb(ell + vocab - 1, ell)) + index
  if coding == "lazy":
    return ceil_log2(vocab) + ceil_log2(ell)
  return None


def cases(vocab, ell, step=1):
  every = itertools.count()
  for size in range(1, vocab + 1):
    for ids in itertools.combinations(range(vocab), size):
      for counts in compositions(ell, size):
        if next(every) % step == 0:
          yield ids, counts


def check_all(coding, vocab, ell, step, *, in_all_ways=True):
  """Every distribution with its first and its last token, in records with and without their size.

  If not ``in_all_ways``, one of the two tokens is in a record with the size and the other in one without, in turns; and
  codings that never send a size are not asked to.
  """
  limits = [limits_of(coding, vocab, ell, sends_size=sends) for sends in (False, True)]
  if not in_all_ways and coding not in ("paper", "rice"):
    limits = limits[:1] * 2
  # Distributions that differ by zeros alone have the same bits in some codings; equal bits are read once.
  reader_of = {limit: functools.cache(functools.partial(read, limits=limit)) for limit in limits}
  for number, (ids, counts) in enumerate(cases(vocab, ell, step)):
    distribution = {token: count for token, count in zip(ids, counts) if count}
    positive = list(distribution)
    ends = positive[0], positive[-1]
    ways = set(itertools.product(ends, limits) if in_all_ways else zip(ends, limits[:: 1 - number % 2 * 2]))
    for token, limit in ways:
      record = Record(ids, counts, ell, token)
      data, length = written(record, limit)
      got = reader_of[limit](data)
      assert got.token == token and got.total == ell and length <= limit.max_record_bits
      if coding == "lazy":
        assert distribution_of(got) == {token: distribution[token]}
      elif coding in ("paper", "rice"):
        assert got == record
      else:
        assert distribution_of(got) == distribution
      assert coding == "rice" or length == expected_bits(coding, limit, len(ids), len(positive))


@pytest.mark.parametrize("coding", COUNTED)
@pytest.mark.parametrize("vocab,ell", [(1, 1), (2, 3), (4, 4), (5, 2)])
def test_every_small_distribution_comes_back_at_the_exact_length(coding, vocab, ell):
  check_all(coding, vocab, ell, 1)


@pytest.mark.parametrize("coding", COUNTED)
def test_a_share_of_the_larger_ones(coding):
  check_all(coding, 8, 6, 997)


@pytest.mark.slow
@pytest.mark.usefixtures("each_rank_once")
@pytest.mark.parametrize("coding", COUNTED)
def test_every_distribution_up_to_seven_tokens_and_denominator_six(coding):
  for vocab, ell in itertools.product(range(1, 8), range(1, 7)):
    check_all(coding, vocab, ell, 1, in_all_ways=False)


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("sends_size", [False, True])
def test_large_random_distributions(coding, sends_size):
  generator = np.random.default_rng(0)
  vocab, ell = 50257, 100
  for size in (1, 8, 64, 200):
    limits = limits_of(coding, vocab, ell, vocab if coding == "dense" else 200, sends_size)
    ids = tuple(np.sort(generator.choice(vocab, size, replace=False)).tolist())
    probs = generator.dirichlet(np.full(size, 0.3))
    if coding == "half":
      counts = tuple((probs.astype(np.float16).astype(np.float64) * HALF_UNIT).astype(int).tolist())
    else:
      counts = tuple(generator.multinomial(ell, probs).tolist())
    record = Record(ids, counts, sum(counts), ids[int(np.argmax(counts))])
    got, length = through(record, limits)
    assert length <= limits.max_record_bits
    assert got.token == record.token and got.total == record.total
    if coding != "lazy":
      assert distribution_of(got) == distribution_of(record)
    if coding == "lazy":
      assert distribution_of(
        through(dataclasses.replace(record, token=None), limits, with_token=False)[0]
      ) == distribution_of(record)
    if coding == "rice" and size >= 64:
      subset = length - expected_bits(
        "paper", dataclasses.replace(limits, coding="paper"), size, len(distribution_of(record))
      )
      assert abs(subset) < 0.05 * math.log2(math.comb(vocab, size)) + 5


def test_records_of_our_own_are_checked():
  limits = limits_of("paper", 8, 4, 3)
  good = Record((1, 3, 5), (1, 0, 3), 4, 5)
  put_record(BitWriter(), good, limits)
  for bad in (
    dict(ids=(3, 1, 5)), dict(ids=(1, 3, 8)), dict(ids=(1, 3)), dict(counts=(1, 0, 2)), dict(counts=(2, -1, 3)),
    dict(token=3), dict(token=2), dict(total=5, counts=(1, 1, 3)), dict(ids=(0, 1, 2, 3), counts=(1, 1, 1, 1)),
  ):  # fmt: skip
    with pytest.raises(ValueError, match="Must have"):
      put_record(BitWriter(), dataclasses.replace(good, **bad), limits)


def test_non_canonical_bits_are_refused():
  writer = BitWriter()
  writer.put(1, 1)  # "smaller than the full support"
  writer.put(7, 3)  # and yet of full size
  with pytest.raises(MessageError, match="canonical"):
    take_record(BitReader(writer.bytes()), limits_of("paper", 8, 4))
  writer = BitWriter()
  writer.put(0, 1)
  writer.put(63, 6)  # C(8, 3) = 56 subsets
  with pytest.raises(MessageError, match="range"):
    take_record(BitReader(writer.bytes()), limits_of("paper", 8, 4, 3))
