"""What the link costs a round, by part: one decode in a compiled loop, over an engine in the process, and over a socket.

Server and edge are threads of one process, with one device. Functions of both are timed, each without the timed functions
inside of it. The rest of a call is gRPC and sockets. The rest of the server's own time is its queue and its threads.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any, ClassVar

import jax
import numpy as np

from experiments.engine.experiment import Experiment, Lab
from experiments.server.decodes import Case, Edge
from jaxspec.serving.edge.observer import Observer

FUSED, LOCAL, TOTAL = "one compiled loop", "an engine in the process", "over a socket"
CALL, HANDLER = "call", "handler"  # timed from outside, and split below
PARTS = (
  "draft network and commits, edge", "frames, edge", "protobuf, edge", "gRPC and sockets", "queue and threads, server",
  "protobuf and checks, server", "frames, server", "scheduling, server", "step of the target",
)  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class Overhead(Experiment):
  """Milliseconds of a round of every case, by part; ``max_rows`` of a step, of which one is used."""

  cases: tuple[Case, ...]
  repeats: int = 20
  max_rows: int = 1
  kind: ClassVar[str] = "grid"

  def measure(self, lab: Lab) -> dict[str, Any]:
    """See `Experiment.measure`."""
    logging.info("%d decodes of each of %d ways, about %.0f s", 3 * self.repeats, len(self.cases), 5.0 * self.repeats + 90)
    found = {case.row.name: self.milliseconds(Edge(case, lab)) for case in self.cases}
    lines = [(FUSED, LOCAL, TOTAL), PARTS]
    rows = [[name, *(_spread(found[case][name]) for case in found)] for names in lines for name in names]
    share = {name: 1 - np.median(each[FUSED]) / np.median(each[TOTAL]) for name, each in found.items()}
    told = ", ".join(f"{name} {100 * value:.0f} %" for name, value in share.items())
    return {
      "head": ["part", *(f"{name}, ms" for name in found)],
      "intro": f"of a round, medians [lowest, highest] of {self.repeats} decodes. The first three lines are whole rounds; "
      "the others are the parts of the third.",
      "below": f"Share of a round over a socket that one compiled loop does not have: {told}. Timing costs some "
      "microseconds a function. Two cells whose brackets overlap do not differ significantly.",
      "rows": [{"cells": cells} for cells in rows],
      "figures": found,
    }

  def milliseconds(self, edge: Edge) -> dict[str, list[float]]:
    """Of a round, for every decode."""
    from jaxspec.serving.edge.connection import connect
    from jaxspec.serving.server.in_process import LocalCloud
    from jaxspec.serving.server.server import Server

    found: dict[str, list[float]] = collections.defaultdict(list)
    engine = edge.engine(max_streams=2, max_rows=self.max_rows, widths=(8,))
    local, clock = LocalCloud(engine), Parts()
    edge.run(0, local)
    for _ in range(self.repeats):
      rounds = Rounds()
      began = time.perf_counter()
      edge.run(0, local, observer=rounds)
      found[LOCAL].append(1e3 * (time.perf_counter() - began) / rounds.number)
    jax.block_until_ready(edge.fused(0))
    for _ in range(self.repeats):
      began = time.perf_counter()
      jax.block_until_ready(edge.fused(0))
      found[FUSED].append(1e3 * (time.perf_counter() - began) / rounds.number)
    with Server(engine, metrics=clock.metrics()) as server:
      cloud = connect(server.address)
      edge.run(0, cloud)
      with clock.patched(edge):
        for _ in range(self.repeats):
          clock.seconds.clear()
          began = time.perf_counter()
          edge.run(0, cloud, observer=Rounds())
          for name, seconds in split(time.perf_counter() - began, clock.seconds).items():
            found[name].append(1e3 * seconds / rounds.number)
      cloud.hang_up()
    return dict(found)


def split(total_s: float, seconds: dict[str, float]) -> dict[str, float]:
  """Parts that add up to the whole."""
  own = {name: seconds.get(name, 0.0) for name in PARTS}
  server = sum(own[name] for name in PARTS[5:])
  own["draft network and commits, edge"] = total_s - seconds[CALL] - own["frames, edge"]
  own["gRPC and sockets"] = seconds[CALL] - own["protobuf, edge"] - seconds[HANDLER]
  own["queue and threads, server"] = seconds[HANDLER] - server
  return own | {TOTAL: total_s}


class Rounds(Observer):
  """Counts rounds."""

  def __init__(self):
    super().__init__()
    self.number = 0

  def answered(self, seq: int, part: int, frame: bytes, reply: bytes, resume: Any) -> None:
    self.number += part == 0


class Parts:
  """Seconds of functions by part, each without the timed ones inside of it."""

  def __init__(self):
    self.seconds: collections.Counter[str] = collections.Counter()
    self._lock, self._local = threading.Lock(), threading.local()

  def metrics(self):
    """Metrics of a server that bring the seconds of its calls."""
    from jaxspec.serving.server.prometheus import Metrics

    parts = self

    class Timed(Metrics):
      def called(self, method: str, status: str, seconds: float) -> None:
        super().called(method, status, seconds)
        parts.add(HANDLER, seconds)

    return Timed()

  def add(self, name: str, seconds: float) -> None:
    """So long more."""
    with self._lock:
      self.seconds[name] += seconds

  @contextlib.contextmanager
  def patched(self, edge: Edge) -> Iterator[None]:
    """Times the functions of both ends meanwhile."""
    from jaxspec.serving.edge.grpc_client import GrpcCloud
    from jaxspec.serving.server import requests
    from jaxspec.serving.server.engine import Engine
    from jaxspec.serving.server.server_programs import Programs
    from jaxspec.serving.wire.v1 import encoding

    codec = type(edge.codec)
    chosen = [
      (codec, "frames, edge", "encode_draft decode_first decode_reply encode_distribution"),
      (codec, "frames, server", "decode_draft encode_first encode_reply decode_distribution"),
      (encoding, "protobuf, edge", "verify_request reply_to handshake_reply_of close_request"),
      (encoding, "protobuf and checks, server", "verify_reply open_reply"),
      (requests, "protobuf and checks, server", "read_verify read_open read_close"),
      (Engine, "scheduling, server", "open submit step close"),
      (Programs, "step of the target", "step finish prefill insert"),
      (GrpcCloud, CALL, "open verify close"),
    ]
    with contextlib.ExitStack() as stack:
      for owner, part, names in chosen:
        for name in names.split():
          stack.callback(setattr, owner, name, getattr(owner, name))
          setattr(owner, name, self._timed(getattr(owner, name), part))
      yield

  def _timed(self, function: Any, part: str) -> Any:
    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
      outer = getattr(self._local, "inside", None)
      self._local.inside = [0.0]
      began = time.perf_counter()
      try:
        return function(*args, **kwargs)
      finally:
        seconds = time.perf_counter() - began
        self.add(part, seconds if part == CALL else seconds - self._local.inside[0])
        self._local.inside = outer
        if outer is not None and part != CALL:
          outer[0] += seconds

    return run


def _spread(values: list[float]) -> str:
  return f"{np.median(values):.2f} [{min(values):.2f}, {max(values):.2f}]"
