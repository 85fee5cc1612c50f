"""From probabilities to integer weights.

`quantize` is the lattice quantizer of distributions with a fixed denominator (Reznik 2011; sparse form: Teku et al. 2024):

1. ``b_i = floor(ell q_i + 1/2)``, ``Delta = sum b_i - ell``.
2. ``zeta_i = b_i - ell q_i``, sorted ascending, ties by index. For ``Delta > 0`` subtract 1 at the last ``Delta`` positions
   of that order, for ``Delta < 0`` add 1 at the first ``|Delta|`` positions.

The result is an L1-nearest lattice point with ``TV(q, b / ell) <= a (K - a) / (K ell) <= K / (4 ell)``, ``a = floor(K/2)``.

Counts never become negative. Where 1 is subtracted, zeta is positive, so ``b > ell q >= 0`` and b is at least 1. There are
enough such positions: ``sum zeta = Delta`` and ``zeta <= 1/2``, so at least ``2 Delta`` positions have positive zeta. The
argument has a factor of two to spare, so it survives the rounding of float32. Under ``jax_enable_x64`` the functions compute
in float64.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxspec.codecs.bit_costs import HALF_UNIT
from jaxspec.core.types import Array


def quantize(probs: Array, size: Array, ell: int) -> Array:
  """Nearest lattice point.

  Args:
    probs: ``[..., S]`` float; the first ``size`` entries add up to 1, the others are not read.
    size: ``[...]`` int32, at least 1.
    ell: static denominator.
  Returns:
    Counts ``[..., S]`` int32 that add up to ``ell``, 0 after ``size``.
  """
  valid = _index(probs) < size[..., None]
  scaled = jnp.where(valid, probs * ell, 0.0)
  counts = jnp.floor(scaled + 0.5)
  excess = (jnp.sum(counts, axis=-1).astype(jnp.int32) - ell)[..., None]
  # Padding sorts last, so the first ``size`` positions of the order are those of the support.
  zeta = jnp.where(valid, counts - scaled, jnp.inf)
  position = jnp.argsort(jnp.argsort(zeta, axis=-1, stable=True), axis=-1)  # inverse of the sorting permutation
  take = (position >= size[..., None] - excess) & (position < size[..., None])
  give = position < -excess
  return counts.astype(jnp.int32) - take.astype(jnp.int32) + give.astype(jnp.int32)


def half(probs: Array, size: Array) -> Array:
  """Weights ``[..., S]`` int32: half-precision probabilities times `HALF_UNIT`; arguments as in `quantize`."""
  valid = _index(probs) < size[..., None]
  return jnp.where(valid, (probs.astype(jnp.float16).astype(jnp.float32) * HALF_UNIT).astype(jnp.int32), 0)


def _index(probs: Array) -> Array:
  """Index of every entry on the last axis, in the shape of ``probs``."""
  return jax.lax.broadcasted_iota(jnp.int32, probs.shape, probs.ndim - 1)
