"""Images as short vectors: the principal components of their code vectors. What training aims captions at."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from jaxspec.models import quantizer
from jaxspec.types import Array


def code_vectors(codebook: Array, tokens: Array) -> Array:
  """Tokens ``[B, N]`` as one vector each ``[B, N * C]``."""
  return quantizer.lookup(codebook, tokens).reshape(tokens.shape[0], -1)


def principal_components(codebook: Array, tokens: np.ndarray, num: int) -> tuple[Array, Array]:
  """Mean ``[D]`` and leading components ``[D, num]`` of the code vectors, scaled so that their total variance is 1."""
  vectors = np.asarray(code_vectors(codebook, jnp.asarray(tokens, jnp.int32)), np.float32)
  mean = vectors.mean(0)
  centred = vectors - mean
  values, components = np.linalg.eigh(centred.T @ centred / len(vectors))
  values, components = values[::-1][:num], components[:, ::-1][:, :num]
  return jnp.asarray(mean), jnp.asarray(components / np.sqrt(values.sum()), jnp.float32)


def image_code(codebook: Array, basis: tuple[Array, Array], tokens: Array) -> Array:
  """Tokens ``[B, N]`` to components ``[B, num]``; over the set the squares of a row sum to 1 in the mean."""
  mean, components = basis
  return (code_vectors(codebook, tokens) - mean) @ components
