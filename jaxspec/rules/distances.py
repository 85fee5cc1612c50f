"""Distances between tokens: the tables of lossy acceptance rules.

Each token has a vector: its input embedding in the language model (the released GSD code) or its row in the image
tokenizer's codebook (LANTERN). A table records its source, because thresholds do not carry over.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from flax import struct

from jaxspec.core.short_repr import short_repr
from jaxspec.core.types import Array, Key

_SOURCES = ("embedding", "codebook")


@struct.dataclass
class DistanceTable:
  """All distances between ``V`` tokens.

  Attributes:
    values: ``[V, V]`` distances (float; bfloat16 halves the memory).
    source: ``embedding`` or ``codebook``, the kind of the vectors.
    power: 2 for squared Euclidean distances, 1 for Euclidean ones.
  """

  __repr__ = short_repr

  values: Array
  source: str = struct.field(pytree_node=False)
  power: int = struct.field(pytree_node=False)

  def between(self, tokens: Array, others: Array) -> Array:
    """Distances ``[..., n]`` float32 from tokens ``[...]`` to others ``[..., n]``."""
    return self.values[tokens[..., None], others].astype(jnp.float32)


@struct.dataclass
class TokenVectors:
  """Distances computed on demand from ``V`` vectors, without a table of size V * V.

  Attributes:
    vectors: ``[V, D]`` float; ``source`` and ``power`` as in `DistanceTable`.
  """

  __repr__ = short_repr

  vectors: Array
  source: str = struct.field(pytree_node=False)
  power: int = struct.field(pytree_node=False)

  def between(self, tokens: Array, others: Array) -> Array:
    """Distances ``[..., n]`` float32 from tokens ``[...]`` to others ``[..., n]``."""
    gap = self.vectors[tokens][..., None, :].astype(jnp.float32) - self.vectors[others].astype(jnp.float32)
    return _to_power(jnp.sum(gap * gap, axis=-1), self.power)


def distance_table(vectors: Array, *, source: str, power: int = 2, dtype: jnp.dtype = jnp.float32) -> DistanceTable:
  """Distances between all rows of ``vectors [V, D]``, computed as a^2 + b^2 - 2ab in float32.

  Args:
    vectors: input embeddings or codebook rows of the tokens, in the order of their ids.
    source: ``embedding`` or ``codebook``.
    power: 2 for squared Euclidean distances (the released GSD code), 1 for Euclidean ones.
    dtype: type of the stored table; the released GSD code stores bfloat16.
  Raises:
    ValueError: for an unknown source or power, or vectors of another shape.
  """
  _check(vectors, source, power)
  vectors = vectors.astype(jnp.float32)
  norms = jnp.sum(vectors * vectors, axis=-1)
  products = jnp.matmul(vectors, vectors.T, precision="highest")
  squared = jnp.maximum(norms[:, None] + norms[None] - 2 * products, 0.0)  # rounding may go below 0
  return DistanceTable(_to_power(squared, power).astype(dtype), source, power)


def token_vectors(vectors: Array, *, source: str, power: int = 2) -> TokenVectors:
  """Makes `TokenVectors`; arguments and errors as in `distance_table`."""
  _check(vectors, source, power)
  return TokenVectors(vectors, source, power)


def neighbour_table(codebook: Array, num_neighbours: int, *, normalise: bool = True) -> Array:
  """The nearest other codes of every code (LANTERN, Jang et al. 2025, arXiv 2410.03355).

  Args:
    codebook: ``[V, D]`` rows of the image tokenizer's codebook.
    num_neighbours: columns of the table, at most V - 1. `Lantern` with the ``compat`` residual reads one more than its
      number of neighbours.
    normalise: scale rows to unit length first, like the LlamaGen decoder; False uses the stored rows, like the released
      code. Both give the same order only if all stored rows have the same length.
  Returns:
    ``[V, num_neighbours]`` int32, nearest first; without the code itself; ties go to the smaller id.
  Raises:
    ValueError: for a number of neighbours out of range.
  """
  size = codebook.shape[0]
  if not 1 <= num_neighbours < size:
    raise ValueError(f"Must have between 1 and {size - 1} neighbours, we instead got {num_neighbours}")
  rows = codebook.astype(jnp.float32)
  if normalise:
    rows = rows / jnp.maximum(jnp.linalg.norm(rows, axis=-1, keepdims=True), 1e-12)
  return _nearest(rows, num_neighbours)


@functools.partial(jax.jit, static_argnames="num_neighbours")
def _nearest(rows: Array, num_neighbours: int) -> Array:
  def of_one(code: Array) -> Array:
    gap = rows - rows[code][None]
    squared = jnp.sum(gap * gap, axis=-1).at[code].set(jnp.inf)
    return jax.lax.top_k(-squared, num_neighbours)[1]

  return jax.lax.map(of_one, jnp.arange(rows.shape[0]))


def cluster_table(vectors: Array, num_clusters: int, key: Key, *, num_steps: int = 20) -> Array:
  """Partition of tokens by k-means (Lloyd's iteration from random distinct rows).

  Args:
    vectors: ``[V, D]`` embeddings or codebook rows.
    num_clusters: number of groups; some may end up empty.
    key: draws the first centres; consumed.
    num_steps: iterations.
  Returns:
    ``[V]`` int32 group of every token.
  Raises:
    ValueError: for a number of groups out of range.
  """
  size = vectors.shape[0]
  if not 1 <= num_clusters <= size:
    raise ValueError(f"Must have between 1 and {size} clusters, we instead got {num_clusters}")
  vectors = vectors.astype(jnp.float32)
  centres = vectors[jax.random.choice(key, size, (num_clusters,), replace=False)]

  def assign(centres: Array) -> Array:
    # |v|^2 is the same for all centres, so it is left out.
    scores = jnp.sum(centres * centres, axis=-1)[None] - 2 * jnp.matmul(vectors, centres.T, precision="highest")
    return jnp.argmin(scores, axis=-1).astype(jnp.int32)

  def step(_, centres: Array) -> Array:
    group = assign(centres)
    count = jnp.zeros((num_clusters,)).at[group].add(1.0)
    total = jnp.zeros_like(centres).at[group].add(vectors)
    return jnp.where(count[:, None] > 0, total / jnp.maximum(count, 1.0)[:, None], centres)  # an empty group stays

  return assign(jax.lax.fori_loop(0, num_steps, step, centres))


def _to_power(squared: Array, power: int) -> Array:
  return squared if power == 2 else jnp.sqrt(squared)


def _check(vectors: Array, source: str, power: int) -> None:
  if vectors.ndim != 2:
    raise ValueError(f"Must have vectors [V, D], we instead got shape {vectors.shape}")
  if source not in _SOURCES:
    raise ValueError(f"Must have a source in {', '.join(_SOURCES)}, we instead got {source!r}")
  if power not in (1, 2):
    raise ValueError(f"Must have power 1 or 2, we instead got {power}")
