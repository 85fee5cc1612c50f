"""Decodes whose drafts are sent ahead, over the networks of the tables, beside `jaxspec.serving.wire.link_model`.

Seconds of a draft and of a pass are those of the edge that waits, through a relay that only forwards. The model has them,
the latency, the bytes of a call, the number of rounds, and the share of those whose drafts were all accepted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import logging
import time
from typing import Any, ClassVar, NamedTuple

import numpy as np

from experiments.engine.experiment import Experiment, Lab
from experiments.server.decodes import Case, Edge
from experiments.server.networks import paired, shown
from experiments.server.process import ServerProcess
from experiments.server.relay import Shape, relaying
from jaxspec.serving.edge.observer import Observer
from jaxspec.serving.wire.framing import REPLY, REPLY_BYTES, VOID
from jaxspec.serving.wire.link_model import NETWORKS, RoundSeconds
from jaxspec.statistics import ratio


class Run(NamedTuple):
  """A decode.

  Attributes:
    opened_s: until the reply to the handshake.
    ended_s: until the reply of the last round; ``seconds`` includes closing.
    waited_s: from each request for a reply to it.
    rounds: verified ones; ``full`` of them accepted all drafts and added no token, ``void`` calls come besides.
  """

  opened_s: float
  ended_s: float
  seconds: float
  waited_s: float
  rounds: int
  full: int
  void: int
  up: int
  down: int
  tokens: tuple[int, ...]


class Clock(Observer):
  """Times and counts of the calls of a decode."""

  def __init__(self):
    super().__init__()
    self.began = self.opened_s = self.ended_s = time.perf_counter()
    self.waited_s, self.kinds, self.full = 0.0, [], 0

  def begins(self) -> None:
    self.asked = time.perf_counter()

  def opened(self, handshake, opened) -> None:
    self.opened_s = time.perf_counter()

  def answered(self, seq, part, frame, reply, resume) -> None:
    self.ended_s = time.perf_counter()
    self.waited_s += self.ended_s - self.asked
    self.kinds.append(reply[3])
    self.full += reply[3] == REPLY and len(reply) < REPLY_BYTES


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ahead(Experiment):
  """Seconds of ``number`` sequences of every case on every network, measured and modelled.

  Attributes:
    cases: of one bundle. Those with equal drafts follow each other; the first of them waits without a bonus token.
    drafts: most drafts of a round, for each case.
    pipelines: drafts that may wait, for each case; 0 for an edge that waits, with a bonus token.
  """

  cases: tuple[Case, ...]
  drafts: tuple[int, ...]
  pipelines: tuple[int, ...]
  networks: tuple[str, ...] = tuple(NETWORKS)
  number: int = 8
  serve: tuple[str, ...] = ("--max-streams", "4", "--max-rows", "1", "--widths", "8,24")
  kind: ClassVar[str] = "grid"

  def measure(self, lab: Lab) -> dict[str, Any]:
    """See `Experiment.measure`."""
    sequences = lambda case: tuple(itertools.islice(itertools.cycle(case.prompts), self.number))
    cases = [dataclasses.replace(case, prompts=sequences(case)) for case in self.cases]
    edges, found = [Edge(case, lab) for case in cases], {}
    with ServerProcess(cases, *self.serve) as server:
      for network in (None, *self.networks):
        logging.info("network %s", network)
        shape = Shape() if network is None else Shape.of(NETWORKS[network])
        found[network] = self.decoded(edges, server, shape)
    rows, figures, differing = [], [], 0
    for network, (index, case) in itertools.product(self.networks, enumerate(cases)):
      base = self.drafts.index(self.drafts[index])  # the edge that waits without a bonus token
      runs, waits, near = found[network][index], found[network][base], found[None][base]
      differing += sum(self.pipelines[index] > 0 and a.tokens != b.tokens for a, b in zip(runs, near))
      entry = compared(runs, waits, near, network, self.pipelines[index], case)
      figures.append({"drafts": self.drafts[index], "pipeline": self.pipelines[index], "network": network} | entry)
      rows.append({"cells": cells_of(case.row.name, network, entry)})
    return {
      "head": ["decode", "network", "rounds", "all accepted", "void calls", "bytes up", "ms per token", "modelled",
               "measured over modelled", "seconds over waiting"],
      "intro": f"{self.number} sequences of {cases[0].tokens} tokens. Brackets: 95 % intervals over prompts. Sequences with "
      f"other tokens than those of an edge that waits: {differing}.",
      "below": "Modelled: `RoundSeconds.mean` of the rounds, with the seconds of a draft and of a pass without a network. "
      "Waiting: the same drafts, without a bonus token.",
      "rows": rows,
      "figures": figures,
    }  # fmt: skip

  def decoded(self, edges: list[Edge], server: ServerProcess, shape: Shape) -> list[list[Run]]:
    """All sequences of all cases on one network; cases take turns. The first of a case is decoded twice, for it compiles."""
    from jaxspec.serving.edge.connection import connect

    runs: list[list[Run]] = [[] for _ in edges]
    with relaying(server.host, shape) as host:
      cloud = connect(f"grpc://{host}")
      with contextlib.closing(contextlib.ExitStack()) as stack:
        stack.callback(cloud.hang_up)
        for edge in edges:
          edge.run(0, cloud)
        for index in range(self.number):
          for edge, each in zip(edges, runs):
            each.append(timed(edge, index, cloud))
    return runs


def timed(edge: Edge, index: int, cloud: Any) -> Run:
  """One decode."""
  before, clock = (cloud.uplink_bytes, cloud.downlink_bytes), Clock()
  tokens, _ = edge.run(index, cloud, observer=clock)
  seconds = time.perf_counter() - clock.began
  up, down = cloud.uplink_bytes - before[0], cloud.downlink_bytes - before[1]
  void = clock.kinds.count(VOID)
  return Run(
    clock.opened_s - clock.began, clock.ended_s - clock.began, seconds, clock.waited_s, len(clock.kinds) - void, clock.full,
    void, up, down, tuple(tokens.tolist()),
  )  # fmt: skip


def modelled(runs: list[Run], near: list[Run], network: str, pipeline: int) -> np.ndarray:
  """Seconds of decodes by the model.

  Args:
    near: of an edge that waits without a network, with the same drafts.
  """
  of = lambda runs, name: np.array([getattr(run, name) for run in runs], np.float64)
  rounds, link = of(near, "rounds").sum(), NETWORKS[network]
  waited = of(near, "waited_s").sum() / rounds
  drafting = (of(near, "ended_s") - of(near, "opened_s")).sum() / rounds - waited
  beside = (of(near, "opened_s") + of(near, "seconds") - of(near, "ended_s")).mean() + 2 * link.latency_s
  found = []
  for run in runs:
    bits = 8 * (run.up + run.down) / (run.rounds + run.void)
    seconds = RoundSeconds(drafting, waited, link.latency_s + bits / link.bits_per_s)
    found.append(beside + run.rounds * seconds.mean(run.full / run.rounds, max(pipeline, 1)))
  return np.array(found)


def compared(runs: list[Run], waits: list[Run], near: list[Run], network: str, pipeline: int, case: Case) -> dict[str, Any]:
  """Figures of a case on a network; JSON."""
  prompts = np.array(case.prompts)
  of = lambda name: np.array([getattr(run, name) for run in runs], np.float64)
  by_model, number = modelled(runs, near, network, pipeline), np.full(len(runs), float(case.tokens))
  per = lambda above, below: list(map(float, ratio(above, below, clusters=prompts)))
  return {
    "rounds": float(of("rounds").mean()), "full": float(of("full").sum() / of("rounds").sum()) if pipeline else None,
    "void": float(of("void").mean()), "up": float(of("up").mean()),
    "ms_per_token": per(1e3 * of("seconds"), number), "modelled_ms_per_token": per(1e3 * by_model, number),
    "over_model": per(of("seconds"), by_model), "over_waiting": list(map(float, paired(runs, waits, prompts, 0.95))),
  }  # fmt: skip


def cells_of(name: str, network: str, entry: dict[str, Any]) -> list[str]:
  """A row of the table; the share of rounds without a token is known where there is no bonus token."""
  full = "" if entry["full"] is None else f"{100 * entry['full']:.0f}%"
  return [
    name, network, f"{entry['rounds']:.1f}", full, f"{entry['void']:.1f}", f"{entry['up']:,.0f}",
    shown(entry, "ms_per_token", 1), shown(entry, "modelled_ms_per_token", 1), shown(entry, "over_model"),
    shown(entry, "over_waiting"),
  ]  # fmt: skip
