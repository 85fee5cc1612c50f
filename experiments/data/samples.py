"""The file of a target's images, written by `experiments.data.own_samples` and read by trainings of heads and drafts.

It holds ``tokens [M, N]``, and the prompts: ``ids`` and ``mask [M, P]``, or ``labels [M]`` of classes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from experiments.train.command import epochs_of
from jaxspec.core.types import Array

Samples = dict[str, np.ndarray]


def load_samples(path: str | Path, at_least: int = 1, model: str | None = None) -> Samples:
  """The samples of a file.

  Args:
    model: the target that draws them, by folder or shipped name.
  Raises:
    ValueError: if there is no such file, or it has fewer images than ``at_least``.
  """
  path = Path(path)
  if not path.exists():
    of = "" if model is None else f" --model {model}"
    raise ValueError(
      f"Must have the target's samples at {path}; make them: python -m experiments.data.own_samples{of} --out {path}"
    )
  with np.load(path) as archive:
    samples = dict(archive)
  if (found := len(samples["tokens"])) < at_least:
    raise ValueError(f"Must have at least {at_least} samples in {path}, we instead got {found}")
  return samples


def split_rows(num_samples: int, held_out: int) -> tuple[np.ndarray, np.ndarray]:
  """Rows for training and ``held_out`` rows for evaluation, of both kinds of prompts."""
  order = np.random.default_rng(0).permutation(num_samples)
  return order[held_out:], order[:held_out]


def make_batch_fn(samples: Samples, rows: np.ndarray, batch_size: int, seed: int):
  """``index -> batch``: epochs over ``rows`` in random order, a pure function of seed and index."""
  chosen = epochs_of(rows, batch_size, seed)
  return lambda index: pick(samples, chosen(index))


def pick(samples: Samples, rows: np.ndarray) -> Samples:
  """The batch of some rows, tokens as int32."""
  return {name: leaf[rows].astype(np.int32) if name == "tokens" else leaf[rows] for name, leaf in samples.items()}


def with_logits(samples: Samples, target_fn: Callable[[Samples], Array], rows: int = 16) -> Samples:
  """The samples with ``logits``: the output of ``target_fn`` for batches of ``rows``, in float32."""
  num = len(samples["tokens"])
  found = None
  for start in range(0, num, rows):
    at = np.minimum(np.arange(start, start + rows), num - 1)  # one shape, so that there is one program
    part = np.asarray(target_fn(pick(samples, at)), np.float32)
    found = np.empty((num, *part.shape[1:]), np.float32) if found is None else found
    found[start : start + rows] = part[: num - start]
  return samples | {"logits": found}


def write_samples(path: Path, samples: Samples) -> None:
  """Replaces the file atomically."""
  part = path.with_suffix(".part.npz")
  np.savez(part, **samples)
  os.replace(part, path)
