"""Comparison with stored outputs of an official implementation, array by array."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


class Row(NamedTuple):
  """One line of the table; a ``tolerance`` of 0 requires equality."""

  golden: str
  array: str
  max_error: float
  tolerance: float

  @property
  def passed(self) -> bool:
    return self.max_error <= self.tolerance


def max_error(got: Any, expected: Any) -> float:
  """Largest absolute difference; infinite if the shapes differ."""
  got, expected = np.asarray(got), np.asarray(expected)
  if got.shape != expected.shape:
    return float("inf")
  return float(np.max(np.abs(got.astype(np.float64) - expected.astype(np.float64)), initial=0.0))


class GoldenRows:
  """Compares arrays by name with those of ``folder/golden.npz``; ``inputs`` are arrays that need no check."""

  def __init__(self, folder: Path, golden: str, inputs: Collection[str] = ()):
    self.golden, self._inputs = golden, frozenset(inputs)
    self.arrays = dict(np.load(folder / f"{golden}.npz"))
    self.rows: list[Row] = []

  def __getitem__(self, name: str) -> np.ndarray:
    return self.arrays[name]

  def add(self, name: str, got: Any, tolerance: float) -> None:
    self.rows.append(Row(self.golden, name, max_error(got, self.arrays[name]), tolerance))

  def done(self) -> list[Row]:
    if lacking := self.arrays.keys() - self._inputs - {row.array for row in self.rows}:
      raise AssertionError(f"Must have a check of every array of {self.golden}, {sorted(lacking)} have none")
    return self.rows
