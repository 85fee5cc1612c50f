"""Limits of speed of a decode: bytes and operations of a round against the peaks of the device (roofline).

These are limits, not forecasts. A pass takes at least the time to read its weights and caches once, or the time of its
operations if longer, plus the time of its exchanges. Good programs reach half to three quarters of the limit; small networks
are limited by kernel launches and reach less.
"""

from __future__ import annotations

from typing import NamedTuple

from jaxspec.core.mesh import MeshSizes
from jaxspec.diffusion.schedule import diffusion_tables
from jaxspec.methods.method import Expected
from jaxspec.planning.devices import Device
from jaxspec.planning.memory_plan import Memory
from jaxspec.planning.parts import Needs
from jaxspec.planning.published_models import Model
from jaxspec.planning.sizes import Pass, Sized, pass_cost
from jaxspec.sampling import AnySampling, ContinuousSampling


class Timed(NamedTuple):
  """A pass and its minimal time in seconds."""

  inputs: int
  operations: float
  read: float
  exchanged: float
  seconds: float
  bound: str  # the longest part: "memory", "arithmetic" or "links"


def timed(cost: Pass, inputs: int, device: Device, dtype: str) -> Timed:
  """Minimal time of a pass: reading and computing overlap, exchanges do not."""
  parts = {
    "memory": cost.read / device.bandwidth,
    "arithmetic": cost.operations / device.peak(dtype),
    "links": cost.exchanged / device.link,
  }
  seconds = max(parts["memory"], parts["arithmetic"]) + parts["links"]
  return Timed(inputs, *cost, seconds, max(parts, key=parts.__getitem__))


class Speed(NamedTuple):
  """Limits of a batch.

  Attributes:
    target: a pass of the target over a window.
    draft: a pass of the draft network; None without one.
    draft_calls: passes of the draft network for each pass of the target.
    tokens: committed tokens of a row per pass of the target.
    round_s: seconds of a round.
    tokens_per_s: of the whole batch.
    row_s: seconds of a whole row.
    over_plain: tokens per second over those of plain decoding.
  """

  target: Timed
  draft: Timed | None
  draft_calls: float
  tokens: float
  round_s: float
  tokens_per_s: float
  row_s: float
  over_plain: float


def speed_of(
  model: Model,
  target: Sized,
  needs: Needs,
  expected: Expected,
  inputs_per_draft_call: int,
  sampling: AnySampling,
  device: Device,
  mesh: MeshSizes,
  memory: Memory,
  *,
  batch: int,
  halves: int,
  dtype: str,
) -> Speed:
  """The limits of a method at a batch size, with ``expected`` figures of its rounds."""
  rows = mesh.rows(batch)
  caches = {need.name: need.bytes(rows) for need in memory.needs}
  is_vectors = target.draws_continuous
  steps = _chain_steps(sampling) if isinstance(sampling, ContinuousSampling) else 0
  window = needs.parts.window
  # Attended slots of an input: the whole cache, or the known tokens of a masked network, half of all on average.
  slots = (model.num_tokens + 1) // 2 if target.is_masked else model.prefix + model.num_tokens + window

  def of_target(inputs: int, drawn: int) -> Timed:
    cache_bytes, drawn = caches.get("caches", 0.0), drawn * is_vectors
    cost = pass_cost(
      target,
      mesh,
      halves * rows,
      inputs,
      slots,
      cache_bytes=cache_bytes,
      drawn=drawn,
      steps=steps,
      logits=model.logits,
    )
    return timed(cost, inputs, device, dtype)

  alone = of_target(1, 1)
  draft, calls, seconds = None, 0.0, 0.0
  inputs = window + 1 if expected.inputs is None else round(expected.inputs)
  scored = of_target(inputs, max(inputs, round(expected.tokens)))  # one pass of MAR may draw several tokens
  if needs.reads is not None:
    calls = needs.draft_calls if expected.draft_calls is None else expected.draft_calls
    inputs = inputs_per_draft_call
    cost = pass_cost(
      needs.reads,
      mesh,
      halves * rows,
      inputs,
      slots,
      cache_bytes=caches.get("draft caches", 0.0),
      drawn=int(is_vectors),
      steps=steps,
      logits=model.logits,
    )
    draft = timed(cost, inputs, device, dtype)
    seconds = calls * draft.seconds
  round_s = scored.seconds + seconds
  first = min(needs.parts.target_prefix, model.num_tokens)
  row_s = first * alone.seconds + (model.num_tokens - first) / expected.tokens * round_s
  rate = batch * model.num_tokens / row_s
  plain = batch / alone.seconds
  return Speed(scored, draft, calls, expected.tokens, round_s, rate, row_s, rate / plain)


def _chain_steps(sampling: ContinuousSampling) -> int:
  """Steps of a diffusion chain."""
  return diffusion_tables(str(sampling.steps)).num_steps - (sampling.stop or 0)
