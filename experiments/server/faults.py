"""Decodes of real networks under planted faults: every single one at every call, and random ones together.

The wire, the server and the edge are in this process, and time is virtual: nothing sleeps. Requests and replies go through
their bytes, the server's checks, its dispatcher and its engine, as behind a socket (`experiments.server.faulty`). A killed
server loses its streams and its call table, but not the compiled programs. A killed edge resumes from its journal.
"""

from __future__ import annotations

import collections
import dataclasses
import logging
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from experiments.engine.experiment import Experiment, Lab
from experiments.server.decodes import Case, Edge

if TYPE_CHECKING:
  from experiments.server.faulty import Fault, FaultyCloud

STREAM = b"the only stream."
EDGE = {"EDGE_DIES_BEFORE": False, "EDGE_DIES_AFTER": True}  # a call is sent, or its reply has come


class Schedule(NamedTuple):
  """What goes wrong in a decode."""

  name: str  # a `Fault`, an edge that dies, or SEVERAL
  faults: dict[int, Fault]  # by the number of the attempt
  edge_dies: tuple[int, bool] | None = None


class Outcome(NamedTuple):
  """What became of a schedule."""

  is_same: bool  # tokens, against the undisturbed decode
  attempts: int
  resumes: int
  virtual_s: float  # on the edge's clock


@dataclasses.dataclass(frozen=True, kw_only=True)
class Faults(Experiment):
  """``case`` under every schedule.

  Attributes:
    calls: fewest of a decode, or the table is refused.
    stride: every so manieth call is disturbed; 1 is all of them.
    several: random schedules of ``fewest`` to ``most`` faults, in the whole decode.
  """

  case: Case
  calls: int = 50
  stride: int = 1
  several: int = 200
  fewest: int = 2
  most: int = 4
  seed: int = 0
  kind: ClassVar[str] = "grid"

  def measure(self, lab: Lab) -> dict[str, Any]:
    """See `Experiment.measure`.

    Raises:
      ValueError: for decodes of fewer calls than ``calls``.
    """
    trial = Trial(Edge(self.case, lab))
    if trial.calls < self.calls:
      raise ValueError(f"Must have decodes of {self.calls} calls, we instead got {trial.calls}")
    schedules = [*singles(trial.attempts, self.stride), *self._random(trial.attempts)]
    logging.info("%d schedules, about %.0f s", len(schedules), len(schedules) * trial.seconds)
    found: dict[str, list[Outcome]] = collections.defaultdict(list)
    began = time.perf_counter()
    for number, schedule in enumerate(schedules):
      found[schedule.name].append(trial.run(schedule))
      if number % 100 == 99:
        logging.info("%d of %d after %.0f s", number + 1, len(schedules), time.perf_counter() - began)
    figures = [{"fault": words(name)} | summed(outcomes, trial.attempts) for name, outcomes in found.items()]
    total, differing = (sum(entry[name] for entry in figures) for name in ("schedules", "differing"))
    return {
      "head": ["fault", "schedules", "other tokens", "more attempts", "resumes", "later by, s"],
      "intro": f"{total:,} schedules of a decode of {trial.calls} calls and {self.case.tokens} tokens, of which {differing} "
      "gave other tokens.",
      "below": "More attempts, resumes and delays are means. Delays are virtual: a round trip is 20 ms, and what is lost is "
      "missed at a deadline of at least a second.",
      "rows": [{"cells": cells_of(entry)} for entry in figures],
      "figures": figures,
    }

  def _random(self, attempts: int) -> Iterator[Schedule]:
    """Schedules of several faults of any kind, also in the attempts that mend earlier ones."""
    from experiments.server.faulty import Fault

    generator = random.Random(self.seed)
    for _ in range(self.several):
      places = generator.sample(range(attempts), generator.randint(self.fewest, self.most))
      yield Schedule("SEVERAL", {place: generator.choice(list(Fault)) for place in places})


def singles(attempts: int, stride: int) -> Iterator[Schedule]:
  """One fault at a time; the calls of a decode are its attempts where nothing goes wrong."""
  from experiments.server.faulty import Fault

  places = range(0, attempts, stride)
  for fault in Fault:
    yield from (Schedule(fault.name, {place: fault}) for place in places)
  for name, after in EDGE.items():
    yield from (Schedule(name, {}, (place, after)) for place in places if place < attempts - 1)  # closing is no call


def summed(outcomes: list[Outcome], attempts: int) -> dict[str, Any]:
  """Figures of the schedules of one kind; JSON."""
  mean = lambda values: sum(values) / len(outcomes)
  return {
    "schedules": len(outcomes),
    "differing": sum(not outcome.is_same for outcome in outcomes),
    "more_attempts": mean([outcome.attempts - attempts for outcome in outcomes]),
    "resumes": mean([outcome.resumes for outcome in outcomes]),
    "late_s": mean([outcome.virtual_s for outcome in outcomes]),
  }


def cells_of(entry: dict[str, Any]) -> list[str]:
  """A row of the table."""
  means = (f"{entry[name]:.2f}" for name in ("more_attempts", "resumes", "late_s"))
  return [entry["fault"], f"{entry['schedules']:,}", f"{entry['differing']}", *means]


def words(name: str) -> str:
  """A fault in the words of the table."""
  return name.lower().replace("_", " ")


class Trial:
  """A sequence that is decoded again and again.

  Attributes:
    attempts: of the undisturbed decode; handshake and closing are two of them.
    calls: the others.
    seconds: a decode takes on this machine.
  """

  def __init__(self, edge: Edge):
    self._edge, self._engine = edge, edge.engine(max_streams=4, max_rows=2, widths=(8,))
    self._run({})  # compiles
    began = time.perf_counter()
    self._tokens, cloud, _ = self._run({})
    self.seconds, self.attempts, self._undisturbed_s = time.perf_counter() - began, cloud.attempts, cloud.clock.now
    self.calls = self.attempts - 2

  def run(self, schedule: Schedule) -> Outcome:
    """A decode with these faults."""
    tokens, cloud, resumes = self._run(schedule.faults, schedule.edge_dies)
    late_s = cloud.clock.now - self._undisturbed_s
    return Outcome(bool((tokens == self._tokens).all()), cloud.attempts, resumes, late_s)

  def _run(self, faults: dict[int, Fault], edge_dies: tuple[int, bool] | None = None) -> tuple[Any, FaultyCloud, int]:
    from experiments.server.faulty import FaultyCloud, Killed
    from jaxspec.serving.edge.journal import Journal
    from jaxspec.serving.edge.observer import Observer

    cloud, observer = FaultyCloud(faults, edge_dies=edge_dies, make_engine=self._emptied), Observer()
    options = dict(stream=STREAM, observer=observer, settings=cloud.retry_settings)
    if edge_dies is None:
      return self._edge.run(0, cloud, **options)[0], cloud, observer.resumes
    with tempfile.TemporaryDirectory() as folder:
      decode: Callable[[Journal], Any] = lambda journal: self._edge.run(0, cloud, journal=journal, **options)[0]
      with Journal(Path(folder) / "run.jrn") as journal:
        try:
          decode(journal)
        except Killed:
          pass
        else:
          raise ValueError(f"Must have an edge that dies at attempt {edge_dies[0]}, we instead got a whole decode")
      with Journal(Path(folder) / "run.jrn") as journal:
        return decode(journal), cloud, observer.resumes

  def _emptied(self):
    """The engine without its streams: all that a server which is started again has."""
    self._engine.close(STREAM)
    return self._engine
