"""Tables of a host (`jaxspec.testing.toys`) whose probabilities are few fractions, for exact enumeration by tapes."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from jaxspec.sampling.logit_processing import ModelParams
from tests.contract import networks
from tests.helpers import side

# Distributions of three ids, up to their order.
CERTAIN, HALF, QUARTERS = ([1.0, 0.0, 0.0],), ([0.5, 0.5, 0.0],), ([0.5, 0.25, 0.25],)
HALVES = CERTAIN + HALF


def probabilities(seed: int, kinds: tuple[tuple[list[float], ...], ...]) -> np.ndarray:
  """By row, ``[rows_of_table, 3]``: token i has one of the distributions ``kinds[i]``, in random order."""
  generator, vocab, length = np.random.default_rng(seed), 3, len(kinds)
  found = np.empty((networks.rows_of_table(vocab, length), vocab))
  for row in range(len(found)):
    tokens, rest = 0, row % (vocab + 1) ** (length - 1)
    while rest:
      tokens, rest = tokens + 1, rest // (vocab + 1)
    options = kinds[tokens]
    found[row] = generator.permutation(options[generator.integers(len(options))])
  return found


def log_side(probs: np.ndarray) -> ModelParams:
  """Parameters of a host with these probabilities by row."""
  with np.errstate(divide="ignore"):
    return side({"output": jnp.asarray(np.log(probs), jnp.float32)})
