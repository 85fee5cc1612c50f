"""Decodes over the networks of the tables, through a relay that is as slow, beside the model of `link_seconds`.

The server is a process, the relay another one, the edge this one. A sequence has the same tokens on every network, so what
a network costs is the difference to the same sequence through a relay that only forwards. The model is given the bytes that
the client counted, with all that HTTP/2 adds.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import logging
import math
import time
from typing import Any, ClassVar, NamedTuple

import numpy as np

from experiments.engine.experiment import Experiment, Lab
from experiments.server.decodes import Case, Edge
from experiments.server.process import ServerProcess
from experiments.server.relay import Shape, relaying
from jaxspec.serving.edge.observer import Observer
from jaxspec.serving.wire.link_model import NETWORKS, Network, link_seconds
from jaxspec.statistics import Interval, ratio, t_quantile
from jaxspec.statistics.clusters import ratio_variance

SLOW = {"1 Mbit/s": Network(1e6, 0.0)}  # the uplink of the tables of sqs, which have no latency
KNOWN = NETWORKS | SLOW


class Run(NamedTuple):
  """A decode."""

  seconds: float
  calls: int  # handshake and closing included
  up: int
  down: int
  retries: int
  tokens: tuple[int, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Networks(Experiment):
  """Seconds of ``number`` sequences of every case on every network, measured and modelled; cases are of one bundle.

  Attributes:
    number: sequences; more than there are prompts continue them by other keys, and intervals are over prompts.
    only: cases whose label has these words.
    bases: labels up to the last comma. Every case is compared with those of them that are the same after it, sequence by
      sequence.
  """

  cases: tuple[Case, ...]
  networks: tuple[str, ...]
  number: int = 8
  only: str = ""
  bases: tuple[str, ...] = ()
  serve: tuple[str, ...] = ("--max-streams", "4", "--max-rows", "1", "--widths", "8,24")
  kind: ClassVar[str] = "grid"

  def __post_init__(self):
    super().__post_init__()
    if self.number < 2:
      raise ValueError(f"Must have at least 2 sequences, so that there are intervals, we instead got {self.number}")

  def measure(self, lab: Lab) -> dict[str, Any]:
    """See `Experiment.measure`."""
    sequences = lambda case: tuple(itertools.islice(itertools.cycle(case.prompts), self.number))
    cases = [dataclasses.replace(case, prompts=sequences(case)) for case in self.cases if self.only in case.row.name]
    if not cases:
      raise ValueError(f"Must have a label with the words of only, we instead got {self.only!r}")
    num = len(cases) * self.number * (1 + len(self.networks))
    logging.info("%d decodes, about %.0f s", num, 60 + 30 * len(cases) + 4.0 * num)
    found: dict[str | None, dict[str, list[Run]]] = {}
    edges = [Edge(case, lab) for case in cases]
    with ServerProcess(cases, *self.serve) as server:
      for network in (None, *self.networks):
        logging.info("network %s", network)
        found[network] = self.decoded(edges, server, Shape() if network is None else Shape.of(KNOWN[network]))
    rows, figures, worst = [], [], []
    pairs = self.pairs(cases)
    level = 1 - 0.05 / max(1, len(pairs) * len(self.networks))
    for case in cases:
      for network in self.networks:
        near, far = (found[name][case.row.name] for name in (None, network))
        entry = compared(near, far, KNOWN[network], case.tokens, np.array(case.prompts))
        for base in self.bases:
          if (case.row.name, base) in pairs:
            other = found[network][pairs[case.row.name, base]]
            entry[over(base)] = list(map(float, paired(far, other, np.array(case.prompts), level)))
        figures.append({"case": case.row.name, "network": network} | entry)
        rows.append(
          {"cells": [case.row.name, network, *cells_of(entry), *(shown(entry, over(base)) for base in self.bases)]}
        )
        worst.append((abs(entry["link"][0] - 1), f"{case.row.name} on {network}, {entry['link'][0]:.2f}"))
    retries = sum(run.retries for each in found.values() for runs in each.values() for run in runs)
    differing = sum(entry["differing"] for entry in figures)
    return {
      "head": ["decode", "network", "calls", "bytes up", "bytes down", "ms per token", "modelled", "link over its model",
               "the same, latency each way", "beyond the model, ms a call", *map(over, self.bases)],
      "intro": f"{self.number} sequences. Brackets: 95 % intervals over prompts. Sequences with other tokens than "
      f"without a network: {differing}; retries: {retries}.",
      "below": f"Modelled: the time without a network, and `link_seconds` of calls and bytes. Furthest from its model: "
      f"{max(worst)[1]}. The relay keeps to rate and latency; losses, TCP slow starts and queues of others are not there."
      + f" Seconds over those of others are of pairs of the same prompt and key; their {len(pairs) * len(self.networks)} "
      "intervals hold together in 95 %, and one without 1 tells the two apart." * bool(pairs),
      "rows": rows,
      "figures": figures,
    }  # fmt: skip

  def pairs(self, cases: list[Case]) -> dict[tuple[str, str], str]:
    """Labels of cases that are compared: ``(label, base) -> label``."""
    labels = [case.row.name for case in cases]
    found = {}
    for label, base in itertools.product(labels, self.bases):
      begin, comma, end = label.rpartition(",")
      if begin not in self.bases and base + comma + end in labels:
        found[label, base] = base + comma + end
    return found

  def decoded(self, edges: list[Edge], server: ServerProcess, shape: Shape) -> dict[str, list[Run]]:
    """All sequences of all cases on one network; cases take turns. The first of a case is decoded twice, for it compiles."""
    from jaxspec.serving.edge.connection import connect

    runs: dict[str, list[Run]] = {edge.case.row.name: [] for edge in edges}
    with relaying(server.host, shape) as host, contextlib.closing(_Connection(connect(f"grpc://{host}"))) as connection:
      for edge in edges:
        edge.run(0, connection.cloud)
      for index in range(self.number):
        for edge in edges:
          runs[edge.case.row.name].append(timed(edge, index, connection.cloud))
    return runs


class _Connection(NamedTuple):
  cloud: Any

  def close(self) -> None:
    self.cloud.hang_up()


class Calls(Observer):
  """Counts calls."""

  def __init__(self):
    super().__init__()
    self.number = 1  # closing is not told

  def begins(self) -> None:
    self.number += 1


def timed(edge: Edge, index: int, cloud: Any) -> Run:
  """One decode."""
  observer, before, began = Calls(), (cloud.uplink_bytes, cloud.downlink_bytes), time.perf_counter()
  tokens, _ = edge.run(index, cloud, observer=observer)
  seconds = time.perf_counter() - began
  up, down = cloud.uplink_bytes - before[0], cloud.downlink_bytes - before[1]
  return Run(seconds, observer.number, up, down, observer.retries, tuple(tokens.tolist()))


def over(base: str) -> str:
  """Head of the column that compares with a base."""
  return f"seconds over {base}"


def paired(runs: list[Run], others: list[Run], clusters: np.ndarray, level: float) -> Interval:
  """Seconds over those of the same sequences."""
  seconds = lambda of: np.array([run.seconds for run in of])
  return ratio(seconds(runs), seconds(others), clusters=clusters, level=level)


def compared(near: list[Run], far: list[Run], network: Network, tokens: int, clusters: np.ndarray) -> dict[str, Any]:
  """Figures of a case on a network; ratios with their intervals; JSON."""

  def modelled(reading: str) -> np.ndarray:
    sizes = [dict(uplink_bytes=run.up, downlink_bytes=run.down, calls=run.calls) for run in far]
    return np.array([link_seconds(network, **size, latency_is=reading).total for size in sizes])

  of = lambda runs, name: np.array([getattr(run, name) for run in runs], np.float64)
  local_s, whole_s, calls = of(near, "seconds"), of(far, "seconds"), of(far, "calls")
  once_s, each_way_s, number = modelled("rtt_per_call"), modelled("one_way"), np.full(len(far), float(tokens))
  per = lambda above, below: list(map(float, ratio(above, below, clusters=clusters)))
  beyond = lambda above, below: signed(above, below, clusters)
  return {
    "calls": float(calls.mean()), "up": float(of(far, "up").mean()), "down": float(of(far, "down").mean()),
    "ms_per_token": per(1e3 * whole_s, number), "modelled_ms_per_token": per(1e3 * (local_s + once_s), number),
    "link": beyond(whole_s - local_s, once_s), "link_each_way": beyond(whole_s - local_s, each_way_s),
    "beyond_ms": beyond(1e3 * (whole_s - local_s - once_s), calls),
    "differing": sum(a.tokens != b.tokens for a, b in zip(near, far)),
  }  # fmt: skip


def signed(above: np.ndarray, below: np.ndarray, clusters: np.ndarray) -> list[float]:
  """``sum(above) / sum(below)`` and the ends of its 95 % interval, for differences, which noise may bring below 0."""
  value, variance, number = ratio_variance(above, below, clusters, at_least=2)
  half = t_quantile(0.95, number - 1) * math.sqrt(variance)
  return [value, value - half, value + half]


def shown(entry: dict[str, Any], name: str, digits: int = 2) -> str:
  """A figure with its interval; nothing where there is none."""
  return "{:.{d}f} [{:.{d}f}, {:.{d}f}]".format(*entry[name], d=digits) if name in entry else ""


def cells_of(entry: dict[str, Any]) -> list[str]:
  """A row of the table, without its label."""
  counts = (f"{entry[name]:,.0f}" for name in ("calls", "up", "down"))
  ms, ratios = (shown(entry, name, 1) for name in ("ms_per_token", "modelled_ms_per_token")), ("link", "link_each_way")
  return [*counts, *ms, *(shown(entry, name) for name in ratios), shown(entry, "beyond_ms")]
