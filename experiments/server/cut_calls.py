"""What is left of calls that their devices gave up: memory of the server over many calls, some of which are cut short.

Devices without a network play a recorded decode. At some attempts their deadline is shorter than the call; they retry, and
every reply must equal the recorded one.
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
from experiments.server.process import ServerProcess, without_pauses
from experiments.server.record import record
from experiments.server.trace import Trace
from jaxspec.serving.wire.cloud import Cloud, CloudError, Description, Status
from jaxspec.serving.wire.handshake import Handshake, HandshakeReply, Resume

PER_S = 130  # calls, on two cores
_SHARE = 0.05  # of the newest call in the smoothed time


@dataclasses.dataclass(frozen=True, kw_only=True)
class CutCalls(Experiment):
  """``number`` calls by ``devices`` at once; a ``share`` has a short deadline, at first.

  Attributes:
    hurry: lowest and highest short deadline, in units of the time of a call.
  """

  case: Case
  number: int = 160_000
  devices: int = 8
  share: float = 1.0
  hurry: tuple[float, float] = (1.1, 1.3)
  seed: int = 0
  serve: tuple[str, ...] = ("--max-streams", "16", "--max-rows", "8", "--widths", "8")
  kind: ClassVar[str] = "grid"

  def measure(self, lab: Lab) -> dict[str, Any]:
    """See `Experiment.measure`."""
    from experiments.server.server_metrics import read_metrics

    logging.info("%d calls, about %.0f s", self.number, 30 + self.number / PER_S)
    with ServerProcess([self.case], *self.serve) as server:
      trace = without_pauses(record(self.case, lab, server.address)[0])
      crowd = Crowd(self, server.address, trace)
      memory, began, step = Samples(), time.monotonic(), max(1, self.number // 200)
      crowd.start()
      while not crowd.is_over:
        time.sleep(0.2)
        if crowd.calls >= step * (1 + len(memory)):
          memory.add(crowd.calls, server.memory())
      crowd.join()
      seconds, streams = time.monotonic() - began, read_metrics(server.metrics).total("jaxspec_streams")
    counts = {name: getattr(crowd, name) for name in ("calls", "cut", "lost", "refused", "decodes", "differing")}
    return {
      "head": ["calls", "with a short deadline", "cut by it", "refused at once", "decodes", "other replies", "streams left"],
      "intro": f"{self.devices} devices at once, {seconds:,.0f} s.",
      "below": f"Memory of the server: {memory.described('call')} The first fifth of the calls is left out of the slope. "
      "Refused at once are calls that could not have been in time.",
      "rows": [{"cells": [*(f"{count:,}" for count in counts.values()), f"{streams:.0f}"]}],
      "figures": counts | {"seconds": seconds, "streams": streams, "memory": memory.as_json()},
    }


class Crowd:
  """Devices that play a trace until there were enough calls.

  Attributes:
    calls: attempts so far; ``cut`` of them had a short deadline. Of these the deadline passed for ``lost``, and the server
      refused ``refused`` because it would.
    decodes: finished; ``differing`` of them had another reply than the recorded one.
  """

  def __init__(self, table: CutCalls, address: str, trace: Trace):
    self.calls = self.cut = self.lost = self.refused = self.decodes = self.differing = 0
    self._usual_s = 0.0
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

  def begins(self, is_cut: bool) -> None:
    """An attempt begins."""
    with self._lock:
      self.calls += 1
      self.cut += is_cut

  def answered(self, seconds: float) -> None:
    """An attempt was answered after so long."""
    with self._lock:
      self._usual_s += (_SHARE if self._usual_s else 1.0) * (seconds - self._usual_s)

  def failed(self, status: Status) -> None:
    """An attempt with a short deadline failed."""
    with self._lock:
      self.lost += status is Status.DEADLINE_EXCEEDED
      self.refused += status is Status.RESOURCE_EXHAUSTED

  def hurried(self, generator: random.Random) -> float | None:
    """The deadline of an attempt that is cut; None for others."""
    return generator.uniform(*self._table.hurry) * self._usual_s if generator.random() < self._table.share else None

  def _work(self, index: int) -> None:
    from experiments.server.player import play
    from jaxspec.serving.edge.connection import connect
    from jaxspec.serving.edge.reliable_stream import RetrySettings
    from jaxspec.serving.edge.retries import Budget

    cloud = Hasty(connect(self._address), self, random.Random(1000 * self._table.seed + index))
    try:
      while self.calls < self._table.number:
        # A budget would end the retries of an edge with this number of failures.
        played = play(self._trace, cloud, settings=RetrySettings(budget=Budget(cost=0.0)))
        with self._lock:
          self.decodes += 1
          self.differing += played.differing is not None
    except Exception as error:  # reported by `join`
      self._failures.append(error)
    cloud.cloud.hang_up()


@dataclasses.dataclass
class Hasty:
  """A `Cloud` with too short deadlines at some first attempts; retries have the usual one."""

  cloud: Cloud
  crowd: Crowd
  random: random.Random
  newest: tuple[bytes, int, int] = (b"", 0, 0)

  @property
  def description(self) -> Description:
    return self.cloud.description

  def open(self, handshake: Handshake, resume: Resume | None = None, *, timeout_s: float) -> HandshakeReply:
    return self.cloud.open(handshake, resume, timeout_s=timeout_s)

  def verify(self, stream: bytes, seq: int, part: int, frame: bytes, *, timeout_s: float) -> bytes:
    is_again, self.newest = (stream, seq, part) == self.newest, (stream, seq, part)
    short_s = None if is_again else self.crowd.hurried(self.random)
    self.crowd.begins(short_s is not None)
    began = time.monotonic()
    try:
      reply = self.cloud.verify(stream, seq, part, frame, timeout_s=timeout_s if short_s is None else short_s)
    except CloudError as error:
      if short_s is not None:
        self.crowd.failed(error.status)
      raise
    self.crowd.answered(time.monotonic() - began)
    return reply

  def close(self, stream: bytes, *, timeout_s: float) -> None:
    self.cloud.close(stream, timeout_s=timeout_s)
