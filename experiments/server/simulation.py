"""A server and its devices in virtual time: the scheduler is the real one, steps and pauses are numbers."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from jaxspec.serving.server.scheduler import Plan, Policy, Queues, Waiting, plan


class Load(NamedTuple):
  """Devices that think and call.

  Attributes:
    devices: at once.
    think_s: mean seconds between an answer and the next call; pauses are uniform between half and one and a half of it.
    each: calls of a device; None is unlimited, and omits the first fifth of the calls, when devices are still synchronous.
    apart_s: seconds between the beginnings of two devices.
  """

  devices: int
  think_s: float
  each: int | None = None
  apart_s: float = 0.0


class Simulated(NamedTuple):
  """A server for a while."""

  calls_per_s: float
  median_s: float  # from the arrival of a call to its answer
  p99_s: float
  rows: float  # of a step, mean


def simulate(load: Load, step_s: Callable[[int], float], policy: Policy, *, calls: int = 8000, seed: int = 0) -> Simulated:
  """A simulated server with the real scheduler.

  Args:
    step_s: seconds of a step by its number of rows.
    calls: number of calls after which devices without their own number stop.
  """
  generator = np.random.default_rng(seed)
  pause = lambda: load.think_s * generator.uniform(0.5, 1.5)
  arriving = [(device * load.apart_s + pause(), device) for device in range(load.devices)]
  heapq.heapify(arriving)
  left = [calls if load.each is None else load.each] * load.devices
  most = calls if load.each is None else load.each * load.devices
  waiting: dict[int, float] = {}
  answered: list[tuple[float, float]] = []  # when, after how long
  steps: list[tuple[float, int]] = []
  now = 0.0
  while len(answered) < most:
    while arriving and arriving[0][0] <= now:
      since, device = heapq.heappop(arriving)
      waiting[device] = since
    found = plan(now, Queues([Waiting(device.to_bytes(4), 0, since) for device, since in waiting.items()]), policy)
    if not isinstance(found, Plan):
      coming = [arriving[0][0]] if arriving else []
      now = min(coming if found is None else [*coming, found])
      continue
    now += step_s(len(found.verified))
    steps.append((now, len(found.verified)))
    for name in found.verified:
      device = int.from_bytes(name)
      answered.append((now, now - waiting.pop(device)))
      left[device] -= 1
      if left[device]:
        heapq.heappush(arriving, (now + pause(), device))
  began = answered[len(answered) // 5][0] if load.each is None else 0.0
  waits = [wait for when, wait in answered if when > began]
  median_s, p99_s = np.percentile(waits, (50, 99))
  rows = float(np.mean([rows for when, rows in steps if when > began]))
  return Simulated(len(waits) / (now - began), float(median_s), float(p99_s), rows)
