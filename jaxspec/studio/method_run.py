"""The decode of one entrant: its rounds, their time, and the tokens that each of them committed."""

from __future__ import annotations

import time
from typing import Any

import jax
import numpy as np

from jaxspec.core.rounds import prefix_rounds
from jaxspec.core.state import DecodeResult, Origin
from jaxspec.diffusion.token_chains import TokenReport
from jaxspec.drafters.ciar_drafter import GatedReport
from jaxspec.methods.method import CONTINUOUS, DISCRETE
from jaxspec.rules.audited import TokenAudit
from jaxspec.run.generation import Generation
from jaxspec.run.rounds import rounds
from jaxspec.studio import row_images
from jaxspec.studio.studio_session import Entrant, Resolved, StudioSession
from jaxspec.studio.trace_count import TraceCount, counted

_PREVIEW_SHARE = 3.0  # rounds get this many times the seconds of previews


def uncertainty(result: DecodeResult) -> tuple[str, np.ndarray] | None:
  """The kind of uncertainty that a decode reports, and its values ``[B, N]``; NaN for tokens without a value."""
  report, metrics = result.report, result.metrics
  if isinstance(report, GatedReport):
    return "uncertainty on the edge", np.asarray(report.scores)
  if isinstance(metrics, TokenAudit):
    return "chance that the draft is rejected", np.where(metrics.tested, 1.0 - np.asarray(metrics.alpha), np.nan)
  if isinstance(metrics, TokenReport):
    return "tries until a rejected token was replaced", np.asarray(metrics.tries, np.float64)
  return None


class MethodRun:
  """The decode of an entrant: `warm`, then `step` until it returns None.

  Attributes:
    seconds: time of the rounds, without compilation and previews.
    compile_s: time of tracing, compiling and first calls; 0 for compiled programs.
    count: traces of the programs of the decode.
    result: after the newest round, numpy leaves.
  """

  def __init__(self, entrant: Entrant, resolved: Resolved):
    self.entrant, self.seconds, self.compile_s, self.count = entrant, 0.0, 0.0, TraceCount()
    self.result: DecodeResult | None = None
    self._batches = resolved.batches
    self._rounds, self._preview_s, self._finish_s = self._start(), 0.0, 0.0
    self._origin = np.zeros((resolved.batches.num, 1), np.int8)
    self._counts: dict[str, np.ndarray] = {}
    self._number = -1

  def _start(self):
    return rounds(self.entrant.job, self._batches)

  def warm(self, session: StudioSession) -> None:
    """Compiles the programs that are not compiled yet, by the first rounds of another decode."""
    if self.entrant.program in session.compiled:
      return
    parts, start = self.entrant.job.decoder.parts, time.perf_counter()
    needed = 2 + prefix_rounds(parts.target_prefix, self.entrant.job.max_len)
    in_step = parts.verifier is not None and parts.verifier.in_step  # a program for each length
    started = self._start()
    with counted(self.count):
      for number, (result, finish) in enumerate(started, 1):
        jax.block_until_ready((result.tokens, finish().tokens))
        if number >= needed and not in_step:
          break
    started.close()
    session.compiled.add(self.entrant.program)
    self.compile_s = time.perf_counter() - start

  def step(self) -> dict[str, Any] | None:
    """Runs the next round, and returns its tokens of each row as JSON; None after the last round."""
    start = time.perf_counter()
    with counted(self.count):
      found = next(self._rounds, None)
      if found is not None:
        jax.block_until_ready(found[0].tokens)
    if found is None:
      self.seconds += self._finish_s  # the finish of the last round is part of the decode
      return None
    self.seconds += time.perf_counter() - start
    start = time.perf_counter()
    self.result = newest = jax.device_get(found[1]())  # before the next round takes the buffers
    self._finish_s = time.perf_counter() - start
    self._number += 1
    return {"round": self._number, "seconds": self.seconds, "rows": self._rows(newest)}

  def _rows(self, result: DecodeResult) -> list[dict[str, Any]]:
    job = self.entrant.job
    counts = {name: np.asarray(getattr(result.counters, name)) for name in result.counters.__dataclass_fields__}
    before, self._counts = self._counts, counts
    values = uncertainty(result)
    rows = []
    for row, (old, new) in enumerate(zip(np.broadcast_to(self._origin, result.origin.shape), result.origin)):
      fresh = np.flatnonzero((old == Origin.EMPTY) & (new != Origin.EMPTY)).tolist()
      entry: dict[str, Any] = {
        name: int(counts[name][row]) - (int(before[name][row]) if before else 0) for name in ("drafted", "accepted", "local")
      }
      entry["tokens"] = [[at, int(new[at]), int(result.commit_round[row, at])] for at in fresh]
      if values is not None:
        entry["doubts"] = [float(value) if np.isfinite(value) else None for value in values[1][row, fresh]]
      if job.noun == "text" and fresh:
        entry["pieces"] = row_images.pieces(job, np.asarray(result.tokens[row]), fresh[0], fresh[-1] + 1)
      rows.append(entry)
    self._origin = result.origin
    return rows

  def newest(self) -> DecodeResult:
    """The result after the newest round.

    Raises:
      ValueError: before the first round.
    """
    if self.result is None:
      raise ValueError("Must have a round to show, we instead got none")
    return self.result

  def preview(self) -> list[str] | None:
    """The images so far as URLs; None between previews, and for tokens whose unfinished images do not exist."""
    job = self.entrant.job
    grid = job.pipeline.family.space.grid
    if job.noun != "image" or grid is None or job.pipeline.family.space.kind not in (DISCRETE, CONTINUOUS):
      return None
    if self._preview_s * _PREVIEW_SHARE > self.seconds:
      return None
    start = time.perf_counter()
    try:
      result = self.newest()
      known = result.origin != Origin.EMPTY
      return [row_images.data_url(row_images.veiled(image, row, grid)) for image, row in zip(self._images(result), known)]
    except ValueError:  # tokens that are not decoded yet are 0, which some tokenizers refuse
      return None
    finally:
      self._preview_s += max(time.perf_counter() - start, 0.02)

  def _images(self, result: DecodeResult) -> Any:
    job = self.entrant.job
    return job.pipeline.family.decode(result.tokens, condition=self._batches.condition[0], sampling=job.sampling)

  def run(self) -> Generation:
    """The whole decode, for reports; after the last round."""
    return Generation(self.entrant.job, self._batches, [self.newest()], self.compile_s, [self.seconds])
