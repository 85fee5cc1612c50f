"""A codec chooses the support of a distribution, makes integer weights, and prices the message.

`topk_lattice` (K-SQS) and `conformal_lattice` (C-SQS) make one. Everything here is traced; `jaxspec.serving` makes the
bytes.
"""

from __future__ import annotations

import dataclasses
import functools

import jax.numpy as jnp
import numpy as np

from jaxspec.codecs import lattice
from jaxspec.codecs.bit_costs import CODINGS, price_table
from jaxspec.codecs.conformal import Conformal
from jaxspec.codecs.sparse_distribution import SparseDistribution
from jaxspec.codecs.sparsify import Sparsifier, Support, TopK
from jaxspec.core.types import Array


@dataclasses.dataclass(frozen=True)
class SparseCodec:
  """Static part of a codec.

  Attributes:
    vocab: tokens V.
    sparsifier: rule that chooses supports.
    ell: lattice denominator; not read by the coding ``half``.
    coding: one of `CODINGS`, see `jaxspec.codecs.bit_costs`.
  Raises:
    ValueError: for a setting out of range.
  """

  vocab: int
  sparsifier: Sparsifier
  ell: int = 100
  coding: str = "paper"

  def __post_init__(self):
    if self.vocab < 2:
      raise ValueError(f"Must have a vocabulary of at least 2 tokens, we instead got {self.vocab}")
    if not 1 <= self.sparsifier.max_support <= self.vocab:
      raise ValueError(f"Must have a support of 1 to {self.vocab} tokens, we instead got {self.sparsifier.max_support}")
    if not 1 <= self.ell < 1 << 16:
      raise ValueError(f"Must have a denominator ell of 1 to 65535, we instead got {self.ell}")
    if self.coding not in CODINGS:
      raise ValueError(f"Must have a coding in {', '.join(CODINGS)}, we instead got {self.coding!r}")
    if self.coding == "dense" and self.sparsifier.max_support != self.vocab:
      raise ValueError(f"Must have a support of all {self.vocab} tokens for coding 'dense', we instead got fewer")

  @property
  def max_support(self) -> int:
    """Static size S of supports on the draft side."""
    return self.sparsifier.max_support

  @property
  def max_sent(self) -> int:
    """Static size of supports on the target side; codings that send no counts of 0 need no room for them."""
    sends_zeros = self.coding in ("paper", "rice", "half")
    return self.max_support if sends_zeros else min(self.max_support, self.ell)

  @property
  def prices(self) -> np.ndarray:
    """Formula price ``[S + 1]`` float32 in bits, by size of the support."""
    ceilings = isinstance(self.sparsifier, Conformal)
    return price_table(self.coding, vocab=self.vocab, ell=self.ell, max_size=self.max_support, ceilings=ceilings)

  def distribution(self, support: Support) -> SparseDistribution:
    """Integer distribution ``[B]`` of a support: the proposal of the drafts, which is also what the message holds."""
    if self.coding == "half":
      counts = lattice.half(support.probs, support.size)
    else:
      counts = lattice.quantize(support.probs, support.size, self.ell)
    return SparseDistribution(support.ids, counts, support.size, jnp.sum(counts, axis=-1))

  def price(self, support: Support, distribution: SparseDistribution) -> Array:
    """Formula bits ``[B]`` float32; only ``trimmed`` needs the counts for it."""
    size = (
      jnp.sum((distribution.counts > 0).astype(jnp.int32), axis=-1) if self.coding == "trimmed" else support.literal_size
    )
    return jnp.asarray(self.prices)[size]

  def affordable(self, size: Array, budget: Array) -> Array:
    """Largest size ``[B]`` of at most ``size`` whose price lies within ``budget``; 0 if there is none."""
    sizes = jnp.arange(self.max_support + 1)[None]
    fits = (jnp.asarray(self.prices)[None] <= budget[:, None]) & (sizes <= size[:, None])
    return jnp.max(jnp.where(fits, sizes, 0), axis=-1)


@functools.cache
def topk_lattice(vocab: int, max_support: int, *, ell: int = 100, coding: str = "paper") -> SparseCodec:
  """Codec of K-SQS (arXiv 2510.09942); the traced `TopKParams` choose K of at most ``max_support``."""
  return SparseCodec(vocab, TopK(max_support), ell, coding)


@functools.cache
def conformal_lattice(
  vocab: int, max_support: int, *, ell: int = 100, coding: str = "paper", policy: str = "text", empty_error: str = "one"
) -> SparseCodec:
  """Codec of C-SQS (arXiv 2510.09942); the traced `ConformalParams` hold first threshold, step size and dropped mass."""
  return SparseCodec(vocab, Conformal(max_support, policy, empty_error), ell, coding)
