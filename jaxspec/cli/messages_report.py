"""Figures of a decode through messages: bytes both ways, and their time on a network."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxspec.cli.decoding import MethodRun
from jaxspec.link.networks import LATENCY_RULES, NETWORKS, link_seconds

_LATENCIES = dict(zip(LATENCY_RULES, ("latency once a call", "latency each way")))


def figures(run: MethodRun) -> dict[str, Any]:
  """Traffic of all rows, ratios over the tokens that rounds committed (token 0 apart), seconds on every network."""
  messages = run.messages
  emitted = {name: int(np.sum(values)) for name, values in messages.traffic._asdict().items()}
  committed = run.num_tokens - run.num
  over = lambda value: value / committed if committed else None
  return {
    "same_tokens": messages.same_tokens,
    "server": messages.server,
    "resumes": messages.resumes,
    "traffic": emitted,
    "coded_bits_per_token": over(emitted["coded_bits"]),
    "uplink_bytes_per_token": over(emitted["uplink_bytes"]),
    "downlink_bytes_per_token": over(emitted["downlink_bytes"]),
    "network_s": {name: _seconds_on(name, run) for name in NETWORKS},
  }


def lines(found: dict[str, Any], run: MethodRun) -> list[tuple[str, str]]:
  """Labels and cells of the summary."""
  traffic, network = found["traffic"], run.messages.network
  rows = (
    [] if found["coded_bits_per_token"] is None else [("bits per token, coded", f"{found['coded_bits_per_token']:,.1f}")]
  )
  rows.append(("bytes up per {noun}", f"{traffic['uplink_bytes'] / run.num:,.0f}"))
  rows.append(("bytes down per {noun}", f"{traffic['downlink_bytes'] / run.num:,.0f}"))
  if network is not None:
    for rule, words in _LATENCIES.items():
      rows.append((f"seconds per {{noun}} on {network}, {words}", f"{found['network_s'][network][rule] / run.num:.2f}"))
  if traffic["transport_bytes"]:
    rows.append(("bytes in all per {noun}, with headers", f"{traffic['transport_bytes'] / run.num:,.0f}"))
  if found["same_tokens"] is not None:
    rows.append(("same tokens through messages", "yes" if found["same_tokens"] else "no"))
  return rows


def _seconds_on(name: str, run: MethodRun) -> dict[str, float]:
  """By the bytes of the transport where it counts them, else by those of the frames."""
  calls, traffic = int(np.sum(run.result.counters.target_calls)), run.messages.traffic
  up, down = traffic.transport_bytes
  if not up + down:
    up, down = traffic.uplink_bytes.sum(), traffic.downlink_bytes.sum()
  sizes = dict(uplink_bytes=int(up), downlink_bytes=int(down), calls=calls)
  return {rule: link_seconds(NETWORKS[name], latency_is=rule, **sizes).total for rule in LATENCY_RULES}
