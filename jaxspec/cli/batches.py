"""The rows of a command in equal batches, so that one compiled program decodes all of them."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from jaxspec import rng
from jaxspec.cli.errors import UserError
from jaxspec.types import Array, PyTree

MAX_BATCH = 1024
MAX_ROWS = 1024
DEFAULT_BATCH = 16


class Batches(NamedTuple):
  """The images (or texts) in equal batches; the last one is filled up with copies of the last row."""

  prompt: np.ndarray  # [images] int, the prompt of each image
  sample: np.ndarray  # [images] int
  key_data: list[jax.Array]  # per batch [rows, ...] uint32
  condition: list[PyTree]  # per batch, leaves [rows, ...]

  @property
  def rows(self) -> int:
    """Rows of a batch."""
    return self.key_data[0].shape[0]

  @property
  def num(self) -> int:
    """Rows that were asked for, copies left out."""
    return len(self.prompt)


def batch_rows(batch: int | None, num: int) -> int:
  """Rows of the compiled batch: ``batch`` at most, and no more than an even split of ``num`` rows needs."""
  if num > MAX_ROWS:
    raise UserError(f"Must have at most {MAX_ROWS} images or texts in one command, we instead got {num}")
  check_batch(batch)
  limit = min(batch or DEFAULT_BATCH, num)
  num_batches = -(-num // limit)
  return -(-num // num_batches)


def check_batch(batch: int | None) -> None:
  """Refuses a number of rows that no batch has."""
  if batch is not None and not 1 <= batch <= MAX_BATCH:
    raise UserError(f"Must have a batch from 1 to {MAX_BATCH}, we instead got {batch}")


def make_batches(condition: PyTree, *, samples: int, seed: int, rows: int) -> Batches:
  """Splits ``samples`` images per prompt into batches of ``rows``.

  Image s of prompt p decodes with `jaxspec.rng.sample_key`, whatever the batch.

  Args:
    condition: one row per prompt, numpy leaves.
  """
  num_prompts = jax.tree.leaves(condition)[0].shape[0]
  prompt, sample = np.divmod(np.arange(num_prompts * samples), samples)
  key_data = np.asarray(_key_data(np.uint32(seed), prompt, sample))
  keys, conditions = [], []
  for start in range(0, len(prompt), rows):
    image = np.minimum(np.arange(start, start + rows), len(prompt) - 1)
    keys.append(jax.device_put(key_data[image]))
    conditions.append(jax.device_put(jax.tree.map(lambda leaf, of=prompt[image]: leaf[of], condition)))
  return Batches(prompt, sample, keys, conditions)


@jax.jit
def _key_data(seed: Array, prompt: Array, sample: Array) -> Array:
  """Key data ``[images, ...]``; the seed is an argument, so that all seeds share one program."""
  one_key = lambda p, s: rng.sample_key(jax.random.key(seed, impl="threefry2x32"), p, s)
  return jax.random.key_data(jax.vmap(one_key)(prompt, sample))
