"""How a gated drafter draws tokens that will be verified, and what it says about the law they came from."""

from __future__ import annotations

import dataclasses
from typing import Protocol

import jax
import jax.numpy as jnp

from jaxspec import rng
from jaxspec.codecs.codec import SparseCodec
from jaxspec.codecs.sparse_law import SparseLaw, draw
from jaxspec.codecs.sparsify import TopK
from jaxspec.models.sampling import probabilities, sample
from jaxspec.types import Array, Key, PyTree

PICKS = ("sample", "argmax")


class WindowDraw(Protocol):
  """A way to draw one token of every row.

  ``params`` are traced settings, ``logits [B, V]`` processed, ``keys [B]`` those of the round, ``offset`` the place in it.
  Returns tokens ``[B]`` int32 and the `Draft.proposal` of this place, leaves ``[B, ...]``.
  """

  def __call__(self, params: PyTree, logits: Array, keys: Key, offset: Array) -> tuple[Array, PyTree]: ...


@dataclasses.dataclass(frozen=True)
class DenseDraw:
  """From the whole law, which is the proposal; ``params`` is not read.

  Attributes:
    pick: ``sample``, or ``argmax`` for a greedy device, whose proposal is a point mass.
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
  """From the law that a link can carry: sparsified and quantized, then drawn from (SQS); ``params`` are `TopKParams`.

  The proposal is a `SparseLaw`, and the rule `jaxspec.lossless_sparse` is exact for it.

  Attributes:
    codec: from `jaxspec.topk_lattice`; thresholds that move are not supported here.
  """

  codec: SparseCodec

  def __post_init__(self):
    if not isinstance(self.codec.sparsifier, TopK):
      raise ValueError(f"Must have a codec of fixed supports (topk_lattice), we instead got {self.codec.sparsifier}")

  def __call__(self, params: PyTree, logits: Array, keys: Key, offset: Array) -> tuple[Array, SparseLaw]:
    """See `WindowDraw`."""
    codec, rows = self.codec, logits.shape[0]
    cap = jnp.full((rows,), codec.max_support, jnp.int32)
    support = codec.sparsifier.support(params, (), probabilities(logits), cap)
    law = codec.law(support)
    entry = draw(law, rng.integer(keys, offset, law.total))
    return jnp.take_along_axis(law.ids, entry[:, None], axis=1)[:, 0], law
