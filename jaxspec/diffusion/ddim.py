"""Deterministic sampling of a diffusion model (DDIM with eta 0, arXiv 2010.02502, eq. 12).

1. A network's noise ``eps`` at ``x_i`` gives ``x0 = x_i / sqrt(A_i) - sqrt(1 / A_i - 1) eps``, never clipped.
2. The next state is ``x_{i-1} = sqrt(A_{i-1}) x0 + sqrt(1 - A_{i-1}) eps``. The last one is ``x0``.

The learned variance is not read. A step is a point mass, and different point masses do not overlap. Verification of such
drafts would therefore change the distribution.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxspec.core.types import Array
from jaxspec.diffusion.ddpm import PredictFn, at_index, clean
from jaxspec.diffusion.schedule import DiffusionTables


def next_state(tables: DiffusionTables, index: Array, x: Array, eps: Array) -> Array:
  """``x_{i-1}`` after ``x_i``.

  Args:
    tables: of ``T`` steps.
    index: int32 in ``[0, T)``, ``[]`` or of x's rank with a last axis of size 1.
    x: ``[..., C]`` float32.
    eps: ``[..., C]`` float32, the network's noise at x.
  """
  # Roots and 1 - A are formed in float64: for the first steps 1 - A would lose all digits in float32.
  kept, rest = (at_index(table**0.5, index) for table in (tables.alphas_cumprod_prev, 1.0 - tables.alphas_cumprod_prev))
  return kept * clean(tables, index, x, eps) + rest * eps


def sample(predict_fn: PredictFn, tables: DiffusionTables, x: Array) -> Array:
  """Tokens ``[..., C]`` of a network bound to its condition.

  Args:
    tables: of the steps, which are taken from the last one down.
    x: ``[..., C]`` float32, standard normals: the state before the first step.
  """

  def step(x: Array, index: Array):
    return next_state(tables, index, x, predict_fn(index, x).eps), None

  return jax.lax.scan(step, x, jnp.arange(tables.num_steps, dtype=jnp.int32), reverse=True)[0]
