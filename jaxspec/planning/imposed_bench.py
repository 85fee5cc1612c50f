"""Measured speed-up of a method over plain decoding at imposed acceptance and calls, with random weights."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from jaxspec.core.expected_tokens import acceptance_for
from jaxspec.core.options import values_of
from jaxspec.drafters.auto_length import AutoLengthDrafter
from jaxspec.methods import Method, Plain
from jaxspec.planning.devices import Slice
from jaxspec.planning.plan import make_plan
from jaxspec.planning.random_weights import RandomModel
from jaxspec.planning.recorded_acceptance import RecordedAcceptance
from jaxspec.planning.this_machine import this_machine
from jaxspec.run import measure
from jaxspec.run.decoder import Decoder
from jaxspec.run.plain_comparison import Decode, compare_with_plain
from jaxspec.run.progress import SILENT, Progress
from jaxspec.sampling import SamplingConfig
from jaxspec.verifiers.imposed import Imposed


class ImposedBench:
  """Decodes of one batch size; plain decoding is compiled once for all methods.

  Args:
    random: the networks.
    batch: rows.
    sampling: settings of both decodes.
    repeats: timed repetitions.
    device: the device whose limits give the floors; see `jaxspec.planning.this_machine`.
  """

  def __init__(self, random: RandomModel, batch: int, sampling: SamplingConfig, repeats: int, device: Slice):
    self._random, self._batch, self._sampling, self._repeats, self._device = random, batch, sampling, repeats, device
    self._tokens = random.model.num_tokens
    self._condition = random.condition(batch)

  @functools.cached_property
  def _plain(self) -> tuple[Decoder, float]:
    decoder = self._random.decoder(Plain(), self._sampling)
    return decoder, self._seconds_of_first_call(decoder)

  def _decode(self, decoder: Decoder) -> Decode:
    return lambda key: decoder(self._condition, key=key, max_len=self._tokens)

  def _seconds_of_first_call(self, decoder: Decoder) -> float:
    return measure.seconds_of(lambda: self._decode(decoder)(jax.random.key(0)).tokens)

  def _floors(self, method: Method, acceptance: float | None = None, calls: float | None = None) -> dict[str, float]:
    """Bytes and operations of a round, and their least times at the device's limits."""
    random, device = self._random, self._device.device
    plan = make_plan(
      random.model, self._device, batches=(self._batch,), method=method, sampling=self._sampling, draft=random.named_draft,
      dtype=random.dtype, acceptance=acceptance, calls=calls,
    )  # fmt: skip
    speed = plan.batches[0].speed
    passes = [(1.0, speed.target)] + ([] if speed.draft is None else [(speed.draft_calls, speed.draft)])
    read = sum(number * one.read for number, one in passes)
    operations = sum(number * one.operations for number, one in passes)
    return {
      "read_bytes": read,
      "operations": operations,
      "memory_floor_ms": 1e3 * read / device.bandwidth,
      "arithmetic_floor_ms": 1e3 * operations / device.peak(random.dtype),
      "floor_ms": 1e3 * speed.round_s,
    }

  def plain(self) -> dict[str, Any]:
    """Figures of plain decoding alone; floors are those of a step."""
    decoder, first_s = self._plain
    keys = iter(range(1, self._repeats + 2))
    call = lambda: self._decode(decoder)(jax.random.key(next(keys))).tokens
    seconds = measure.Timing.of(measure.alternate({"plain": call}, self._repeats)["plain"])
    step_s, floors = seconds.median / self._tokens, self._floors(Plain())
    return {
      "seconds": seconds._asdict(),
      "tokens_per_s": self._batch / step_s,
      "step_ms": 1e3 * step_s,
      "share_of_floor": floors["floor_ms"] / (1e3 * step_s),
      "first_call_s": first_s,
      **floors,
    }

  def figures(
    self, method: Method, acceptance: float | RecordedAcceptance | None, *,
    calls: float | RecordedAcceptance | None = None, lock_step: bool = False,
  ) -> dict[str, Any]:  # fmt: skip
    """Figures of a method and plain decoding, in alternating runs.

    Args:
      acceptance: a probability, or a recording of this method; None for a method without drafts (`saves_without_drafts`).
      calls: calls of the target per token, or a recording, of a method that accepts locally; None: by its gate.
      lock_step: also measure a batch in which every row waits for the slowest one.
    Returns:
      ``over_plain`` (pairwise ratios of seconds), ``tokens_per_s``, ``tokens_per_call``, ``accepted_of_tested`` (of the
      drafts whose predecessors were accepted; None for trees, whose paths have any length), ``step_ms`` of plain decoding,
      ``round_ms`` of a bare round, ``read_bytes`` and ``operations`` of a round with their floors at the device's limits
      (``floor_ms`` takes for each pass the larger one; with calls, of an exchange), ``break_even`` (the acceptance at which
      a bare round costs its plain steps; None if there is none, and with calls), ``loop_efficiency``, ``first_call_s``; with
      lock step ``over_lock_step`` (pairwise ratios of seconds, else None). Without drafts ``round_ms`` is the time of a
      pass, and figures of drafts and of bare rounds are None. With chosen draft lengths all figures of a round are None.
    Raises:
      ValueError: for a recording of another method or of shorter drafts, or calls that the method cannot make.
    """
    imposed = imposed_of(method, acceptance, calls)
    plain, _ = self._plain
    decoder = self._random.decoder(method, self._sampling, imposed)
    first_s = self._seconds_of_first_call(decoder)
    others = {}
    if lock_step:
      assert imposed is not None  # rows without drafts advance together
      in_step = self._random.decoder(method, self._sampling, dataclasses.replace(imposed, lock_step=True))
      others["lock step"] = self._decode(in_step)
    found = compare_with_plain(
      self._decode(decoder), self._decode(plain), parts=decoder.parts, condition=self._condition, max_len=self._tokens,
      repeats=self._repeats, others=others,
    )  # fmt: skip
    step_s = measure.Timing.of(found.plain_s).median / self._tokens
    drafts, rounds, bonus = method.longest_path(), found.rounds, getattr(method, "bonus", True)
    imposes_calls = imposed is not None and imposed.imposes_calls
    is_chain = drafts == method.drafts_per_round() > 0 or imposes_calls
    fast_s = measure.Timing.of(found.fast_s).median
    passes = found.counts["target_calls"] / (self._repeats * self._batch)
    round_s = fast_s / passes if rounds is None else rounds.round_s
    share = lambda given: given if isinstance(given, float | int | None) else given.acceptance
    called = calls.calls if isinstance(calls, RecordedAcceptance) else calls
    varies = isinstance(decoder.parts.drafter, AutoLengthDrafter)
    of_round: dict[str, Any] = {
      "round_ms": 1e3 * round_s,
      **self._floors(method, share(acceptance), called),
      "break_even": None if imposes_calls or not drafts else break_even(round_s / step_s, drafts, bonus=bonus),
      "loop_efficiency": None if rounds is None else rounds.efficiency._asdict(),
    }
    return {
      "over_plain": found.over_plain._asdict(),
      "over_lock_step": found.over("lock step")._asdict() if lock_step else None,
      "tokens_per_s": self._batch * self._tokens / fast_s,
      "tokens_per_call": found.tokens_per_call,
      "accepted_of_tested": found.accepted_of_tested if is_chain else None,
      "step_ms": 1e3 * step_s,
      **(dict.fromkeys(of_round) if varies else of_round),
      "first_call_s": first_s,
    }


def saves_without_drafts(method: Method, num_tokens: int) -> bool:
  """Whether a method needs fewer passes than tokens although it drafts nothing, so that there is no acceptance to impose."""
  return not method.longest_path() and method.tokens_per_pass(0.0, num_tokens) > 1


def imposed_of(
  method: Method, acceptance: float | RecordedAcceptance | None, calls: float | RecordedAcceptance | None = None
) -> Imposed | None:
  """Acceptance and calls of a method, each a number or recorded, as the argument ``imposed`` of a decoder.

  Raises:
    ValueError: for a recording of another method, of shorter drafts, or without calls.
  """
  if acceptance is None:
    return None
  for given in (acceptance, calls):
    if isinstance(given, RecordedAcceptance):
      given.check_fits(method)
  imposed = acceptance.imposed if isinstance(acceptance, RecordedAcceptance) else Imposed(acceptance)
  imposed = dataclasses.replace(
    imposed, called_at=(), tokens=(), calls=None if isinstance(calls, RecordedAcceptance) else calls
  )
  if not isinstance(calls, RecordedAcceptance):
    return imposed
  if not calls.called_at:
    raise ValueError(f"Must have recorded calls of a method that accepts locally, we instead got those of {calls.method}")
  if imposed.lengths and imposed.lengths != calls.lengths:
    raise ValueError("Must have acceptance and calls of one recording, or a number for one of them, we instead got two")
  return dataclasses.replace(imposed, called_at=calls.called_at, tokens=calls.tokens)


def break_even(steps: float, drafts: int, *, bonus: bool = True) -> float | None:
  """The acceptance at which a round of a chain of ``drafts`` drafts commits as many tokens as it costs plain steps.

  Args:
    steps: the cost of a round in plain steps.
    bonus: whether the target adds a token after full acceptance.
  Returns:
    0 if a round costs no more than a step, None if there is no such acceptance.
  """
  drafts = drafts if bonus else drafts - 1  # the tokens of a round besides the first
  return None if steps > drafts + 1 else acceptance_for(steps, drafts)


class Cell(NamedTuple):
  """Acceptance and calls of a row of a report; of recordings ``files`` are the names."""

  acceptance: float | RecordedAcceptance | None
  calls: float | RecordedAcceptance | None = None
  files: tuple[str | None, str | None] = (None, None)

  @property
  def name(self) -> str:
    """For progress."""
    return ", ".join(str(file or given) for file, given in zip(self.files, self[:2]) if given is not None) or "its schedule"

  def shown(self, number: int) -> Any:
    """Acceptance (0) or calls (1) as JSON."""
    given = self[number]
    if not isinstance(given, RecordedAcceptance):
      return given
    mean = given.calls if number else given.acceptance
    return {"file": Path(str(self.files[number])).name, "mean": mean, "source": given.source}


def imposed_report(
  random: RandomModel, method: Method, sampling: SamplingConfig, cells: Sequence[Cell], *, batches: Sequence[int],
  lock_step: bool, repeats: int, progress: Progress = SILENT,
) -> dict[str, Any]:  # fmt: skip
  """Plain decoding and a method at every acceptance and share of calls, for every batch size; JSON.

  Args:
    random: the networks.
    cells: what is imposed.
    batches: rows decoded together.
    lock_step: measure batches whose rows all wait for the one that accepts fewest, too.
    repeats: counted turns.
  """
  model, dtype = random.model, random.dtype
  here = this_machine(dtype)
  report = {
    "model": model.name,
    "parameters": model.sized(dtype).num_parameters,
    "draft": None if (drafting := random.draft(method)) is None else drafting.name,
    "num_tokens": model.num_tokens,
    "method": {"name": method.name, "options": values_of(method)},
    "sampling": values_of(sampling),
    "dtype": dtype,
    "repeats": repeats,
    "device": jax.devices()[0].device_kind,
    "cpus": os.cpu_count(),
    "jax": jax.__version__,
    "bytes_per_s": here.device.bandwidth,
    "operations_per_s": here.device.peak(dtype),
    "plain": {},
    "cells": [],
  }
  total, done = len(batches) * (1 + len(cells)), 0
  progress("Measuring")
  for rows in batches:
    bench = ImposedBench(random, rows, sampling, repeats, here)
    progress.step(done, total, "measurement", f"Compiling and measuring batch {rows}, plain")
    report["plain"][rows] = bench.plain()
    done += 1
    for cell in cells:
      progress.step(done, total, "measurement", f"Compiling and measuring batch {rows}, {method.name} at {cell.name}")
      waits = lock_step and rows > 1 and cell.calls is None and cell.acceptance is not None
      found = bench.figures(method, cell.acceptance, calls=cell.calls, lock_step=waits)
      report["cells"].append({"batch": rows, "acceptance": cell.shown(0), "calls": cell.shown(1)} | found)
      done += 1
  return report
