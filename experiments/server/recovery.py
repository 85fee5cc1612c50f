"""Interruption of a decode when its link or its server fails, and additional traffic.

A device without a network plays a recorded decode (`experiments.server.player`) through a relay, so every reply is
compared with the recorded one. The interruption is the time of a disturbed call minus the median of the others.
"""

from __future__ import annotations

import dataclasses
import logging
import random
import threading
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np

from experiments.engine.experiment import Experiment, Lab
from experiments.server.decodes import Case
from experiments.server.process import SMALL, Disturbed, ServerProcess, later, without_pauses
from experiments.server.record import record
from experiments.server.relay import Relay, Shape
from experiments.server.trace import Trace
from jaxspec.serving.wire.link_model import NETWORKS


class Stop(NamedTuple):
  """A disturbance: what happens, and the seconds of the call that met it, beyond those of a usual one."""

  late_s: float
  retries: int
  resumes: int
  up: int  # bytes beyond those of an undisturbed decode
  down: int
  is_same: bool
  server_s: float  # of these seconds, until a server answered again


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recovery(Experiment):
  """Links that are cut and servers that end, in the middle of decodes of ``cases``, which are of one bundle.

  Attributes:
    repeats: of every disturbance of the link; ``restarts`` of every one of the server.
    networks: that connections go through besides this machine alone.
  """

  cases: tuple[Case, ...]
  repeats: int = 50
  restarts: int = 5
  networks: tuple[str, ...] = ("4g",)
  seed: int = 0
  serve: tuple[str, ...] = SMALL
  kind: ClassVar[str] = "grid"

  def measure(self, lab: Lab) -> dict[str, Any]:
    """See `Experiment.measure`."""
    generator, figures = random.Random(self.seed), []
    with ServerProcess(self.cases, *self.serve) as server, ServerProcess(self.cases, *self.serve) as spare:
      traces = [(case.row.name, without_pauses(record(case, lab, server.address)[0])) for case in self.cases]
      num = len(traces) * (1 + len(self.networks)) * 2 * self.repeats
      logging.info("%d cut links, about %.0f s", num, num * 2.0)
      for network in (None, *self.networks):
        for name, trace in traces:
          for words, disturb in (("reset", Relay.cut), ("silent", Relay.silence)):
            place = Place(server, trace, network)
            stops = [place.stop(generator, lambda relay, disturb=disturb: disturb(relay)) for _ in range(self.repeats)]
            figures.append(summed(stops, what=f"link {words}", decode=name, network=network))
      logging.info("%d ended servers, about %.0f s", 2 * len(traces) * self.restarts, 30.0 * len(traces) * self.restarts)
      for name, trace in traces:
        place = Place(server, trace, None)
        for words, end in (("started again", restarting(server)), ("another one there", leaving(server, spare))):
          stops = [place.stop(generator, end, server) for _ in range(self.restarts)]
          figures.append(summed(stops, what=f"server killed, {words}", decode=name, network=None))
    worst = max(entry["late_s"][-1] for entry in figures if entry["what"].startswith("link"))
    differing = sum(entry["differing"] for entry in figures)
    return {
      "head": ["what happens", "decode", "network", "times", "late by, s", "of it no server, s", "retries", "resumes",
               "more bytes up, down", "other replies"],
      "intro": f"medians [lowest, highest]. Longest stop by a link: {worst:.2f} s. Decodes with another reply: {differing}.",
      "below": "Reset: all connections end, and both ends detect it. Silent: all that is sent is lost, without an error; "
      "new connections work. Bytes are all that crossed, those of new connections too.",
      "rows": [{"cells": cells_of(entry)} for entry in figures],
      "figures": figures,
    }  # fmt: skip


def restarting(server: ServerProcess) -> Callable[[Relay], None]:
  """The server is killed, and started again at the same port."""

  def run(relay: Relay) -> None:
    server.kill()
    threading.Thread(target=server.start, daemon=True).start()

  return run


def leaving(server: ServerProcess, spare: ServerProcess) -> Callable[[Relay], None]:
  """The server is killed, and new connections go to another one, as behind a proxy."""

  def run(relay: Relay) -> None:
    server.kill()
    relay.point(spare.host)

  return run


class Place:
  """A device, a relay and a server."""

  def __init__(self, server: ServerProcess, trace: Trace, network: str | None):
    self._host, self._trace = server.host, trace
    self._shape = Shape() if network is None else Shape.of(NETWORKS[network])
    usual = [self._play(lambda relay, call: None) for _ in range(2)][1]
    self._usual_s, self._usual_bytes = float(np.median(usual[0].call_s)), usual[1]

  def stop(self, generator: random.Random, disturb: Callable[[Relay], None], server: ServerProcess | None = None) -> Stop:
    """One decode with one disturbance, at a random call and some ms into it.

    Args:
      server: that ends; it runs again afterwards.
    """
    at, wait_s = generator.randint(2, len(self._trace.calls)), generator.random() * self._usual_s
    before = lambda relay, call: later(wait_s, lambda: disturb(relay)) if call == at else None
    played, (up, down) = self._play(before)
    late_s = max(played.call_s) - self._usual_s
    server_s = 0.0
    if server is not None:
      if not server.is_alive():
        server.start()
      elif played.resumes:
        server_s = server.start_s
    more = up - self._usual_bytes[0], down - self._usual_bytes[1]
    return Stop(late_s, played.retries, played.resumes, *more, played.differing is None, server_s)

  def _play(self, before: Callable[[Relay, int], None]):
    from experiments.server.player import play
    from jaxspec.serving.edge.connection import connect

    with Relay(self._host, self._shape) as relay:
      cloud = connect(f"grpc://{relay.host}")
      played = play(self._trace, Disturbed(cloud, lambda call: before(relay, call)))
      cloud.hang_up()
      return played, (relay.up, relay.down)


def summed(stops: list[Stop], **about: Any) -> dict[str, Any]:
  """Figures of the stops of one kind; JSON."""
  of = lambda name: [getattr(stop, name) for stop in stops]
  spread = lambda name: [float(value) for value in np.percentile(of(name), (50, 0, 100))]
  return about | {
    "times": len(stops),
    "differing": sum(not stop.is_same for stop in stops),
    **{name: spread(name) for name in ("late_s", "server_s", "retries", "resumes", "up", "down")},
  }


def cells_of(entry: dict[str, Any]) -> list[str]:
  """A row of the table."""
  shown = lambda name: "{:.2f} [{:.2f}, {:.2f}]".format(*entry[name])
  server_s = shown("server_s") if entry["server_s"][2] else ""
  retries, resumes, up, down = (f"{entry[name][0]:,.0f}" for name in ("retries", "resumes", "up", "down"))
  about = [entry["what"], entry["decode"], entry["network"] or "this machine", f"{entry['times']}", shown("late_s")]
  return [*about, server_s, retries, resumes, f"{up}, {down}", f"{entry['differing']}"]
