"""What a Jacobi window puts at places that no pass has seen yet (Teng et al. 2024, arXiv 2410.01699, section 4.3).

A new place takes the law of a neighbour in the picture, or the uniform law. The law returned is the one the token is
really drawn from, which keeps the decoder exact: a copied token has a point mass.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from jaxspec.models.sampling import sample
from jaxspec.types import Array

SOURCES = ("uniform", "left", "above", "diagonal")
DRAWS = ("repeat", "sample", "argmax")


@dataclasses.dataclass(frozen=True)
class WindowInit:
  """Choice of the initial drafts.

  Attributes:
    source: the neighbour that is looked at; a place without one (first column or row) takes the uniform law.
    draw: ``repeat`` copies the neighbour's token, ``sample`` draws from the neighbour's law, ``argmax`` takes its
      likeliest token (what the official code calls sampling).
    point_mass: uniform draws claim a point mass instead of their true law, as officially; exact, but accepted less.
  """

  source: str = "uniform"
  draw: str = "sample"
  point_mass: bool = False

  def __post_init__(self):
    if self.source not in SOURCES:
      raise ValueError(f"Must have a source in {', '.join(SOURCES)}, we instead got {self.source!r}")
    if self.draw not in DRAWS:
      raise ValueError(f"Must have a draw in {', '.join(DRAWS)}, we instead got {self.draw!r}")

  def offset(self, grid: int) -> int:
    """Places between a token and its neighbour, in raster order of rows of ``grid`` tokens."""
    return {"uniform": 1, "left": 1, "above": grid, "diagonal": grid + 1}[self.source]

  def has_source(self, place: Array, grid: int) -> Array:
    """Whether the place has such a neighbour."""
    if self.source == "uniform":
      return jnp.zeros(place.shape, bool)
    column = (place % grid > 0) if self.source in ("left", "diagonal") else True
    row = (place >= grid) if self.source in ("above", "diagonal") else True
    return jnp.logical_and(column, row) & (place >= 0)


def initial_drafts(
  init: WindowInit, *, has_source: Array, source_token: Array, source_law: Array | None, uniform: Array, vocab_size: int
) -> tuple[Array, Array]:
  """Draws new places.

  Args:
    has_source: ``[B, K]`` bool.
    source_token: ``[B, K]`` int32 neighbours; read by ``repeat``.
    source_law: ``[B, K, V]`` their logits; read by ``sample`` and ``argmax``.
    uniform: ``[B, K]`` in [0, 1).
  Returns:
    tokens ``[B, K]`` int32 and the laws they were drawn from ``[B, K, V]`` (logits).
  """
  flat = jnp.zeros((*uniform.shape, vocab_size), jnp.float32)
  tokens = jnp.minimum((uniform * vocab_size).astype(jnp.int32), vocab_size - 1)
  laws = point_mass(tokens, vocab_size) if init.point_mass else flat
  if init.source == "uniform":
    return tokens, laws
  if init.draw == "sample":
    near, near_law = sample(source_law, uniform), source_law
  else:
    near = source_token if init.draw == "repeat" else jnp.argmax(source_law, axis=-1).astype(jnp.int32)
    near_law = point_mass(near, vocab_size)
  return jnp.where(has_source, near, tokens), jnp.where(has_source[..., None], near_law, laws)


def point_mass(tokens: Array, vocab_size: int) -> Array:
  """Logits ``[..., V]`` of the law that is sure of ``tokens [...]``."""
  return jnp.where(jax.nn.one_hot(tokens, vocab_size, dtype=bool), 0.0, -jnp.inf)
