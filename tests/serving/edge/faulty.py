"""The wire with faults (`experiments.server.faulty`) before the toy engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from experiments.server import faulty
from experiments.server.faulty import KILLS, LOSSLESS, Clock, Fault, Killed
from jaxspec.serving.server.engine_interface import Engine
from tests.serving.edge.toy_engine import ToyEngine

__all__ = ["KILLS", "LOSSLESS", "Clock", "Fault", "FaultyCloud", "Killed"]


class FaultyCloud(faulty.FaultyCloud):
  """That of the experiments, by default with toys for engines."""

  def __init__(
    self, schedule: dict[int, Fault] | None = None, *, make_engine: Callable[[], Engine] = ToyEngine, **options: Any
  ):
    super().__init__(schedule, make_engine=make_engine, **options)
