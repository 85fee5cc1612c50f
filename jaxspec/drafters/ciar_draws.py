"""Draws of tokens that need verification in CIAR, and their proposals."""

from __future__ import annotations

import dataclasses
from typing import Protocol

import jax
import jax.numpy as jnp

from jaxspec.codecs.codec import SparseCodec
from jaxspec.codecs.sparse_distribution import SparseDistribution, draw
from jaxspec.codecs.sparsify import TopK
from jaxspec.core import rng
from jaxspec.core.token_axes import at_position
from jaxspec.core.types import Array, Key, PyTree
from jaxspec.sampling.logit_processing import probabilities, sample

PICKS = ("sample", "argmax")


class WindowDraw(Protocol):
  """Draws one token of every row.

  Args:
    params: traced settings.
    logits: ``[B, V]`` float32, processed.
    keys: ``[B]``, those of the round.
    offset: ``[]`` or ``[B]`` int32, position in the round.
  Returns:
    Tokens ``[B]`` int32 and the `Draft.proposal` of this position, leaves ``[B, ...]``.
  """

  def __call__(self, params: PyTree, logits: Array, keys: Key, offset: Array) -> tuple[Array, PyTree]: ...


@dataclasses.dataclass(frozen=True)
class DenseDraw:
  """Draws from the full distribution; the proposal is its logits ``[B, V]``. ``params`` is not read.

  Attributes:
    pick: ``sample``, or ``argmax`` for a greedy draft side, whose proposal is a point mass.
  Raises:
    ValueError: for an unknown pick.
  """

  pick: str = "sample"

  def __post_init__(self):
    if self.pick not in PICKS:
      raise ValueError(f"Must have a pick in {', '.join(PICKS)}, we instead got {self.pick!r}")

  def __call__(self, params: PyTree, logits: Array, keys: Key, offset: Array) -> tuple[Array, Array]:
    """See `WindowDraw`."""
    if self.pick == "sample":
      return sample(logits, rng.uniform(keys, offset)), logits
    token = jnp.argmax(logits, axis=-1).astype(jnp.int32)
    ids = jax.lax.broadcasted_iota(jnp.int32, logits.shape, logits.ndim - 1)
    return token, jnp.where(ids == token[..., None], 0.0, -jnp.inf)


@dataclasses.dataclass(frozen=True)
class SparseDraw:
  """Draws from a sparse, quantized distribution (SQS), which costs few bits to send; ``params`` are `TopKParams`.

  The proposal is this `SparseDistribution`; the rule `jaxspec.rules.lossless_sparse.lossless_sparse` is exact for it.

  Attributes:
    codec: from `jaxspec.codecs.topk_lattice`; moving thresholds (C-SQS) are not supported.
  Raises:
    ValueError: for another codec.
  """

  codec: SparseCodec

  def __post_init__(self):
    if not isinstance(self.codec.sparsifier, TopK):
      raise ValueError(f"Must have a codec of fixed supports (topk_lattice), we instead got {self.codec.sparsifier}")

  def __call__(self, params: PyTree, logits: Array, keys: Key, offset: Array) -> tuple[Array, SparseDistribution]:
    """See `WindowDraw`."""
    codec, rows = self.codec, logits.shape[0]
    cap = jnp.full((rows,), codec.max_support, jnp.int32)
    support = codec.sparsifier.support(params, (), probabilities(logits), cap)
    distribution = codec.distribution(support)
    entry = draw(distribution, rng.integer(keys, offset, distribution.total))
    return at_position(distribution.ids, entry), distribution
