"""A decode whose rounds a program sees, and may end: the callback of `jaxspec.Pipeline`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from jaxspec.errors import Cancelled, OptionError
from jaxspec.run.batches import Batches
from jaxspec.run.generation import Generation
from jaxspec.run.job import Job
from jaxspec.run.memory_check import check_memory, memory_errors
from jaxspec.run.rounds import rounds


class Committed(NamedTuple):
  """What the rows of a batch have after a round. Arrays are numpy.

  Attributes:
    round: 0 is the prefill.
    rows: ``[B]`` int, which rows of the call these are.
    tokens: ``[B, N]`` int32 or ``[B, N, C]`` float32, in generation order; 0 after a row's length.
    lengths: ``[B]`` int32, committed tokens.
    num_new: ``[B]`` int32, those of this round: ``tokens[b, lengths[b] - num_new[b] : lengths[b]]``.
  """

  round: int
  rows: np.ndarray
  tokens: np.ndarray
  lengths: np.ndarray
  num_new: np.ndarray


Callback = Callable[[Committed], object]


@memory_errors()
def run_with_callback(job: Job, batches: Batches, callback: Callback) -> Generation:
  """Decodes a job's rows round by round (`jaxspec.run.rounds.rounds`), with the tokens of the compiled loop.

  Args:
    callback: called after the prefill and after every round of every batch. If it raises `Cancelled`, the result has the
      tokens so far and the error as ``failure``; other errors are passed on.
  Returns:
    A generation whose ``run_s`` includes compilation and the time of the callback.
  Raises:
    OptionError: with a mesh, whose devices run whole decodes, and for a callback that cannot be called.
    OutOfMemory: for a batch that does not fit into memory.
    ValueError: for a target without weights.
  """
  if not callable(callback):
    raise OptionError(f"Must have a function as callback, we instead got {callback!r}")
  if job.pipeline.mesh is not None:
    raise OptionError("Must have no mesh with a callback: its devices run whole decodes")
  check_memory(job, batches.rows)
  start, found, failure, num = time.perf_counter(), [], None, 0
  for number in range(len(batches)):
    rows = np.arange(num, min(num + batches.rows, batches.num))
    num, lengths, finish = int(rows[-1]) + 1, np.zeros(len(rows), np.int32), None
    try:
      for index, (result, finish) in enumerate(rounds(job, batches, number)):
        before, (tokens, lengths) = lengths, jax.device_get((result.tokens[: len(rows)], result.lengths[: len(rows)]))
        callback(Committed(index, rows, tokens, lengths, lengths - before))
    except Cancelled as error:
      failure = error
    assert finish is not None, "a decode has a prefill"
    found.append(jax.block_until_ready(finish()))
    if failure is not None:
      break
  return Generation(job, batches.first(num), found, run_s=[time.perf_counter() - start], failure=failure)
