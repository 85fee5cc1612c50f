"""The name of a network: a digest of all that its outputs depend on."""

from __future__ import annotations

import hashlib
from typing import Any

import jax
import numpy as np

from jaxspec.types import Params


def model_digest(family: str, config: Any, params: Params) -> bytes:
  """SHA-256 of the name of a family, its config, and all weights with their paths, types and shapes."""
  digest = hashlib.sha256(f"{family}\n{config!r}\n".encode())
  for path, leaf in jax.tree_util.tree_leaves_with_path(params):
    array = np.asarray(leaf)
    digest.update(f"{jax.tree_util.keystr(path)} {array.dtype} {array.shape}\n".encode())
    digest.update(np.ascontiguousarray(array).tobytes())
  return digest.digest()
