"""What a server does with a frame before its network runs: it is read into arrays, and with front ends handed over.

The longest frame of every way of sending distributions, as a server times it at its start (``--max-decode-ms``). Reading is
Python, so it does not depend on the device of the network.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable
from typing import Any, ClassVar

from experiments.engine.experiment import Experiment, Lab
from jaxspec.serving.server.dispatcher import VerifyCall
from jaxspec.serving.server.engine_interface import Ahead
from jaxspec.serving.server.idempotency import Position
from jaxspec.serving.wire.cloud import STREAM_BYTES
from jaxspec.serving.wire.frame_reader import FrameReader
from jaxspec.serving.wire.records import Limits

_PROFILE = 0  # one is enough here


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
      "head": ["coding", "K", "frame, bytes", "read, ms", "handed over, bytes", "handed over, ms"],
      "intro": f"V = {self.vocab}, ell = {self.ell}, {self.window} drafts a frame; of coding lazy the distribution "
      f"that is sent on request. One core, median [lowest, highest] of {self.repeats}.",
      "below": "Handing over is writing and reading what goes from a front end to the engine's process, sockets apart. Two "
      "cells whose brackets overlap do not differ significantly.",
      "rows": [{"cells": self.cells(*each)} for each in self.frames],
    }

  def cells(self, coding: str, support: int) -> list[str]:
    """A row."""
    from jaxspec.serving.server import letters

    reader = FrameReader(Limits(self.vocab, self.ell, coding, support, self.window, False))
    part = int(coding == "lazy")
    frame = reader.largest(part)
    ahead = Ahead(_PROFILE, reader.read(frame, part))
    call = VerifyCall(bytes(STREAM_BYTES), Position(1, part), frame, self.window + 1, ahead=ahead)
    readers = {_PROFILE: reader}
    letter = letters.write_verify(call, readers)
    hand_over = lambda: letters.read_verify(memoryview(letters.write_verify(call, readers)), readers)
    read_ms, over_ms = (self.milliseconds(each) for each in (lambda: reader.read(frame, part), hand_over))
    return [coding, str(support), f"{len(frame)}", _spread(read_ms), f"{len(letter)}", _spread(over_ms)]

  def milliseconds(self, run: Callable[[], Any]) -> list[float]:
    """Of every repeat, after one that does not count."""
    run()
    found = []
    for _ in range(self.repeats):
      began = time.perf_counter()
      run()
      found.append(1e3 * (time.perf_counter() - began))
    return found


def _spread(values: list[float]) -> str:
  return f"{statistics.median(values):.3g} [{min(values):.3g}, {max(values):.3g}]"
