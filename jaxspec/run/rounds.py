"""A job round by round, with a result after each round."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator
from typing import Any

import jax

from jaxspec.core import rng
from jaxspec.core.state import DecodeResult, SpecParams
from jaxspec.core.state import result as result_of
from jaxspec.core.types import Array, PyTree
from jaxspec.families.family import Family
from jaxspec.run.batches import Batches
from jaxspec.run.job import Job
from jaxspec.run.run import prepare


def rounds(
  job: Job, batches: Batches, number: int = 0
) -> Generator[tuple[DecodeResult, Callable[[], DecodeResult]], None, None]:
  """Decodes one batch, with a result after the prefill and after every round.

  Yields each result in generation order, and a function that returns it after `Family.finish`, for `Family.decode`. Later
  tokens are 0, with origin ``EMPTY``. A method without rounds yields one result. The next round reuses the buffers, so copy
  values before it.

  Args:
    batches: rows with their keys (`Job.batches`).
    number: of the batch.
  Raises:
    ValueError: for a target without weights.
  """
  pipeline, parts, family = job.pipeline, job.decoder.parts, job.pipeline.family
  pipeline.check_weights()
  key_data, condition = batches.key_data[number], batches.condition[number]
  keys = lambda: rng.of_key_data(key_data)
  if parts.decode is not None:
    whole = prepare(job, batches)(key_data, condition)
    yield whole, lambda: whole
    return
  drafter, _ = parts.pair()
  with pipeline.context():
    prepared = family.prepare(keys(), condition)
    end_token = family.end_token if job.ends else None
    sides = job.decoder.iterate(prepared, key=keys(), max_len=job.max_len, end_token=end_token)
    finish = _finish(job)
  while True:
    with pipeline.context():  # not while the caller has its turn
      side = next(sides, None)
      if side is None:
        return
      found = result_of(side, drafter)
    yield found, functools.partial(finish, found, prepared, key_data, parts.params)


def _finish(job: Job) -> Callable[..., DecodeResult]:
  """`Family.finish` of results outside of a program: ``(result, prepared condition, key data, params)``, compiled."""
  family, sampling, pipeline = job.pipeline.family, job.sampling, job.pipeline
  if type(family).finish is Family.finish:
    return lambda result, *inputs: result

  def traced(result: DecodeResult, condition: PyTree, key_data: Array, params: SpecParams) -> DecodeResult:
    return family.finish(result, condition, rng.of_key_data(key_data), params, sampling)

  program = pipeline.programs.get(("finish", sampling), lambda: jax.jit(traced))

  def finish(*inputs: Any) -> DecodeResult:
    with pipeline.context():
      return program(*inputs)

  return finish
