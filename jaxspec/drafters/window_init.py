"""Initial drafts of new positions of a Jacobi window (Teng et al. 2024, arXiv 2410.01699, section 4.3).

A new position takes the distribution of a neighbour in the image, or the uniform distribution. The proposal is always the
distribution of the draw, so the decoder is exact. For a copied token it is a point mass.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from jaxspec.core.types import Array
from jaxspec.sampling.logit_processing import sample

SOURCES = ("uniform", "left", "above", "diagonal")
DRAWS = ("repeat", "sample", "argmax")


@dataclasses.dataclass(frozen=True)
class WindowInit:
  """Choice of the initial drafts.

  Attributes:
    source: the neighbour; a position without one (first column or row) takes the uniform distribution.
    draw: ``repeat`` copies the neighbour's token, ``sample`` draws from the neighbour's distribution, ``argmax`` takes its
      likeliest token (what the official code calls sampling).
    point_mass: uniform draws have a point mass as proposal, as in the official code; this is exact too, but has less
      acceptance.
  Raises:
    ValueError: for an unknown source or draw.
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
    """Distance of a token from its neighbour in raster order, for rows of ``grid`` tokens."""
    return {"uniform": 1, "left": 1, "above": grid, "diagonal": grid + 1}[self.source]

  def has_source(self, position: Array, grid: int) -> Array:
    """``[...]`` bool: whether positions ``[...]`` have such a neighbour."""
    if self.source == "uniform":
      return jnp.zeros(position.shape, bool)
    column = (position % grid > 0) if self.source in ("left", "diagonal") else True
    row = (position >= grid) if self.source in ("above", "diagonal") else True
    return jnp.logical_and(column, row) & (position >= 0)


def initial_drafts(
  init: WindowInit,
  *,
  has_source: Array,
  source_token: Array,
  source_logits: Array | None,
  uniform: Array,
  vocab_size: int,
  legal: Array | None = None,
) -> tuple[Array, Array]:
  """Draws new positions.

  Args:
    has_source: ``[B, K]`` bool.
    source_token: ``[B, K]`` int32 neighbours; read by ``repeat``.
    source_logits: ``[B, K, V]`` their logits; read by ``sample`` and ``argmax``.
    uniform: ``[B, K]`` in [0, 1).
    legal: ``[B, K, V]`` bool, legal ids, at least one; None: all. An illegal neighbour counts as missing.
  Returns:
    tokens ``[B, K]`` int32 and the logits ``[B, K, V]`` of their proposal.
  """
  flat = jnp.zeros((*uniform.shape, vocab_size), jnp.float32)
  tokens = jnp.minimum((uniform * vocab_size).astype(jnp.int32), vocab_size - 1)
  if legal is not None:
    flat = jnp.where(legal, flat, -jnp.inf)
    tokens = sample(flat, uniform)
  logits = point_mass(tokens, vocab_size) if init.point_mass else flat
  if init.source == "uniform":
    return tokens, logits
  if source_logits is None:  # `repeat` does not read them
    source_logits = flat
  if init.draw == "sample":
    near_logits = source_logits if legal is None else jnp.where(legal, source_logits, -jnp.inf)
    near = sample(near_logits, uniform)
  else:
    near = source_token if init.draw == "repeat" else jnp.argmax(source_logits, axis=-1).astype(jnp.int32)
    near_logits = point_mass(near, vocab_size)
  if legal is not None:
    near_logits = jnp.where(legal, near_logits, -jnp.inf)
    has_source = has_source & jnp.any(jnp.isfinite(near_logits), axis=-1)
  return jnp.where(has_source, near, tokens), jnp.where(has_source[..., None], near_logits, logits)


def point_mass(tokens: Array, vocab_size: int) -> Array:
  """Logits ``[..., V]`` of point masses at ``tokens [...]``."""
  return jnp.where(jax.nn.one_hot(tokens, vocab_size, dtype=bool), 0.0, -jnp.inf)
