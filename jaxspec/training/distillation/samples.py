"""Rows of tokens with their prompts, in the memory of the host: what a student is trained on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxspec.core.types import PyTree
from jaxspec.training.epochs import epochs_of

Batch = dict[str, Any]


class Samples(NamedTuple):
  """``M`` rows of ``N`` tokens.

  Attributes:
    tokens: ``[M, N]`` int32.
    lengths: ``[M]`` int32, the valid tokens of each row, its end token included.
    prompt_rows: ``[M]`` int32, the row of ``condition`` that each row was drawn for.
    condition: a type of `jaxspec.models.conditions`, NumPy leaves ``[P, ...]`` of the distinct prompts.
    taught: ``[M, ...]`` arrays of the target by name, which a loss then need not compute.
  """

  tokens: np.ndarray
  lengths: np.ndarray
  prompt_rows: np.ndarray
  condition: PyTree
  taught: dict[str, np.ndarray] = {}

  def batch(self, rows: np.ndarray) -> Batch:
    """The batch of some rows ``[B]``: ``tokens [B, N]``, ``valid [B, N]`` bool, ``condition``, the arrays of ``taught``."""
    at = self.prompt_rows[rows]
    batch = {
      "tokens": self.tokens[rows].astype(np.int32),
      "valid": np.arange(self.tokens.shape[1])[None] < self.lengths[rows][:, None],
      "condition": jax.tree.map(lambda leaf: leaf[at], self.condition),
    }
    return batch | {name: leaf[rows] for name, leaf in self.taught.items()}

  def first(self, num: int) -> Samples:
    """The first ``num`` rows.

    Raises:
      ValueError: if there are fewer.
    """
    if len(self.tokens) < num:
      raise ValueError(f"Must have {num} samples, we instead got {len(self.tokens)}: set num_samples")
    of_rows = (self.tokens[:num], self.lengths[:num], self.prompt_rows[:num])
    return Samples(*of_rows, self.condition, {name: leaf[:num] for name, leaf in self.taught.items()})

  def with_taught(self, teach_fn: Callable[[Batch], dict[str, Any]], batch_size: int) -> Samples:
    """The samples with the arrays that ``teach_fn`` returns for batches of ``batch_size`` rows."""
    num = len(self.tokens)
    taught: dict[str, np.ndarray] = {}
    for start in range(0, num, batch_size):
      at = np.minimum(np.arange(start, start + batch_size), num - 1)  # one shape, so that there is one program
      for name, leaf in jax.device_get(teach_fn(self.batch(at))).items():
        if name not in taught:
          taught[name] = np.empty((num, *leaf.shape[1:]), leaf.dtype)
        taught[name][start : start + batch_size] = leaf[: num - start]
    return self._replace(taught=taught)


def split_rows(num_samples: int, held_out: int) -> tuple[np.ndarray, np.ndarray]:
  """Rows for training, and ``held_out`` rows for evaluation."""
  order = np.random.default_rng(0).permutation(num_samples)
  return order[held_out:], order[:held_out]


def make_batch_fn(samples: Samples, rows: np.ndarray, batch_size: int, seed: int) -> Callable[[int], Batch]:
  """``step -> batch``: epochs over ``rows`` in random order, a pure function of seed and step."""
  chosen = epochs_of(rows, batch_size, seed)
  return lambda step: samples.batch(chosen(step))
