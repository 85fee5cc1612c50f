"""Digests of weights and of the JAX environment. `jaxspec.io.checkpoints.digest` is that of a checkpoint."""

from __future__ import annotations

import hashlib

import jax
import numpy as np

from jaxspec.core.types import Params


def weights_digest(params: Params) -> bytes:
  """SHA-256 of all weights with their paths, types and shapes."""
  digest = hashlib.sha256()
  for path, leaf in jax.tree_util.tree_leaves_with_path(params):
    array = np.asarray(leaf)
    digest.update(f"{jax.tree_util.keystr(path)} {array.dtype} {array.shape}\n".encode())
    digest.update(np.ascontiguousarray(array).tobytes())
  return digest.digest()


def environment() -> str:
  """What affects the bits besides programs and their arguments: the version of JAX, its settings, the devices."""
  names = ("jax_threefry_partitionable", "jax_default_matmul_precision", "jax_enable_x64")
  settings = [f"{name}={getattr(jax.config, name)}" for name in names]
  return "\n".join([jax.__version__, jax.default_backend(), *settings])
