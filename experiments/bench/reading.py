"""Time to decode a frame into arrays on a server, before its network runs.

The longest frame of every coding, timed as at the start of a server (``--max-decode-ms``). Python decodes it, so the
time does not depend on the device of the network.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from experiments.engine.experiment import Experiment, Lab
from jaxspec.serving.wire.arrays import distributions_of_records
from jaxspec.serving.wire.decode_time import largest_record
from jaxspec.serving.wire.distribution_bits import Limits
from jaxspec.serving.wire.framing import read_distribution, read_drafts, write_distribution, write_drafts
from jaxspec.serving.wire.round_codec import draft_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reading(Experiment):
  """Milliseconds of the longest frame of every coding.

  Attributes:
    vocab: tokens V.
    ell: denominator of the lattice.
    window: drafts of a frame.
    frames: coding and tokens K of a distribution.
    repeats: of every cell.
  """

  vocab: int = 50257
  ell: int = 100
  window: int = 16
  frames: tuple[tuple[str, int], ...] = (
    ("lazy", 64), ("trimmed", 64), ("rice", 64), ("paper", 64), ("dense", 64), ("rice", 256), ("half", 256), ("paper", 256),
  )  # fmt: skip
  repeats: int = 30
  kind: ClassVar[str] = "grid"

  def measure(self, lab: Lab) -> dict[str, Any]:
    """See `Experiment.measure`."""
    return {
      "head": ["coding", "K", "frame, bytes", "read, ms"],
      "intro": f"V = {self.vocab}, ell = {self.ell}, {self.window} drafts a frame; of coding lazy the distribution "
      f"that is sent on request. One core, median [lowest, highest] of {self.repeats}.",
      "below": "Two cells whose brackets overlap do not differ significantly.",
      "rows": [{"cells": self.cells(*each)} for each in self.frames],
    }

  def cells(self, coding: str, support: int) -> list[str]:
    """A row."""
    limits, generator = Limits(self.vocab, self.ell, coding, support, self.window, False), np.random.default_rng(0)
    records = [largest_record(generator, limits) for _ in range(self.window)]
    if coding == "lazy":
      frame, _ = write_distribution(0, 0, records[0], limits)
      decode = lambda: distributions_of_records([read_distribution(frame, limits)[2]], 1, support)
    else:
      frame, _ = write_drafts(0, records, limits)
      decode = lambda: draft_of(read_drafts(frame, limits), self.window, support)
    return [coding, str(support), f"{len(frame)}", _spread(self.milliseconds(decode))]

  def milliseconds(self, run: Callable[[], Any]) -> list[float]:
    """Milliseconds of every repeat, after a warm-up."""
    run()
    found = []
    for _ in range(self.repeats):
      began = time.perf_counter()
      run()
      found.append(1e3 * (time.perf_counter() - began))
    return found


def _spread(values: list[float]) -> str:
  return f"{statistics.median(values):.3g} [{min(values):.3g}, {max(values):.3g}]"
