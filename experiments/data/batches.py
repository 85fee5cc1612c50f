"""Networks called on batches of one size."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

_BATCH = 64


def in_batches(function: Callable, *arrays: np.ndarray, batch: int = _BATCH):
  """Calls ``function`` on equal batches of the rows; the last one is padded, so that shapes are constant."""
  outputs, total = [], len(arrays[0])
  for start in range(0, total, batch):
    rows = np.minimum(np.arange(start, start + batch), total - 1)
    output = jax.device_get(function(*(jnp.asarray(array[rows]) for array in arrays)))
    outputs.append(jax.tree.map(lambda leaf, kept=min(batch, total - start): leaf[:kept], output))
  return jax.tree.map(lambda *leaves: np.concatenate(leaves), *outputs)
