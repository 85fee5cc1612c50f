"""What is left of calls that their devices gave up: memory of the server over many calls, some of which are cut short.

Devices without a network play a recorded decode. At some attempts their deadline is shorter than the call takes; they ask
again, and every reply must be the recorded one.
"""

from __future__ import annotations

import dataclasses
import logging
import random
import threading
import time
from typing import Any, ClassVar

from experiments.engine.experiment import Experiment, Lab
from experiments.server.decodes import Case
from experiments.server.memory import Samples
from experiments.server.process import ServerProcess, record, without_pauses
from jaxspec.link.cloud import Cloud, CloudError, Description, Opened, Opening, Resume, Status
from jaxspec.link.trace import Trace

PER_S = 130  # calls, on two cores


@dataclasses.dataclass(frozen=True, kw_only=True)
class CutCalls(Experiment):
  """``number`` calls by ``devices`` at once, a ``share`` of which is cut by a deadline within ``usual_ms``."""

  case: Case
  number: int = 100_000
  devices: int = 8
  share: float = 0.1
  usual_ms: float = 20.0
  seed: int = 0
  serve: tuple[str, ...] = ("--max-streams", "16", "--max-rows", "8", "--widths", "8")
  kind: ClassVar[str] = "grid"

  def measure(self, lab: Lab) -> dict[str, Any]:
    """See `Experiment.measure`."""
    from jaxspec.link.server_metrics import read_metrics

    logging.info("%d calls, about %.0f s", self.number, 30 + self.number / PER_S)
    with ServerProcess([self.case], *self.serve) as server:
      trace = without_pauses(record(self.case, lab, server.address)[0])
      crowd = Crowd(self, server.address, trace)
      memory, began, step = Samples(), time.monotonic(), max(1, self.number // 200)
      crowd.start()
      while not crowd.is_over:
        time.sleep(0.2)
        if crowd.calls >= step * (1 + len(memory.as_json()["samples"])):
          memory.add(crowd.calls, server.memory())
      crowd.join()
      seconds, streams = time.monotonic() - began, read_metrics(server.metrics).total("jaxspec_streams")
    figures = {
      "calls": crowd.calls, "cut": crowd.cut, "lost": crowd.lost, "seconds": seconds, "decodes": crowd.decodes,
      "differing": crowd.differing, "streams": streams, "memory": memory.as_json(),
    }  # fmt: skip
    cells = [f"{crowd.calls:,}", f"{crowd.cut:,}", f"{crowd.lost:,}", f"{crowd.decodes:,}", f"{crowd.differing}"]
    return {
      "head": ["calls", "with a short deadline", "not answered in it", "decodes", "other replies", "streams left"],
      "intro": f"{self.devices} devices at once, {seconds:,.0f} s.",
      "below": f"Memory of the server: {memory.told('call')} The first fifth of the calls is left out of the slope.",
      "rows": [{"cells": [*cells, f"{streams:.0f}"]}],
      "figures": figures,
    }


class Crowd:
  """Devices that play a trace until there were enough calls.

  Attributes:
    calls: attempts so far; ``cut`` of them had a short deadline, ``lost`` of these were not answered.
    decodes: finished; ``differing`` of them had another reply than the recorded one.
  """

  def __init__(self, table: CutCalls, address: str, trace: Trace):
    self.calls = self.cut = self.lost = self.decodes = self.differing = 0
    self._table, self._address, self._trace, self._failures = table, address, trace, []
    self._lock = threading.Lock()
    self._threads = [threading.Thread(target=self._work, args=(index,), daemon=True) for index in range(table.devices)]

  @property
  def is_over(self) -> bool:
    return not any(thread.is_alive() for thread in self._threads)

  def start(self) -> None:
    for thread in self._threads:
      thread.start()

  def join(self) -> None:
    """Waits for all devices.

    Raises:
      Exception: of a device that failed.
    """
    for thread in self._threads:
      thread.join()
    if self._failures:
      raise self._failures[0]

  def attempt(self, is_cut: bool) -> None:
    with self._lock:
      self.calls += 1
      self.cut += is_cut

  def _work(self, index: int) -> None:
    from jaxspec.link.connection import connect
    from jaxspec.link.player import play
    from jaxspec.link.retries import Budget

    cloud = Hasty(connect(self._address), self, random.Random(1000 * self._table.seed + index))
    try:
      while self.calls < self._table.number:
        # A budget would end the retries of an edge with so many failures.
        played = play(self._trace, cloud, budget=Budget(cost=0.0))
        with self._lock:
          self.decodes += 1
          self.differing += played.differing is not None
    except Exception as error:  # told by `join`
      self._failures.append(error)
    cloud.cloud.hang_up()

  def hurried(self, generator: random.Random) -> float | None:
    """The deadline of an attempt that is cut; None for others."""
    table = self._table
    return generator.random() * table.usual_ms / 1e3 if generator.random() < table.share else None


@dataclasses.dataclass
class Hasty:
  """A `Cloud` whose attempts have too short a deadline now and then."""

  cloud: Cloud
  crowd: Crowd
  random: random.Random

  @property
  def description(self) -> Description:
    return self.cloud.description

  def open(self, opening: Opening, resume: Resume | None = None, *, timeout_s: float) -> Opened:
    return self.cloud.open(opening, resume, timeout_s=timeout_s)

  def verify(self, stream: bytes, seq: int, part: int, frame: bytes, *, timeout_s: float) -> bytes:
    short_s = self.crowd.hurried(self.random)
    self.crowd.attempt(short_s is not None)
    try:
      return self.cloud.verify(stream, seq, part, frame, timeout_s=timeout_s if short_s is None else short_s)
    except CloudError as error:
      if short_s is not None and error.status is Status.DEADLINE_EXCEEDED:
        self.crowd.lost += 1
      raise

  def close(self, stream: bytes, *, timeout_s: float) -> None:
    self.cloud.close(stream, timeout_s=timeout_s)
