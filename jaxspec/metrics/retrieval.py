"""Retrieval: whether the own item is nearer than the others.

The share of hits depends on how many candidates there are. `first_among` therefore asks about a fixed number of them, drawn
at random, and gives the exact expectation over these draws: figures of sets of any size compare, and nothing is noisy.
"""

from __future__ import annotations

import numpy as np


def first_among(
  similarity: np.ndarray, own: np.ndarray, eligible: np.ndarray | None = None, *, candidates: int = 32
) -> np.ndarray:
  """Probability that the own item is the most similar of ``candidates``, the others drawn at random.

  With m other eligible items, b of them at least as similar, the ``candidates - 1`` others miss all of the b with
  probability ``C(m - b, candidates - 1) / C(m, candidates - 1)``. Ties count against the own item.

  Args:
    similarity: ``[N, M]`` of N queries and M items.
    own: ``[N]`` int, each query's item.
    eligible: optional ``[N, M]`` bool, items that may be drawn; the own one is taken out.
    candidates: how many items a query chooses from, the own one included.
  Returns:
    ``[N]`` float64 in [0, 1].
  Raises:
    ValueError: if a query has too few items.
  """
  rows = np.arange(len(similarity))
  others = np.ones(similarity.shape, bool) if eligible is None else eligible.copy()
  others[rows, own] = False
  total = others.sum(axis=1)
  if candidates < 2 or (len(total) and total.min() < candidates - 1):
    raise ValueError(
      f"Must have at least 2 candidates and {candidates - 1} other items, we instead got {candidates} and "
      f"{total.min(initial=similarity.shape[1])}"
    )
  better = (others & (similarity >= similarity[rows, own][:, None])).sum(axis=1)
  probability = np.ones(len(similarity))
  for i in range(candidates - 1):
    probability *= np.maximum(total - better - i, 0) / (total - i)
  return probability


def nearest_is_own(similarity: np.ndarray, own: np.ndarray) -> np.ndarray:
  """``[N]`` bool: the own item is strictly more similar than all M others; ``similarity [N, M]``, ``own [N]`` int."""
  rows = np.arange(len(similarity))
  others = np.where(np.arange(similarity.shape[1])[None] == own[:, None], -np.inf, similarity)
  return similarity[rows, own] > others.max(axis=1)
