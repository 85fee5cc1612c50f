"""Runs a decode in equal batches of one compiled program, with compilation and decoding timed apart."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from jaxspec.cli.errors import UserError, interruptible
from jaxspec.cli.settings import Settings
from jaxspec.cli.sources import Source
from jaxspec.decode.loop import autoregress, speculate
from jaxspec.decode.methods import METHODS
from jaxspec.decode.state import Counters, DecodeResult
from jaxspec.link.driver import Traffic
from jaxspec.models.tokenizer_fns import to_uint8
from jaxspec.types import Drafter, PyTree, Verifier

ReportFn = Callable[[str], None]


class Batches(NamedTuple):
  """The pictures (or texts) in equal batches; the last one is filled up with copies of the last picture."""

  prompt: np.ndarray  # [pictures] int, the prompt of each picture
  sample: np.ndarray  # [pictures] int
  key_data: list[jax.Array]  # per batch [rows, ...] uint32
  condition: list[PyTree]  # per batch, leaves [rows, ...]

  @property
  def rows(self) -> int:
    return self.key_data[0].shape[0]


@dataclasses.dataclass
class MethodRun:
  """What one method decoded, and how long it took.

  Attributes:
    result: `DecodeResult` with numpy leaves ``[pictures, ...]``.
    images: ``[pictures, H, W, 3]`` uint8; None for texts.
    compile_s: tracing and compiling the decode.
    run_s: decoding all pictures to tokens, once per repeat.
    pixels_s: tokens to pixels, compilation included.
    traffic: what two ends emitted that decoded the same through messages; None where they did not run.
    wire_agrees: whether they made the same tokens.
  """

  method: str
  result: DecodeResult
  images: np.ndarray | None
  compile_s: float
  run_s: list[float]
  pixels_s: float
  traffic: Traffic | None = None
  wire_agrees: bool | None = None


def make_batches(condition: PyTree, *, samples: int, seed: int, rows: int) -> Batches:
  """Splits ``samples`` pictures per prompt into batches.

  Picture s of prompt p decodes with ``fold_in(fold_in(key(seed), p), s)``, whatever the batch.
  """
  num_prompts = jax.tree.leaves(condition)[0].shape[0]
  prompt, sample = np.divmod(np.arange(num_prompts * samples), samples)
  one_key = lambda p, s: jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), p), s)
  key_data = np.asarray(jax.jit(lambda p, s: jax.random.key_data(jax.vmap(one_key)(p, s)))(prompt, sample))
  keys, conditions = [], []
  for start in range(0, len(prompt), rows):
    picture = np.minimum(np.arange(start, start + rows), len(prompt) - 1)
    keys.append(jax.device_put(key_data[picture]))
    conditions.append(jax.device_put(_rows(condition, prompt[picture])))
  return Batches(prompt, sample, keys, conditions)


def _rows(condition: PyTree, index: np.ndarray) -> PyTree:
  return jax.tree.map(lambda leaf: leaf[index], condition)


def run_methods(
  source: Source, settings: Settings, batches: Batches, *, methods: list[str], repeats: int, report: ReportFn
) -> list[MethodRun]:
  """Draws pictures with every method; arguments as in `decode_methods`."""
  decoded = decode_methods(source, settings, batches, methods=methods, repeats=repeats, report=report)
  report("Turning tokens into pixels")
  draw, num = _pixel_decoder(source), len(batches.prompt)
  for run, results in decoded:
    start = time.perf_counter()
    run.images = interruptible(draw, results)[:num]
    run.pixels_s = time.perf_counter() - start
  return [run for run, _ in decoded]


def decode_methods(
  source: Source, settings: Settings, batches: Batches, *, methods: list[str], repeats: int, report: ReportFn
) -> list[tuple[MethodRun, list[DecodeResult]]]:
  """Decodes to tokens with every method.

  Args:
    methods: `jaxspec.decode.methods.METHODS` to run on the same prompts and keys.
    repeats: 0 times the one run that gives the tokens; else that one is the warm-up and ``repeats`` timed runs
      follow, the methods taking turns.
    report: told what is going on.
  Returns:
    What each method did, without pictures, and its results by batch.
  """
  check_memory(source, settings, batches.rows)
  names = {name: parts.title for name, parts in METHODS.items()}
  decoders, compile_s, first_s, results = {}, {}, {}, {}
  for method in methods:
    report(f"Compiling {names[method]}")
    decoders[method], compile_s[method] = interruptible(compile_decode, source, settings, batches, method)
  for method in methods:
    report(f"Decoding {len(batches.prompt)} {source.noun}s by {names[method]}")
    results[method], first_s[method] = _timed(decoders[method], batches)
  run_s = {method: [] if repeats else [first_s[method]] for method in methods}
  for repeat in range(repeats):
    for method in methods:
      report(f"Timing {names[method]}, {repeat + 1} of {repeats}")
      run_s[method].append(_timed(decoders[method], batches)[1])
  whole = {method: _whole(results[method], len(batches.prompt)) for method in methods}
  return [(MethodRun(m, whole[m], None, compile_s[m], run_s[m], 0.0), results[m]) for m in methods]


def _pixel_decoder(source: Source) -> Callable[[list[DecodeResult]], np.ndarray]:
  """Tokens of all batches to pictures ``[pictures, H, W, 3]`` uint8."""
  fns, params = source.tokenizer.fns, source.tokenizer.params
  decode = jax.jit(lambda params, tokens: to_uint8(fns.decode(params, tokens)))
  return lambda results: np.concatenate([np.asarray(decode(params, result.tokens)) for result in results])


def decode_once(source: Source, settings: Settings, batches: Batches, *, audit: bool = False) -> DecodeResult:
  """Decodes all pictures to tokens; leaves ``[pictures, ...]`` in numpy. ``audit``: see `jaxspec.decode.assemble`."""
  check_memory(source, settings, batches.rows)
  decoder, _ = interruptible(compile_decode, source, settings, batches, settings.method, audit)
  results, _ = _timed(decoder, batches)
  return _whole(results, len(batches.prompt))


def _whole(results: list[DecodeResult], num: int) -> DecodeResult:
  """The first ``num`` rows of all batches."""
  return jax.tree.map(lambda *leaves: np.concatenate(leaves)[:num], *jax.device_get(results))


def compile_decode(
  source: Source, settings: Settings, batches: Batches, method: str | None = None, audit: bool = False
) -> tuple[Callable, float]:
  """The decode of one batch as a compiled program, ``(key_data, condition) -> DecodeResult``, and the seconds that took.

  ``method`` goes over that of the settings; ``audit``: see `jaxspec.decode.assemble`.
  """
  method = method or settings.method
  params, drafter, verifier = source.assemble(settings, method=method, audit=audit)
  decode = decode_fn(source, method, drafter, verifier)
  start = time.perf_counter()
  with jax.default_matmul_precision(settings.matmul_precision):
    compiled = jax.jit(decode).lower(params, batches.key_data[0], batches.condition[0]).compile()
  seconds = time.perf_counter() - start
  return lambda key_data, condition: compiled(params, key_data, condition), seconds


def decode_fn(source: Source, method: str, drafter: Drafter, verifier: Verifier) -> Callable[..., DecodeResult]:
  """``(params, key_data, condition) -> DecodeResult`` of one batch, to be compiled; the parts are `Source.assemble`'s."""

  def decode(params, key_data, condition):
    keys = jax.random.wrap_key_data(key_data)
    kwargs = dict(verifier=verifier, max_len=source.num_tokens, end_token=source.end_token)
    if method == "ar":
      return autoregress(params, keys, condition, **kwargs)
    return speculate(params, keys, condition, drafter=drafter, **kwargs)

  return decode


def _timed(decoder: Callable, batches: Batches) -> tuple[list[DecodeResult], float]:
  def work():
    outputs = []
    for key_data, condition in zip(batches.key_data, batches.condition):
      outputs.append(jax.block_until_ready(decoder(key_data, condition)))
    return outputs

  start = time.perf_counter()
  outputs = interruptible(work)
  return outputs, time.perf_counter() - start


def per_row(counters: Counters) -> dict[str, np.ndarray]:
  """Counters as ``{name: [pictures] int}``."""
  return {name: np.asarray(getattr(counters, name)) for name in counters.__dataclass_fields__}


def check_memory(source: Source, settings: Settings, rows: int) -> None:
  """Refuses a batch whose caches and logits clearly do not fit.

  Raises:
    UserError: with the largest batch that should fit.
  """
  available = _available_bytes()
  need = _decode_bytes(source, settings, rows)
  if available is None or need <= available:
    return
  fits = int(rows * available / need)
  smaller = "use a smaller model, fewer drafts in a round or --dtype bfloat16"
  advice = f"use --batch {fits} or smaller" if fits else smaller
  things, free = f"{source.noun}{'s' * (rows != 1)}", max(available, 0)
  sizes = f"about {need / 2**30:.1f} GiB but {free / 2**30:.1f} GiB are free"
  raise UserError(f"A batch of {rows} {things} needs {sizes}: {advice}")


def _decode_bytes(source: Source, settings: Settings, rows: int) -> int:
  """Bytes of the caches, and of logits and laws with two temporaries each."""
  total = 0
  for network, guidance in ((source.target, True), (source.draft, source.draft_guidance)):
    if network is None:
      continue
    halves = 2 if settings.cfg_scale > 1 and guidance else 1
    window = settings.drafts_per_round(settings.method)
    slots = network.fns.prefix_len(source.condition) + source.num_tokens + window
    cache = jax.eval_shape(functools.partial(network.fns.init_cache, halves * rows, slots))
    total += sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(cache))
    total += 3 * 4 * halves * rows * (window + 1) * network.config.vocab_size
  return total


def _available_bytes() -> int | None:
  device = jax.devices()[0]
  if device.platform != "cpu":
    stats = device.memory_stats() or {}
    return stats["bytes_limit"] - stats["bytes_in_use"] if {"bytes_limit", "bytes_in_use"} <= stats.keys() else None
  found = []
  try:
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    found.append(int(fields["MemAvailable"].split()[0]) * 1024)
    found.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
  except (OSError, ValueError, KeyError):
    pass  # not Linux, or no limit on this process
  return min(found, default=None)


def tokens_of(run: MethodRun) -> int:
  return int(np.sum(run.result.lengths))


def median_s(run: MethodRun) -> float:
  return float(np.median(run.run_s))


