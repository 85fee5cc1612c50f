"""Load of the machine by other processes during a measurement."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

_STAT = Path("/proc/stat")


def busy_s(text: str, ticks: int) -> float:
  """Busy seconds of all cores together, from the text of ``/proc/stat``."""
  user, nice, system, _, _, *rest = map(int, text.splitlines()[0].split()[1:9])
  return (user + nice + system + sum(rest)) / ticks


def own_s() -> float:
  """Processor seconds of this process and its ended children."""
  times = os.times()
  return times.user + times.system + times.children_user + times.children_system


class Watch:
  """Measures the load since its creation.

  Args:
    read: returns the text of ``/proc/stat``.
    own: returns the processor seconds of this process.
    clock: returns seconds.
  """

  def __init__(
    self,
    read: Callable[[], str] = _STAT.read_text,
    own: Callable[[], float] = own_s,
    clock: Callable[[], float] = time.monotonic,
  ):
    self._read, self._own, self._clock = read, own, clock
    self._start = self._now()

  def _now(self) -> tuple[float, float, float]:
    return busy_s(self._read(), os.sysconf("SC_CLK_TCK")), self._own(), self._clock()

  def others(self) -> float:
    """Share of all cores used by other processes, 0 to 1."""
    busy, own, passed = (now - before for now, before in zip(self._now(), self._start))
    return min(max(busy - own, 0.0) / max(passed * (os.cpu_count() or 1), 1e-9), 1.0)


def check(most: float, *, seconds: float = 2.0) -> None:
  """Measures the load for some seconds.

  Raises:
    ValueError: if other processes use more than ``most`` of the machine.
  """
  watch = Watch()
  time.sleep(seconds)
  if (found := watch.others()) > most:
    said = f"others use at most {most:.0%} (--set busy=1.0 measures anyway), we instead got {found:.0%}"
    raise ValueError(f"Must have a machine of which {said}")
