"""Counts the traces of the programs of a decode: a change of a setting that traces is slow."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import jax

# The functions that `jaxspec.run.rounds.rounds` and `jaxspec.core.loop` compile.
PROGRAMS = frozenset({"start", "prefix_round", "decode_round", "round_at", "_decode_whole", "decode"})
_EVENT = "/jax/core/compile/jaxpr_trace_duration"
_counting = threading.local()


class TraceCount:
  """Traces so far."""

  def __init__(self):
    self.traces = 0


def _listen(event: str, duration_secs: float, **about: str | int) -> None:
  count = getattr(_counting, "count", None)
  if count is not None and event == _EVENT and about.get("fun_name") in PROGRAMS:
    count.traces += 1


jax.monitoring.register_event_duration_secs_listener(_listen)


@contextlib.contextmanager
def counted(count: TraceCount) -> Iterator[TraceCount]:
  """Counts the traces of this thread in the context. Contexts do not nest."""
  _counting.count = count
  try:
    yield count
  finally:
    _counting.count = None
