"""Bits that the distribution of one drafted token costs: by formula, and as it is sent.

=========  ==========================================  ======================================================
coding     formula (real numbers, index not counted)   sent by `jaxspec.serving.wire.distribution_bits`
=========  ==========================================  ======================================================
paper      top-K: log2 C(V,K) + log2 C(l+K-1,K-1);     ranks of subset and lattice point, width = exact ceiling
           threshold: ceilings on the subset and
           ceil(log2 V) for its size
rice       as paper                                    Rice-coded gaps, rank of the lattice point
trimmed    ceil(log2 l) + log2 C(V,k) + log2 C(l-1,k-1)  the k tokens of positive count only
dense      log2 C(l+V-1, l)                            rank of the multiset over the whole vocabulary
lazy       ceil(log2 V) + ceil(log2 l)                 token and its count; the distribution only on request
half       16 K + log2 C(V,K)                          half-precision weights
=========  ==========================================  ======================================================

V is the vocabulary, K or k the size of the support, l the denominator ``ell`` of the counts. No published formula counts
the index of the drafted token. The coder sends the index too; the bits that it emitted are reported beside the formula.
"""

from __future__ import annotations

import functools
import math

import numpy as np

CODINGS = ("paper", "rice", "trimmed", "dense", "lazy", "half")

# Half-precision numbers in [0, 1] are multiples of 2^-24, the smallest subnormal: such weights are integers too.
HALF_UNIT = 1 << 24


def log2_binomial(n: int, k: int) -> float:
  """log2 C(n, k) as a real number.

  Raises:
    ValueError: if k is negative or above n.
  """
  if k < 0 or k > n:
    raise ValueError(f"Must have 0 <= k <= n, we instead got n={n}, k={k}")
  return (math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)) / math.log(2)


def ceil_log2(count: int) -> int:
  """Exact ``ceil(log2(count))``, the bits of an index among ``count`` cases, without floating point."""
  return (count - 1).bit_length()


def subset_width(vocab: int, size: int) -> int:
  """Exact bits of a rank among the subsets of ``size`` out of ``vocab`` tokens."""
  return ceil_log2(math.comb(vocab, size))


def lattice_width(ell: int, size: int) -> int:
  """Exact bits of a rank among the non-negative vectors of ``size`` counts that add up to ``ell``."""
  return ceil_log2(math.comb(ell + size - 1, size - 1))


def formula_bits(coding: str, *, vocab: int, ell: int, size: int, ceilings: bool) -> float:
  """Price of one distribution by formula, in bits.

  Args:
    coding: one of `CODINGS`.
    vocab: tokens V.
    ell: denominator of the counts.
    size: tokens in the support; for ``trimmed``, those of positive count.
    ceilings: the threshold form of the published formula, which sends the size of the support.
  Raises:
    ValueError: for an unknown coding.
  """
  if coding in ("paper", "rice"):
    subset = log2_binomial(vocab, size)
    if ceilings:
      # The ceiling of a real number computed from logarithms could be off by one only at an exact power of two.
      subset = (0 if size in (0, vocab) else math.ceil(subset - 1e-9)) + ceil_log2(vocab)
    return subset + log2_binomial(ell + size - 1, size - 1)
  if coding == "trimmed":
    return ceil_log2(ell) + log2_binomial(vocab, size) + log2_binomial(ell - 1, size - 1)
  if coding == "dense":
    return log2_binomial(ell + vocab - 1, ell)
  if coding == "lazy":
    return float(ceil_log2(vocab) + ceil_log2(ell))
  if coding == "half":
    return log2_binomial(vocab, size) + 16.0 * size
  raise ValueError(f"Must have a coding in {', '.join(CODINGS)}, we instead got {coding!r}")


@functools.cache
def price_table(coding: str, *, vocab: int, ell: int, max_size: int, ceilings: bool) -> np.ndarray:
  """Prices ``[max_size + 1]`` float32 in bits by size; entry 0 and sizes that no message has are infinite."""
  table = np.full(max_size + 1, np.inf, np.float32)
  for size in range(1, min(max_size, ell if coding == "trimmed" else vocab) + 1):
    table[size] = formula_bits(coding, vocab=vocab, ell=ell, size=size, ceilings=ceilings)
  return table
