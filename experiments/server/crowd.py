"""Many devices at one server: throughput and latency of each, and its tokens against those of a single device.

The generator is `experiments.server.load` in a separate process, so it computes nothing. Every reply must equal the recorded
one for a single device.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from experiments.engine.experiment import Experiment, Lab
from experiments.server.decodes import Case
from experiments.server.process import ServerProcess
from experiments.server.record import record
from experiments.server.simulation import Load, simulate
from experiments.server.trace import write_trace
from jaxspec.serving.server.scheduler import Policy


@dataclasses.dataclass(frozen=True, kw_only=True)
class Crowd(Experiment):
  """``devices`` at once, and fewer before them, against a server of ``case``.

  Attributes:
    traces: recorded decodes that the devices play, with the pauses of the edge that was recorded.
    repeats: of the whole load.
    max_rows: of a step.
    serve: other options of ``jaxspec serve``.
  """

  case: Case
  devices: int = 64
  traces: int = 8
  repeats: int = 3
  max_rows: int = 8
  serve: tuple[str, ...] = ("--max-streams", "64", "--widths", "8")
  kind: ClassVar[str] = "grid"

  def measure(self, lab: Lab) -> dict[str, Any]:
    """See `Experiment.measure`."""
    runs = []
    with tempfile.TemporaryDirectory() as folder:
      with ServerProcess([self.case], "--max-rows", str(self.max_rows), *self.serve) as server:
        for index, trace in enumerate(record(self.case, lab, server.address, self.traces)):
          write_trace(Path(folder) / f"{index}.json", trace)
        options = ["--trace", folder, "--devices", str(self.devices), "--metrics", server.metrics]
        for turn in range(self.repeats):
          logging.info("load %d of %d, about 60 s each", turn + 1, self.repeats)
          runs.append(loaded(server.address, options))
    return tabled(runs, self.max_rows)


def tabled(runs: list[list[dict[str, Any]]], max_rows: int) -> dict[str, Any]:
  """The table of the stages of all runs; the first stage is one device."""
  stages = [[run[index] for run in runs] for index in range(len(runs[0]))]
  one = np.median([stage["tokens_per_s_of_a_device"]["p50"] for stage in stages[0]])
  differing = sum(stage["differing"] for run in runs for stage in run)
  failures = sum(len(stage["failures"]) for run in runs for stage in run)
  in_time = [float(np.median([rate_in_virtual_time(run[0], run[index], max_rows) for run in runs]))
             for index in range(len(stages))]  # fmt: skip
  return {
    "head": ["devices", "tokens/s", "of a device, median", "against one alone", "fairness", "slowest, of the mean",
             "rows of a step", "of all rows", "call, p50 and p99, ms", "opening, p50, ms", "generator, cores", "calls/s",
             "calls/s in virtual time"],
    "intro": f"Medians of {len(runs)} runs. Devices with another reply than the recorded one: {differing}; devices "
    f"that failed: {failures}.",
    "below": "Fairness is Jain's index over the tokens/s of devices: 1 where all have the same, 1/n where one has all. "
    "Devices play different traces, so some of it is theirs. Generator and server share the cores. In virtual time the "
    "scheduler plans for devices with the measured pauses and steps; what else a call and an opening take of the server is "
    "what they take of it when a device is alone.",
    "rows": [{"cells": cells_of(found, one, max_rows, rate)} for found, rate in zip(stages, in_time)],
    "figures": runs,
  }  # fmt: skip


def rate_in_virtual_time(alone: dict[str, Any], stage: dict[str, Any], max_rows: int) -> float:
  """Calls a second that the simulation of docs/capacity.md has of a stage."""
  server, first = stage["server"], alone["server"]
  think_s = stage["think_s"] / stage["calls"] + stage["call_s"]["mean"] - server["call_s"]["mean"]
  besides_s = first["call_s"]["mean"] - first["step_s"]["mean"]
  load = Load(stage["devices"], think_s, stage["calls"] // stage["devices"], first["open_s"]["mean"])
  return simulate(load, lambda rows: server["step_s"]["mean"] + rows * besides_s, Policy(max_rows)).calls_per_s


def loaded(address: str, options: list[str]) -> list[dict[str, Any]]:
  """The stages of one load."""
  command = [sys.executable, "-m", "experiments.server.load", address, *options]
  done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
  if not done.stdout:
    raise ValueError(f"Must have a report of the load, we instead got exit status {done.returncode}")
  return json.loads(done.stdout)["stages"]


def cells_of(stages: list[dict[str, Any]], one: float, max_rows: int, in_time: float) -> list[str]:
  """A row of the table: medians over the runs."""

  def median(*path: str) -> float:
    values = stages
    for name in path:
      values = [value[name] for value in values]
    return float(np.median(values))

  own, rows = median("tokens_per_s_of_a_device", "p50"), median("server", "rows_per_step")
  low, high, opening = (1e3 * median(*path) for path in (("call_s", "p50"), ("call_s", "p99"), ("open_s", "p50")))
  return [
    f"{stages[0]['devices']}", f"{median('tokens_per_s'):,.0f}", f"{own:.1f}", f"{own / one:.2f}",
    f"{median('fairness', 'jain'):.3f}", f"{median('fairness', 'least'):.2f}", f"{rows:.1f}", f"{rows / max_rows:.0%}",
    f"{low:.0f}, {high:.0f}", f"{opening:,.0f}", f"{median('generator_cpu'):.2f}",
    f"{median('calls') / median('seconds'):,.0f}", f"{in_time:,.0f}",
  ]  # fmt: skip
