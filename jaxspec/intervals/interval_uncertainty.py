"""One number from the widths of probability intervals (CIAR, arXiv 2603.25463, equation 4).

  Omega = sum of the widths,  std = their population standard deviation,  U = Omega std.

U is small for very sharp *and* for very flat distributions: equal widths give 0, however wide they are. ``additive`` and
``volume`` stay large for flat distributions. `jaxspec.intervals.scores` makes the edge's score of it, and has the others.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax.numpy as jnp

from jaxspec.core.types import Array


@dataclasses.dataclass(frozen=True)
class Uncertainty:
  """Function from widths to one number.

  Attributes:
    form: ``product`` is U; ``product_eps`` Omega sqrt(std^2 + eps); ``additive`` volume_weight Omega + Omega std; ``per_n``
      U / n; ``ratio`` std / Omega; ``volume`` Omega.
    eps: read by ``product_eps``.
    volume_weight: read by ``additive``.
  Raises:
    ValueError: for an unknown form, or a number below 0.
  """

  form: str = "product"
  eps: float = 1e-6
  volume_weight: float = 0.1

  FORMS: ClassVar[tuple[str, ...]] = ("product", "product_eps", "additive", "per_n", "ratio", "volume")

  def __post_init__(self):
    if self.form not in self.FORMS:
      raise ValueError(f"Must have a form in {', '.join(self.FORMS)}, we instead got {self.form!r}")
    if not (self.eps >= 0 and self.volume_weight >= 0):
      raise ValueError(f"Must have eps and volume_weight of at least 0, we instead got {self.eps}, {self.volume_weight}")

  def __call__(self, width: Array) -> Array:
    """Uncertainty ``[...]`` from widths ``[..., V]``, at least 0."""
    volume = jnp.sum(width, axis=-1)
    # Two passes: mean(w^2) and mean(w)^2 nearly cancel on flat distributions.
    variance = jnp.mean(jnp.square(width - jnp.mean(width, axis=-1, keepdims=True)), axis=-1)
    if self.form == "volume":
      return volume
    if self.form == "product_eps":
      return volume * jnp.sqrt(variance + self.eps)
    spread = _sqrt(variance)
    if self.form == "ratio":
      # The gradient divides by the square of the volume, which must not underflow.
      wide = volume > 1e-18
      return jnp.where(wide, spread / jnp.where(wide, volume, 1.0), 0.0)
    product = volume * spread
    if self.form == "per_n":
      return product / width.shape[-1]
    return self.volume_weight * volume + product if self.form == "additive" else product


def _sqrt(x: Array) -> Array:
  """Square root whose gradient at 0 is 0."""
  positive = x > 0
  return jnp.where(positive, jnp.sqrt(jnp.where(positive, x, 1.0)), 0.0)
