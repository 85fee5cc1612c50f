"""Bits and exchanges of a decode with draft and target on two machines, and their time on a link."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from jaxspec.core.options import options_of
from jaxspec.drafters.ciar_drafter import GatedReport
from jaxspec.drafters.sqs_drafter import SqsReport
from jaxspec.methods.method import SAME_FAMILY, Method
from jaxspec.run.generation import Generation, per_row
from jaxspec.serving.wire.link_model import Network, link_seconds

MAX_RATE_MBPS, MAX_LATENCY_MS = 10_000.0, 10_000.0


class LinkCost(NamedTuple):
  """The traffic of all rows of a decode.

  Attributes:
    uplink_bits, downlink_bits: of both directions.
    calls: exchanges.
    basis: one sentence about the way of counting.
  """

  uplink_bits: int
  downlink_bits: int
  calls: int
  basis: str


def cost_of(run: Generation, vocab: int | None) -> LinkCost | None:
  """The traffic of a run; None for tokens that are not discrete.

  Real messages are counted if the run has them. Otherwise these are the bits of the method's formula, or the ids and
  distributions (float32) that the exact test needs. If the target drafts by itself, only the finished ids are sent.
  """
  if run.messages is not None:
    traffic = run.messages.traffic
    up, down = 8 * int(traffic.uplink_bytes.sum()), 8 * int(traffic.downlink_bytes.sum())
    return LinkCost(up, down, int(traffic.exchanges.sum()), "Counted on real messages of both ends.")
  if vocab is None:
    return None
  of_id = max(1, math.ceil(math.log2(vocab)))
  total = {name: int(values.sum()) for name, values in per_row(run.counters).items()}
  calls, reply = total["target_calls"], 2 * of_id * total["target_calls"]
  report = run.result.report
  if isinstance(report, SqsReport):
    drafted = int(np.sum(report.stats.formula_bits)) + of_id * total["drafted"]
    return LinkCost(drafted, reply, calls, "Bits of the sent distributions by the method's formula, and ids.")
  if isinstance(report, GatedReport):
    return LinkCost(of_id * int(np.sum(report.sent)), reply, calls, "Ids that the edge sends, without distributions.")
  if _drafts_apart(run.method):
    drafted = total["drafted"] * (of_id + 32 * vocab)
    return LinkCost(drafted, reply, calls, "An id and a whole distribution (float32) of every draft.")
  whose = "Drafts come from the target itself" if total["drafted"] else "There are no drafts"
  words = f"{whose}: the target decodes alone, and one exchange has the ids."
  return LinkCost(0, of_id * run.num_tokens, run.num, words)


def _drafts_apart(method: Method) -> bool:
  """Whether the draft network needs nothing of the target but its tokens."""
  return method.draft_family == SAME_FAMILY and "gamma" in options_of(type(method))


def seconds(body: Any) -> list[float]:
  """Seconds on a link, from JSON: ``rate_mbps``, ``latency_ms``, and ``uses``, a list of `LinkCost`.

  Raises:
    ValueError: in one line.
  """
  if not isinstance(body, dict) or not isinstance(body.get("uses"), list) or len(body["uses"]) > 64:
    raise ValueError("Must have rate_mbps, latency_ms and a list of uses, we instead got something else")
  rate = _in_range("rate_mbps", body.get("rate_mbps"), 0.001, MAX_RATE_MBPS)
  latency = _in_range("latency_ms", body.get("latency_ms"), 0.0, MAX_LATENCY_MS)
  network, found = Network(rate * 1e6, latency / 1e3), []
  for use in body["uses"]:
    if not isinstance(use, dict):
      raise ValueError("Must have an object for every use, we instead got something else")
    up, down, calls = (_in_range(name, use.get(name), 0, 1e18) for name in ("uplink_bits", "downlink_bits", "calls"))
    seconds = link_seconds(network, uplink_bytes=math.ceil(up / 8), downlink_bytes=math.ceil(down / 8), calls=int(calls))
    found.append(seconds.total)
  return found


def _in_range(name: str, value: Any, low: float, high: float) -> float:
  if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
    raise ValueError(f"Must have {name} from {low:g} to {high:g}, we instead got {value!r:.40}")
  return value
