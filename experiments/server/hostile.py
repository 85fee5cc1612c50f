"""A server under hostile inputs: does it stay up, in its memory and in time, and do others notice?

Attackers are a separate process (`experiments.server.attacker`) with a bearer token for a few streams. Meanwhile a device
without a network plays a recorded decode again and again; every reply must be the recorded one.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from experiments.engine.experiment import Experiment, Lab
from experiments.server.decodes import Case
from experiments.server.memory import Samples
from experiments.server.process import SMALL, ServerProcess, without_pauses
from experiments.server.record import record
from experiments.server.trace import Trace, write_trace

PER_S = 600  # inputs, on two cores


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hostile(Experiment):
  """``number`` hostile inputs to a server of ``case``.

  Attributes:
    slow: connections besides that never send a whole call; every fourth has 50 halves of calls.
    alone_s: how long these are there before the inputs.
    quiet: decodes of the device before the attack, for comparison.
    serve: options of ``jaxspec serve``.
  """

  case: Case
  number: int = 1_000_000
  slow: int = 80
  alone_s: float = 10.0
  quiet: int = 20
  seed: int = 0
  serve: tuple[str, ...] = SMALL
  kind: ClassVar[str] = "grid"

  def measure(self, lab: Lab) -> dict[str, Any]:
    """See `Experiment.measure`."""
    from jaxspec.serving.server.bearer_tokens import new_token
    from jaxspec.serving.server.quotas import Quota

    logging.info("%d inputs, about %.0f s", self.number, 40 + self.number / PER_S)
    with tempfile.TemporaryDirectory() as folder:
      tokens = Path(folder) / "tokens.jsonl"
      good, bad = new_token(tokens, "device"), new_token(tokens, "attacker", Quota(streams=8))
      with ServerProcess([self.case], *self.serve, "--token-file", str(tokens)) as server:
        traces = record(self.case, lab, server.address, 2, token=good)
        for index, trace in enumerate(traces):
          write_trace(Path(folder) / f"{index}.json", trace)
        device = Device(server.address, good, without_pauses(traces[0]))
        before = device.play(self.quiet)
        plan = dict(host=server.host, token=bad, traces=folder, number=self.number, seed=self.seed)
        report, memory, slow, during = attack(plan | dict(slow=self.slow, alone_s=self.alone_s), server, device)
        after, is_alive = device.play(self.quiet), server.is_alive()
    if not is_alive:
      raise ValueError("Must have a server that is still there, we instead got one that ended")
    calls = {"before": before, "with slow connections alone": slow, "during all": during, "after": after}
    return document(report, memory, calls, self.slow)


class Device:
  """Plays a trace again and again, each time as a new stream.

  Attributes:
    differing: decodes with another reply than the recorded one.
  """

  def __init__(self, address: str, token: str, trace: Trace):
    from jaxspec.serving.edge.connection import connect

    self._cloud, self._trace, self.differing = connect(address, token=token), trace, 0

  def play(
    self, number: int | None = None, until: threading.Event | None = None, found: list[float] | None = None
  ) -> list[float]:
    """Seconds of the calls of ``number`` decodes, or of as many as begin before ``until``; more of ``found``."""
    from experiments.server.player import play

    found = [] if found is None else found
    done = 0
    while done != number and not (until is not None and until.is_set()):
      played = play(self._trace, self._cloud)
      found += played.call_s
      self.differing += played.differing is not None
      done += 1
    return found


def attack(
  plan: dict[str, Any], server: ServerProcess, device: Device
) -> tuple[dict[str, Any], Samples, list[float], list[float]]:
  """Runs the attackers.

  Returns:
    Their report, the server's memory by inputs, and seconds of the device's calls: with slow connections alone, with all.
  """
  command = [sys.executable, "-m", "experiments.server.attacker"]
  process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
  process.stdin.write(json.dumps(plan) + "\n")
  process.stdin.flush()
  over, calls, memory, failures = threading.Event(), [], Samples(), []

  def work() -> None:
    try:
      device.play(until=over, found=calls)
    except Exception as error:  # reported below, since no other code observes this thread
      failures.append(error)

  thread = threading.Thread(target=work)
  thread.start()
  report, began, alone = None, time.monotonic(), 0
  for line in process.stdout:
    told = json.loads(line)
    if told.get("done") == 0:
      began, alone = time.monotonic(), len(calls)
    if "done" in told:
      memory.add(told["done"], server.memory())
      if told["done"] * 10 % plan["number"] < plan["number"] / 10:
        logging.info("%d inputs after %.0f s", told["done"], time.monotonic() - began)
    else:
      report = told
  process.wait()
  over.set()
  thread.join()
  if report is None or failures:
    raise ValueError(f"Must have attackers and a device that come to an end, we instead got {failures or 'no report'}")
  return report | {"differing": device.differing}, memory, calls[:alone], calls[alone:]


def document(report: dict[str, Any], memory: Samples, calls: dict[str, list[float]], slow: int) -> dict[str, Any]:
  """The table of an attack."""
  number = sum(sum(found.values()) for found in report["statuses"].values())
  words = lambda found: ", ".join(f"{name} {count:,}" for name, count in sorted(found.items(), key=lambda item: -item[1]))
  rows = [
    [kind, f"{sum(found.values()):,}", f"{1e3 * report['slowest_s'][kind]:.0f}", words(found)]
    for kind, found in report["statuses"].items()
  ]
  unexpected = sum(report["unexpected"].values())
  spread = {name: (1e3 * np.percentile(times, (50, 99))).tolist() for name, times in calls.items() if times}
  told = "; ".join(f"{name} {low:.0f}, {high:.0f}" for name, (low, high) in spread.items())
  return {
    "head": ["input", "number", "slowest, ms", "answers"],
    "intro": f"{number:,} inputs in {report['seconds']:,.0f} s. The server did not end. {unexpected} answers were a status "
    f"that no input should get{': ' if unexpected else ''}{words(report['unexpected'])}.",
    "below": f"Memory: {memory.described('input')} A device that decoded meanwhile: {len(calls['during all']):,} calls, "
    f"{report['differing']} decodes with another reply. Its calls, median and p99 in ms: {told}. Attackers, device and "
    f"server share the cores. Of {slow} slow connections the server ended {report['slow_ended']}; the others lasted as long "
    "as the attack.",
    "rows": [{"cells": row} for row in rows],
    "figures": report | {"memory": memory.as_json(), "calls_ms": spread},
  }
