"""Correlation of the exact bias of single tokens (`jaxspec audit`) with the harm to whole images.

Over the audited lossy rows of a table: rank correlation of the total variation per token with the loss of correct images and
with the change of unconstrained attributes, each with a permutation test. Rows are the units, so a table of few rows detects
only strong correlations.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from experiments.engine import lossy
from jaxspec.methods import METHODS

PERMUTATIONS = 9999


class Correlation(NamedTuple):
  """Spearman's rank correlation."""

  value: float
  p_value: float  # two-sided, of no correlation
  rows: int


def harms(document: dict[str, Any]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
  """Total variation per token and harm of every audited lossy row, by harm; a loss is that against `lossy.reference_of`."""
  rows = audited(document)
  right = lambda row: row["metrics"]["right"]["value"]
  bias = lambda chosen: np.array([row["audit"]["tv"]["value"] for row in chosen])
  seen = [row for row in rows if row["open"] is not None]
  return {
    "the loss of correct images": (
      bias(rows),
      np.array([right(lossy.reference_of(row, document)) - right(row) for row in rows]),
    ),
    "the difference of unconstrained attributes": (
      bias(seen),
      np.array([row["open"]["value"] - row["open"]["expected"] for row in seen]),
    ),
  }


def audited(document: dict[str, Any]) -> list[dict[str, Any]]:
  """Rows of methods that are not exact, with their bias."""
  return [row for row in document["rows"] if row.get("audit") and not METHODS[row["method"]].exact]


def rank_correlation(first: np.ndarray, second: np.ndarray, *, seed: int = 0) -> Correlation:
  """Of two vectors ``[N]``; equal entries share the mean of their ranks."""
  one, other = (_ranks(np.asarray(values, np.float64)) for values in (first, second))
  size = float(np.linalg.norm(one) * np.linalg.norm(other))
  if not size:
    return Correlation(0.0, 1.0, len(one))
  value, generator = float(one @ other) / size, np.random.default_rng(seed)
  null = np.array([one @ generator.permutation(other) for _ in range(PERMUTATIONS)]) / size
  p_value = (1 + int(np.sum(np.abs(null) >= abs(value) - 1e-12))) / (1 + PERMUTATIONS)
  return Correlation(value, p_value, len(one))


def _ranks(values: np.ndarray) -> np.ndarray:
  """Ranks with mean 0."""
  below, equal = (values[:, None] > values[None]).sum(1), (values[:, None] == values[None]).sum(1)
  ranks = below + (equal - 1) / 2
  return ranks - ranks.mean()


def sentences(document: dict[str, Any]) -> list[str]:
  """The correlations of a table; empty with fewer than four audited lossy rows."""
  if len(audited(document)) < 4:
    return []
  found = {name: rank_correlation(*pair) for name, pair in harms(document).items() if len(pair[0]) >= 4}
  each = [f"{name} {one.value:+.2f} (p {one.p_value:.2g}, {one.rows} rows)" for name, one in found.items()]
  return [f"Rank correlation of the exact total variation per token with {' and '.join(each)}."]
