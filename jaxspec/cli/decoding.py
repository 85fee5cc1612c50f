"""Runs a decode in equal batches of one compiled program, with compilation and decoding timed apart."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jaxspec.cli.batches import Batches
from jaxspec.cli.errors import interruptible
from jaxspec.cli.job import Job
from jaxspec.cli.memory import check_memory
from jaxspec.cli.working import Working
from jaxspec.decode import measure
from jaxspec.decode.state import Counters, DecodeResult
from jaxspec.decoder import Decoder
from jaxspec.methods import Method, Plain


@dataclasses.dataclass
class MethodRun:
  """What one method decoded, and how long it took.

  Attributes:
    method: as it ran.
    by_batch: results as the programs returned them.
    result: all rows, numpy leaves ``[images, ...]``.
    compile_s: tracing and compiling the decode.
    run_s: decoding all rows to tokens, once per repeat.
    outputs: images ``[images, H, W, 3]`` uint8, or texts; None until `finish`.
    pixels_s: seconds of making them, compilation included.
    messages: what two ends emitted that decoded this, or the same once more (`jaxspec.cli.messages`); None without any.
    failure: what ended the decode before all rows were there; those that are there are whole.
  """

  method: Method
  by_batch: list[DecodeResult]
  result: DecodeResult
  compile_s: float
  run_s: list[float]
  outputs: np.ndarray | list[str] | None = None
  pixels_s: float = 0.0
  messages: Any = None
  failure: Exception | None = None

  @property
  def name(self) -> str:
    """Name of the method."""
    return self.method.name

  @property
  def heading(self) -> str:
    """What columns and panels are called."""
    return "plain" if self.name == Plain.name else self.name

  @property
  def num(self) -> int:
    """Rows."""
    return len(self.result.lengths)

  @property
  def num_tokens(self) -> int:
    """Tokens of all rows."""
    return int(np.sum(self.result.lengths))

  @property
  def median_s(self) -> float:
    """Seconds of decoding, the median of the repeats."""
    return float(np.median(self.run_s))

  @property
  def token_s(self) -> float:
    """Seconds per token, the median of the repeats, which all draw the same tokens."""
    return measure.per_token([self.median_s], [self.num_tokens])[0]

  def counters(self) -> dict[str, np.ndarray]:
    """Counters as ``{name: [images] int}``."""
    return per_row(self.result.counters)


def decode_methods(job: Job, batches: Batches, *, methods: list[Method], repeats: int, report: Working) -> list[MethodRun]:
  """Decodes to tokens with every method, on the same prompts and keys.

  Args:
    repeats: 0 times the one run that gives the tokens; else that one is the warm-up and ``repeats`` timed runs
      follow, the methods taking turns.
    report: told what is going on.
  """
  decoders = [job.decoder(method) for method in methods]
  for decoder in decoders:
    check_memory(decoder, job.condition, rows=batches.rows, max_len=job.max_len, noun=job.noun)
  programs, compile_s, results, first_s = [], [], [], []
  for decoder in decoders:
    report(f"Compiling {decoder.method.title}")
    program, seconds = interruptible(compile_decode, job, decoder, batches)
    programs.append(program)
    compile_s.append(seconds)
  for decoder, program in zip(decoders, programs):
    report(f"Decoding {batches.num} {job.noun}s by {decoder.method.title}")
    done = lambda count: report.step(min(count * batches.rows, batches.num), batches.num, job.noun)
    parts, seconds = _timed(program, batches, done)
    results.append(parts)
    first_s.append(seconds)
  run_s = [[] if repeats else [seconds] for seconds in first_s]
  report("Timing")
  turns = [index for _ in range(repeats) for index in range(len(decoders))]
  for turn, index in enumerate(turns):
    report.step(turn, len(turns), "run", f"Timing {decoders[index].method.title}")
    run_s[index].append(_timed(programs[index], batches)[1])
  whole = [_whole(parts, batches.num) for parts in results]
  return [MethodRun(d.method, *rest) for d, *rest in zip(decoders, results, whole, compile_s, run_s)]


def finish(job: Job, batches: Batches, runs: list[MethodRun], report: Working) -> None:
  """Turns the tokens of all runs into images or texts."""
  report(f"Turning tokens into {job.noun}s")
  decode, sampling = job.pipeline.host.decode, job.sampling
  for run in runs:
    start, parts = time.perf_counter(), []
    for result, condition in zip(run.by_batch, batches.condition):
      lengths = np.asarray(result.lengths)
      parts.append(interruptible(decode, result.tokens, lengths=lengths, condition=condition, sampling=sampling))
    whole = [text for part in parts for text in part] if isinstance(parts[0], list) else np.concatenate(parts)
    run.outputs, run.pixels_s = whole[: run.num], time.perf_counter() - start


def decode_once(job: Job, batches: Batches, method: Method, *, audit: bool = False) -> DecodeResult:
  """Decodes all rows to tokens; leaves ``[images, ...]`` in numpy. ``audit``: see `jaxspec.decoder.Decoder`."""
  decoder = job.decoder(method, audit=audit)
  check_memory(decoder, job.condition, rows=batches.rows, max_len=job.max_len, noun=job.noun)
  program, _ = interruptible(compile_decode, job, decoder, batches)
  results, _ = _timed(program, batches)
  return _whole(results, batches.num)


def compile_decode(job: Job, decoder: Decoder, batches: Batches) -> tuple[Callable[..., DecodeResult], float]:
  """The decode of one batch as a compiled program, ``(key_data, condition) -> DecodeResult``, and the seconds that took."""
  params, decode = decoder.parts.params, job.pipeline.decode_fn(decoder, job.max_len)
  start = time.perf_counter()
  place = job.pipeline.place
  with job.pipeline.context():
    compiled = jax.jit(decode).lower(params, *place((batches.key_data[0], batches.condition[0]))).compile()
  seconds = time.perf_counter() - start
  return lambda key_data, condition: compiled(params, *place((key_data, condition))), seconds


def _timed(
  program: Callable[..., DecodeResult], batches: Batches, done: Callable[[int], None] = lambda count: None
) -> tuple[list[DecodeResult], float]:
  """Results by batch and seconds; ``done`` is told how many batches are."""

  def work():
    found = []
    for batch in zip(batches.key_data, batches.condition):
      found.append(jax.block_until_ready(program(*batch)))
      done(len(found))
    return found

  start = time.perf_counter()
  outputs = interruptible(work)
  return outputs, time.perf_counter() - start


def _whole(results: list[DecodeResult], num: int) -> DecodeResult:
  """The first ``num`` rows of all batches."""
  return jax.tree.map(lambda *leaves: np.concatenate(leaves)[:num], *jax.device_get(results))


def per_row(counters: Counters) -> dict[str, np.ndarray]:
  """Counters as ``{name: [images] int}``."""
  return {name: np.asarray(getattr(counters, name)) for name in counters.__dataclass_fields__}
