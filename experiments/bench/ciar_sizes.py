"""Limits of CIAR's speed over network size and link, by bytes and operations: nothing is timed.

Plain decoding runs in the cloud, without a link. Both ends of CIAR have devices of one kind. A call adds its time on the
link.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, ClassVar

from experiments.engine.experiment import Experiment, Lab
from jaxspec.core.expected_tokens import expected_tokens
from jaxspec.methods import Ciar
from jaxspec.planning import find_model, make_plan, parse_device
from jaxspec.serving.wire.link_model import NETWORKS, link_seconds

PUBLISHED = 2.18  # arXiv 2603.25463, abstract: the mean of 2.53, 2.13 and 1.87


@dataclasses.dataclass(frozen=True, kw_only=True)
class CiarSizes(Experiment):
  """Speed over plain decoding at given calls, and the calls that give the published one, for each size and link.

  Attributes:
    models: names of ``jaxspec plan --list``.
    device: of both ends.
    calls: cloud calls per token.
    acceptance: of the drafts of a window.
    bytes_per_call: up, with the distributions of the window; down.
  """

  models: tuple[str, ...] = (
    "llamagen-b", "llamagen-l", "llamagen-xl", "llamagen-xxl", "llamagen-3b", "llamagen-xl-t2i", "llamagen-xl-t2i-512",
    "anole-7b",
  )  # fmt: skip
  device: str = "h100"
  calls: float = 0.3
  acceptance: float = 0.7
  bytes_per_call: tuple[int, int] = (1000, 16)
  kind: ClassVar[str] = "grid"

  def measure(self, lab: Lab) -> dict[str, Any]:
    """See `Experiment.measure`."""
    rows = []
    for name in self.models:
      cells = [name, f"{find_model(name).sized('bfloat16').num_parameters / 1e6:,.0f}"]
      plain_s, _ = self._seconds(name, self.calls)
      cells.append(f"{1e3 * plain_s / find_model(name).num_tokens:.2f}")
      for link in (None, *NETWORKS):
        cells.append(f"{self._over_plain(name, self.calls, link):.2f}")
      cells += [self._needed(name, link) for link in (None, *NETWORKS)]
      rows.append({"cells": cells})
    up, down = self.bytes_per_call
    return {
      "head": [
        "model", "M parameters", "plain step, ms", *(f"over plain, {link}" for link in ("no link", *NETWORKS)),
        *(f"calls for {PUBLISHED}, {link}" for link in ("no link", *NETWORKS)),
      ],
      "intro": (
        f"bounds by bytes and operations, both ends on {self.device} in bfloat16, batch 1, {self.calls:g} calls a token, "
        f"acceptance {self.acceptance:g}, windows of {Ciar(tau=0.0).gamma}. A call takes the latency of its link once, {up} "
        f"bytes up and {down} down. Plain decoding runs beside the cloud's device, without a link."
      ),
      "rows": rows,
      "below": (
        "Of plain decoding only the pass counts, of CIAR also the edge. Calls for the published speed: the most, in steps "
        "of 0.01, at which the bound reaches it; none if 0.01 does not."
      ),
    }  # fmt: skip

  @functools.cache  # noqa: B019, an instance lives as long as the process
  def _seconds(self, model: str, calls: float) -> tuple[float, float]:
    """Seconds of a row by plain decoding and by CIAR, without a link."""
    device = parse_device(self.device)
    plan = make_plan(find_model(model), device, method=Ciar(), acceptance=self.acceptance, calls=calls)
    speed = plan.batches[0].speed
    return speed.row_s * speed.over_plain, speed.row_s

  def _over_plain(self, model: str, calls: float, link: str | None) -> float:
    plain_s, row_s = self._seconds(model, calls)
    if link is not None:
      exchanges = round(calls * find_model(model).num_tokens)
      up, down = (exchanges * size for size in self.bytes_per_call)
      row_s += link_seconds(NETWORKS[link], uplink_bytes=up, downlink_bytes=down, calls=exchanges).total
    return plain_s / row_s

  def _needed(self, model: str, link: str | None) -> str:
    """The most calls per token, in steps of 0.01, at which the bound reaches the published speed."""
    low, high = 0, math.floor(100 / expected_tokens(self.acceptance, Ciar().gamma)) + 1
    while high - low > 1:  # fewer calls are faster
      middle = (low + high) // 2
      is_reached = self._over_plain(model, middle / 100, link) >= PUBLISHED
      low, high = (middle, high) if is_reached else (low, middle)
    return f"{low / 100:.2f}" if low else "none"
