"""Figures of some methods: their lines in the summary, and their map.

They are found by the name of their object among the figures (`jaxspec.run.figures`), so most methods need no entry here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from jaxspec.render.cloud_map import draw_cloud_map
from jaxspec.render.heatmap import draw_heatmap
from jaxspec.run.figures import report_name
from jaxspec.run.generation import Generation
from jaxspec.serving.wire.link_model import LATENCY_RULES

Lines = list[tuple[str, str]]  # labels, and cells of one method


def _compression(found: dict[str, Any], run: Generation) -> Lines:
  """Traffic under a bit budget; missing figures have no line."""
  lines = (
    ("drafts per round", "drafts_per_round", "{:.2f}"),
    ("rounds without a draft", "empty_rounds", "{:,}"),
    ("resampling rate", "resampling_rate", "{:.1%}"),
    ("tokens of a distribution", "support", "{:.1f}"),
    ("dropped probability", "dropped", "{:.4f}"),
    ("final beta", "final_beta", "{:.6g}"),
    ("bits per token, by formula", "formula_bits_per_token", "{:,.1f}"),
  )
  return [(label, form.format(found[key])) for label, key, form in lines if found.get(key) is not None]


def _cloud(found: dict[str, Any], run: Generation) -> Lines:
  return [
    ("cloud calls per token", f"{found['call_rate']:.1%}"),
    ("cloud passes per {noun}", f"{found['cloud_passes'] / run.num:,.0f}"),
    ("accepted on the edge", f"{found['local']:.1%}"),
    ("accepted by the cloud", f"{found['accepted']:.1%}"),
    ("drawn by the cloud", f"{found['by_cloud']:.1%}"),
  ]


def _replaced(found: dict[str, Any], run: Generation) -> Lines:
  if not run.counters.drafted.any():
    return []
  return [
    ("proposals after rejections", f"{found['tries']:,}"),
    ("rejections where none passed", f"{found['fallbacks']:,}"),
  ]


def _messages(found: dict[str, Any], run: Generation) -> Lines:
  traffic, network, bits = found["traffic"], run.messages.network, found["coded_bits_per_token"]
  rows = [] if bits is None else [("bits per token, coded", f"{bits:,.1f}")]
  rows.append(("bytes up per {noun}", f"{traffic['uplink_bytes'] / run.num:,.0f}"))
  rows.append(("bytes down per {noun}", f"{traffic['downlink_bytes'] / run.num:,.0f}"))
  if network is not None:
    for rule, words in zip(LATENCY_RULES, ("latency once a call", "latency each way")):
      rows.append((f"seconds per {{noun}} on {network}, {words}", f"{found['network_s'][network][rule] / run.num:.2f}"))
  if traffic["transport_bytes"]:
    rows.append(("bytes in all per {noun}, with headers", f"{traffic['transport_bytes'] / run.num:,.0f}"))
  if found["same_tokens"] is not None:
    rows.append(("same tokens through messages", "yes" if found["same_tokens"] else "no"))
  return rows


class Section(NamedTuple):
  """Display of a group of figures: its lines, and the map of ``--heatmap``."""

  lines: Callable[[dict[str, Any], Generation], Lines]
  draw_map: Callable[..., Any] = draw_heatmap


_SECTIONS = {
  "compression": Section(_compression),
  "cloud": Section(_cloud, draw_cloud_map),
  "replaced": Section(_replaced),
  "messages": Section(_messages),
}


def lines_of(found: dict[str, Any], run: Generation) -> Lines:
  """Labels and cells of the groups in a run's figures."""
  return [line for name, section in _SECTIONS.items() if name in found for line in section.lines(found[name], run)]


def draw_map_of(run: Generation) -> Callable[..., Any]:
  """The function that draws the map of a run."""
  return _SECTIONS.get(report_name(run) or "", Section(_replaced)).draw_map
