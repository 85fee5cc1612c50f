"""The rows of a job in equal batches, for one compiled program."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from jaxspec.core import rng
from jaxspec.core.types import Array, HostArray, PyTree
from jaxspec.errors import OptionError

MAX_BATCH = 1024
MAX_ROWS = 1024
DEFAULT_BATCH = 16


class Batches(NamedTuple):
  """Rows (images or texts) in equal batches; the last one is padded with copies of the last row.

  Attributes:
    prompt: ``[R]`` int, the prompt of each row.
    sample: ``[R]`` int, the number of each row within its prompt.
    key_data: for each batch ``[rows, 2]`` uint32.
    condition: for each batch, leaves ``[rows, ...]``.
  """

  prompt: np.ndarray
  sample: np.ndarray
  key_data: list[HostArray]
  condition: list[PyTree]

  @property
  def rows(self) -> int:
    """Rows of a batch."""
    return self.key_data[0].shape[0]

  @property
  def num(self) -> int:
    """Number of rows without copies."""
    return len(self.prompt)

  def __len__(self) -> int:
    return len(self.key_data)

  def first(self, num: int) -> Batches:
    """The first ``num`` rows in batches of the same size."""
    count = -(-num // self.rows)
    return Batches(self.prompt[:num], self.sample[:num], self.key_data[:count], self.condition[:count])


def batch_rows(batch: int | None, num: int) -> int:
  """Rows of the compiled batch: at most ``batch``, and at most an even split of ``num`` rows.

  Raises:
    OptionError: for more than `MAX_ROWS` rows, or a batch outside of 1 to `MAX_BATCH`.
  """
  if num > MAX_ROWS:
    raise OptionError(f"Must have at most {MAX_ROWS} images or texts in one command, we instead got {num}")
  check_batch(batch)
  limit = min(batch or DEFAULT_BATCH, num)
  num_batches = -(-num // limit)
  return -(-num // num_batches)


def check_batch(batch: int | None) -> None:
  """Raises an OptionError for a batch outside of 1 to `MAX_BATCH`."""
  is_whole = isinstance(batch, (int, np.integer)) and not isinstance(batch, bool)
  if batch is not None and not (is_whole and 1 <= batch <= MAX_BATCH):
    raise OptionError(f"Must have a batch from 1 to {MAX_BATCH}, we instead got {batch!r}")


def make_batches(condition: PyTree, *, samples: int, seed: int, rows: int) -> Batches:
  """``samples`` rows of every prompt in batches of ``rows``.

  Sample s of prompt p decodes with `jaxspec.core.rng.sample_key`, whatever the batch.

  Args:
    condition: one row per prompt, numpy leaves.
  """
  num_prompts = jax.tree.leaves(condition)[0].shape[0]
  prompt, sample = np.divmod(np.arange(num_prompts * samples), samples)
  return split(condition, np.asarray(_key_data(np.uint32(seed), prompt, sample)), prompt, sample, rows=rows)


def split(condition: PyTree, key_data: HostArray, prompt: np.ndarray, sample: np.ndarray, *, rows: int) -> Batches:
  """Rows with given keys in batches of ``rows``.

  Args:
    condition: one row per prompt.
    key_data: ``[R, 2]`` uint32.
    prompt: ``[R]`` int; ``sample`` likewise.
  """
  num = len(prompt)
  if rows == num and np.array_equal(prompt, np.arange(num)):
    return Batches(prompt, sample, [key_data], [condition])  # unchanged, on any device
  keys, conditions = [], []
  for start in range(0, num, rows):
    row = np.minimum(np.arange(start, start + rows), num - 1)
    keys.append(np.asarray(key_data)[row])
    conditions.append(jax.tree.map(lambda leaf, of=prompt[row]: np.asarray(leaf)[of], condition))
  return Batches(prompt, sample, keys, conditions)


@jax.jit
def _key_data(seed: Array, prompt: Array, sample: Array) -> Array:
  """Key data ``[R, 2]``; the seed is an argument, so that one program serves all seeds."""
  one_key = lambda p, s: rng.sample_key(jax.random.key(seed, impl="threefry2x32"), p, s)
  return jax.random.key_data(jax.vmap(one_key)(prompt, sample))
