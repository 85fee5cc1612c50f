"""Enumerative coding: subsets and compositions as integers, by exact arithmetic.

The rank of a subset ``c_1 < .. < c_K`` in the combinatorial number system (colexicographic order) is ``sum_i C(c_i, i)``,
below ``C(V, K)``. Unranking takes, for i = K .. 1, the largest c with ``C(c, i) <= rank``. Integers walk to it, one
multiplication and one exact division per step. Where it may be far away, floating point first guesses it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

_DENSE = 8  # numbers below the universe for each member, up to which a walk is faster than guesses
_FAR = 2  # times the position


def rank_subset(members: Sequence[int]) -> int:
  """Rank of an ascending subset of ``0, 1, ...``.

  >>> rank_subset([1, 5, 7, 40])
  91436
  """
  return sum(math.comb(member, position) for position, member in enumerate(members, start=1))


def unrank_subset(rank: int, universe: int, size: int) -> list[int]:
  """The subset of ``size`` numbers below ``universe`` with this rank; inverse of `rank_subset`.

  Args:
    rank: non-negative and below ``C(universe, size)``.
  """
  return (_walked if universe < _DENSE * size else _jumped)(rank, universe, size)


def _walked(rank: int, universe: int, size: int) -> list[int]:
  """`unrank_subset` of numbers close to each other: one step for each number that is skipped or taken."""
  members, number, value = [0] * size, universe - 1, math.comb(universe - 1, size)
  for position in range(size, 0, -1):
    while value > rank:
      value = value * (number - position) // number
      number -= 1
    members[position - 1] = number
    rank -= value
    # C(number - 1, position - 1), of the next smaller number and position; the first number 0 leaves nothing to divide.
    value = value * position // number if value else math.comb(max(number - 1, 0), position - 1)
    number -= 1
  return members


def _jumped(rank: int, universe: int, size: int) -> list[int]:
  """`unrank_subset` of numbers far from each other: a guess for each."""
  members = [0] * size
  for position in range(size, 0, -1):
    universe, value = _largest(rank, position, universe)
    members[position - 1] = universe
    rank -= value
  return members


def _largest(rank: int, position: int, below: int) -> tuple[int, int]:
  """The largest c < below with ``C(c, position) <= rank``, and that binomial."""
  if rank == 0:
    return position - 1, 0
  if position == 1:
    return min(rank, below - 1), min(rank, below - 1)
  guess = min(max(int(_guess(math.log(rank), position)), position), below - 1)
  value = math.comb(guess, position)
  while value > rank:
    value = value * (guess - position) // guess
    guess -= 1
  while guess + 1 < below:
    more = value * (guess + 1) // (guess + 1 - position) if guess >= position else 1
    if more > rank:
      break
    value, guess = more, guess + 1
  return guess, value


def _guess(log_rank: float, position: int) -> float:
  """Approximate c with ``ln C(c, position) = log_rank``.

  The factors of the binomial lie around their middle m by ``d_j``, and ``sum_j ln(m + d_j) = position ln m - sum_j d_j^2 /
  (2 m^2) - ..``. Where m is much larger than the position, this is exact to a small part of 1; else two Newton steps on the
  log-gamma function follow.
  """
  log_factorial = math.lgamma(position + 1)
  middle = math.exp((log_rank + log_factorial) / position)
  c = middle + (position * position - 1) / (24 * middle) + (position - 1) / 2
  if middle > _FAR * position:
    return c
  for _ in range(2):
    c = max(c, position)
    excess = math.lgamma(c + 1) - math.lgamma(c - position + 1) - log_factorial - log_rank
    c -= excess / math.log((c + 0.5) / (c - position + 0.5))
  return c


def rank_composition(counts: Sequence[int]) -> int:
  """Rank of non-negative counts among those with the same length and sum: that of the subset of bar positions.

  The bars between K counts stand at ``s_j = sum_{i<=j} (b_i + 1) - 1``, j = 1 .. K - 1, below ``sum + K - 1``.

  >>> rank_composition([5, 3, 2]), rank_composition([1, 0, 0, 2])
  (41, 3)
  """
  bars, position = [], -1
  for count in counts[:-1]:
    position += count + 1
    bars.append(position)
  return rank_subset(bars)


def unrank_composition(rank: int, total: int, size: int) -> list[int]:
  """Counts of length ``size`` and sum ``total`` with this rank, below ``C(total + size - 1, size - 1)``."""
  bars = [-1, *unrank_subset(rank, total + size - 1, size - 1), total + size - 1]
  return [right - left - 1 for left, right in zip(bars, bars[1:])]


def rank_multiset(ids: Sequence[int], counts: Sequence[int]) -> int:
  """Rank of a multiset of tokens: the j-th smallest member v becomes v + j, which makes it a subset.

  The same number of cases as compositions over the whole vocabulary, ``C(sum + V - 1, sum)``, at the cost of the sum.
  """
  members = [token for token, count in zip(ids, counts) for _ in range(count)]
  return rank_subset([member + position for position, member in enumerate(members)])


def unrank_multiset(rank: int, vocab: int, total: int) -> tuple[list[int], list[int]]:
  """Ascending ids and their positive counts, of sum ``total``."""
  ids: list[int] = []
  counts: list[int] = []
  for position, member in enumerate(unrank_subset(rank, vocab + total - 1, total)):
    token = member - position
    if ids and ids[-1] == token:
      counts[-1] += 1
    else:
      ids.append(token)
      counts.append(1)
  return ids, counts
