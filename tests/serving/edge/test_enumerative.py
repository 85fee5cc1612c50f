"""Enumerative coding: vectors, exhaustive bijections, large random cases."""

import itertools
import math

import numpy as np
import pytest

from jaxspec.serving.wire import enumerative


def test_vectors():
  assert enumerative.rank_subset([0, 2, 3]) == 2
  assert enumerative.rank_subset([1, 5, 7, 40]) == 91436
  assert enumerative.rank_composition([5, 3, 2]) == 41 and math.comb(12, 2) == 66
  assert enumerative.rank_composition([1, 0, 0, 2]) == 3 and math.comb(6, 3) == 20


@pytest.mark.parametrize("universe", range(1, 10))
def test_subsets_are_numbered_without_gaps(universe):
  for size in range(1, universe + 1):
    numbers = sorted(enumerative.rank_subset(c) for c in itertools.combinations(range(universe), size))
    assert numbers == list(range(math.comb(universe, size)))
    for c in itertools.combinations(range(universe), size):
      assert tuple(enumerative.unrank_subset(enumerative.rank_subset(c), universe, size)) == c


@pytest.mark.parametrize("size,total", [(1, 0), (1, 4), (2, 5), (4, 3), (5, 6), (7, 2)])
def test_compositions_and_multisets_are_numbered_without_gaps(size, total):
  counts = [c for c in itertools.product(range(total + 1), repeat=size) if sum(c) == total]
  for rank in (enumerative.rank_composition, lambda c: enumerative.rank_multiset(range(size), c)):
    assert sorted(map(rank, counts)) == list(range(math.comb(total + size - 1, total)))
  for c in counts:
    assert enumerative.unrank_composition(enumerative.rank_composition(c), total, size) == list(c)
    ids, positive = enumerative.unrank_multiset(enumerative.rank_multiset(range(size), c), size, total)
    assert dict(zip(ids, positive)) == {token: count for token, count in enumerate(c) if count}


@pytest.mark.parametrize("size", [1, 2, 8, 64, 150])
def test_large_subsets_come_back(size):
  generator = np.random.default_rng(size)
  for vocab in (size, size + 1, 16384, 128256):
    for _ in range(3):
      members = np.sort(generator.choice(vocab, size, replace=False)).tolist()
      assert enumerative.unrank_subset(enumerative.rank_subset(members), vocab, size) == members
    cases = math.comb(vocab, size)
    for rank in {0, 1 % cases, cases // 2, cases - 1}:
      assert enumerative.rank_subset(enumerative.unrank_subset(rank, vocab, size)) == rank
