"""Stored outputs of the reference implementations (``tests/golden/discrete/README.md``)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parents[1] / "golden" / "discrete"


def load(name: str) -> dict[str, np.ndarray]:
  with np.load(FOLDER / f"{name}.npz") as file:
    return dict(file)


def in_order(order: np.ndarray, *distributions: np.ndarray) -> list[np.ndarray]:
  """Distributions ``[..., V]`` with tokens renamed by their rank in ``order [..., V]``.

  The reference sorts with ties in an arbitrary order and stores that order. Our rules break ties by ascending id. Renaming
  makes the two orders equal.
  """
  return [np.take_along_axis(distribution, order.astype(np.int64), axis=-1) for distribution in distributions]


def table_in_order(order: np.ndarray, table: np.ndarray) -> np.ndarray:
  """Tables ``[N, V, V]`` for tokens renamed by ``order [N, V]``; one table ``[V, V]`` serves all."""
  order = order.astype(np.int64)
  table = np.broadcast_to(table, (order.shape[0], *table.shape[-2:]))
  return np.take_along_axis(np.take_along_axis(table, order[:, :, None], axis=1), order[:, None, :], axis=2)
