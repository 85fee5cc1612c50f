"""Comparison of decoded results for the contract, and its error messages."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from jaxspec.core.state import DecodeResult
from jaxspec.core.types import HostArray, PyTree


def require(holds: Any, clause: str, wanted: str, got: Any = "others") -> None:
  """Raises an AssertionError that begins with the clause, unless ``holds``."""
  if not holds:
    raise AssertionError(f"{clause}: Must have {wanted}, we instead got {got}")


def on_host(tree: PyTree) -> PyTree:
  """The values as NumPy arrays."""
  return jax.tree.map(np.asarray, tree)


def row_of(out: DecodeResult, row: int) -> DecodeResult:
  """One row of a result."""
  return jax.tree.map(lambda leaf: leaf[row], out)


def differs(wanted: HostArray, got: HostArray) -> bool:
  """Whether shapes or values differ; floats may differ by rounding."""
  if wanted.shape != got.shape:
    return True
  if np.issubdtype(wanted.dtype, np.floating):  # separately compiled programs may round differently
    return not np.allclose(wanted, got, rtol=2e-3, atol=2e-3, equal_nan=True)
  return not np.array_equal(wanted, got)


def check_same(wanted: DecodeResult, got: DecodeResult, clause: str, words: str) -> None:
  """Compares all fields of two results (or of one row of each)."""
  for name in DecodeResult._fields:
    for (path, ours), theirs in zip(
      jax.tree_util.tree_leaves_with_path(getattr(wanted, name)), jax.tree.leaves(getattr(got, name)), strict=True
    ):
      where = name + jax.tree_util.keystr(path)
      require(not differs(ours, theirs), clause, f"{where} {short(theirs)} for {words}", short(ours))


def check_same_tokens(wanted: DecodeResult, got: DecodeResult, clause: str, words: str) -> None:
  """Compares the tokens alone."""
  same = not differs(wanted.tokens, got.tokens)
  require(same, clause, f"tokens {short(got.tokens)} for {words}", short(wanted.tokens))


def short(values: HostArray) -> str:
  """Values in one line."""
  return np.array2string(np.asarray(values), precision=3, threshold=24, separator=",").replace("\n", "")


def as_arrays(tree: PyTree) -> PyTree:
  """The values as new arrays."""
  return jax.tree.map(lambda leaf: jax.device_put(np.asarray(leaf)), tree)
