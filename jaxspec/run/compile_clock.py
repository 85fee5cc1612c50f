"""Seconds of compiling in a thread, for decodes whose programs are compiled at their first call."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Generator

import jax

_PREFIX = "/jax/core/compile/"  # tracing, lowering and XLA
_running = threading.local()


class CompileClock:
  """Seconds of tracing, lowering and compiling so far."""

  def __init__(self):
    self._spans: list[tuple[float, float]] = []  # disjoint, ascending

  @property
  def seconds(self) -> float:
    """The sum; a program that is traced within another one counts once."""
    return sum(end - start for start, end in self._spans)

  def add(self, start: float, end: float) -> None:
    """Adds a span that ends last; it contains earlier ones or none of them."""
    while self._spans and self._spans[-1][0] >= start:
      self._spans.pop()
    begin = max(start, self._spans[-1][1]) if self._spans else start
    self._spans.append((begin, end))


def _listen(event: str, duration_secs: float, **about: str | int) -> None:
  clock = getattr(_running, "clock", None)
  if clock is not None and event.startswith(_PREFIX):
    now = time.perf_counter()
    clock.add(now - duration_secs, now)


jax.monitoring.register_event_duration_secs_listener(_listen)


@contextlib.contextmanager
def compile_clock() -> Generator[CompileClock]:
  """Counts the compiling of this thread in the context; contexts do not nest."""
  _running.clock = clock = CompileClock()
  try:
    yield clock
  finally:
    _running.clock = None
