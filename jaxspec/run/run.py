"""From a job to its result: compilation, decoding by batches, timing in turns.

`run` is the one way to decode: `jaxspec.Pipeline.__call__`, the commands, the studio and the experiments call it, or
`prepare` to decode single batches.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from jaxspec.core.state import DecodeResult, SpecParams
from jaxspec.core.types import Array, HostArray, PyTree
from jaxspec.run.batches import Batches
from jaxspec.run.generation import Generation
from jaxspec.run.job import Job
from jaxspec.run.memory_check import check_memory, memory_errors
from jaxspec.run.progress import SILENT, Progress
from jaxspec.run.round_times import timed_params


@dataclasses.dataclass(frozen=True, eq=False)
class Prepared:
  """A compiled decode of batches of one shape.

  Attributes:
    job: its job.
    compile_s: seconds of tracing and compiling; 0 if the program was cached.
    program: ``(params, key_data, condition) -> DecodeResult``.
    params: those of the job's method, with times of rounds if it chooses draft lengths (`jaxspec.run.round_times`).
  """

  job: Job
  compile_s: float
  program: Callable[[SpecParams, Array, PyTree], DecodeResult]
  params: SpecParams

  def __call__(self, key_data: HostArray, condition: PyTree, params: SpecParams | None = None) -> DecodeResult:
    """Decodes one batch.

    Args:
      key_data: ``[rows, 2]`` uint32.
      condition: leaves ``[rows, ...]``.
      params: parameters of the shapes that were prepared; those of the job's method by default.
    """
    pipeline = self.job.pipeline
    params = self.params if params is None else params
    with pipeline.context():
      return self.program(params, *pipeline.place((key_data, condition)))


def prepare(job: Job, batches: Batches, params: SpecParams | None = None) -> Prepared:
  """Compiles the decode of a job's batches, or takes it from the pipeline's cache.

  Args:
    params: parameters of the shapes of later calls; those of the job's method by default.
  Raises:
    ValueError: for a target without weights.
    OutOfMemory: for a batch that clearly does not fit into memory.
  """
  pipeline, decoder = job.pipeline, job.decoder
  pipeline.check_weights()
  # With several processes, each needs all rows at the end.
  whole = None if pipeline.mesh is None else NamedSharding(pipeline.mesh, PartitionSpec())

  def make() -> Callable[..., DecodeResult]:
    check_memory(job, batches.rows)
    return pipeline.decode_fn(decoder, job.max_len, ends=job.ends)

  params = decoder.parts.params if params is None else params
  inputs = params, *pipeline.place((batches.key_data[0], batches.condition[0]))
  with pipeline.context():
    key = pipeline.static_key(decoder, job.max_len, ends=job.ends)
    program, seconds = pipeline.programs.compiled(key, make, *inputs, out_shardings=whole)
    place = lambda keys: pipeline.place((np.asarray(jax.random.key_data(keys)), batches.condition[0]))
    decode = lambda params, keys: program(params, *place(keys))
    timed = timed_params(decoder, batches.condition[0], job.max_len, decode)
  return Prepared(job, seconds, program, timed)


def run(job: Job, batches: Batches, progress: Progress = SILENT) -> Generation:
  """Decodes a job's rows.

  Args:
    batches: rows with their keys (`Job.batches`).
  Raises:
    ValueError: as `prepare`.
    OutOfMemory: as `prepare`, or during the decode.
  """
  return in_turns([job], batches, progress=progress)[0]


@memory_errors()
def in_turns(jobs: Sequence[Job], batches: Batches, *, repeats: int = 0, progress: Progress = SILENT) -> list[Generation]:
  """Decodes the same rows by several jobs.

  Args:
    repeats: 0: one run, which is timed. Otherwise the first run is the warm-up, and ``repeats`` timed runs follow, with the
      jobs in turns.
  Raises:
    ValueError, OutOfMemory: as `run`.
  """
  noun, found = jobs[0].noun, []
  prepared = []
  for job in jobs:
    progress(f"Compiling {job.method.title}")
    prepared.append(prepare(job, batches))
  for one in prepared:
    progress(f"Decoding {batches.num} {noun}{'s' * (batches.num != 1)} by {one.job.method.title}")
    done = lambda count: progress.step(min(count * batches.rows, batches.num), batches.num, noun)
    results, seconds = _timed(one, batches, done)
    found.append(Generation(one.job, batches, results, one.compile_s, [] if repeats else [seconds]))
  if repeats:
    progress("Timing")
  turns = [index for _ in range(repeats) for index in range(len(jobs))]
  for turn, index in enumerate(turns):
    progress.step(turn, len(turns), "run", f"Timing {jobs[index].method.title}")
    found[index].run_s.append(_timed(prepared[index], batches)[1])
  return found


def _timed(
  decode: Prepared, batches: Batches, done: Callable[[int], None] = lambda count: None
) -> tuple[list[DecodeResult], float]:
  """Results by batch and seconds; ``done`` receives the number of finished batches."""
  start, found = time.perf_counter(), []
  for batch in zip(batches.key_data, batches.condition):
    found.append(jax.block_until_ready(decode(*batch)))
    done(len(found))
  return found, time.perf_counter() - start
