"""Sparse integer distributions for a link: their supports, weights and prices in bits. Pure, traced functions.

Names are imported when they are first used, so that code which only reads messages (`jaxspec.codecs.bit_costs`) needs no
JAX.
"""

from __future__ import annotations

import importlib
from typing import Any

# Where each public name lives.
_MODULES = {
  "jaxspec.codecs.bit_costs": "CODINGS",
  "jaxspec.codecs.codec": "SparseCodec conformal_lattice topk_lattice",
  "jaxspec.codecs.conformal": "Conformal ConformalParams",
  "jaxspec.codecs.sparse_distribution": "SparseDistribution",
  "jaxspec.codecs.sparsify": "TopK TopKParams",
}
_HOME = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = [*_HOME]


def __getattr__(name: str) -> Any:
  if name not in _HOME:
    raise AttributeError(f"module 'jaxspec.codecs' has no attribute {name!r}")
  value = getattr(importlib.import_module(_HOME[name]), name)
  globals()[name] = value
  return value


def __dir__() -> list[str]:
  return sorted({*globals(), *__all__})
