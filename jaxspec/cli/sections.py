"""Figures that only some decodes have, each with its lines in the summary and its object in the JSON.

They are found by the type of what the drafter or the acceptance rule reported, so most methods need no entry here; a decode
through messages adds its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from jaxspec.cli import cloud_report, compression_report, messages_report, replaced_report
from jaxspec.cli.cloud_map import draw_cloud_map
from jaxspec.cli.decoding import MethodRun
from jaxspec.cli.heatmap import draw_heatmap
from jaxspec.drafters.compressed import CompressedReport
from jaxspec.drafters.interval import GatedReport
from jaxspec.verifiers.token_rule import TokenReport


class Section(NamedTuple):
  """What a report adds.

  Attributes:
    key: of its object in the JSON.
    figures: plain numbers.
    lines: labels and cells of the summary, of those figures.
    draw_map: the map of ``--heatmap``.
  """

  key: str
  figures: Callable[[MethodRun], dict[str, Any]]
  lines: Callable[[dict[str, Any], MethodRun], list[tuple[str, str]]]
  draw_map: Callable[..., Any] = draw_heatmap


_BY_REPORT: dict[type, Section] = {
  CompressedReport: Section("compression", compression_report.figures, compression_report.lines),
  GatedReport: Section("cloud", cloud_report.figures, cloud_report.lines, draw_cloud_map),
  TokenReport: Section("replaced", replaced_report.figures, replaced_report.lines),
}
_OF_MESSAGES = Section("messages", messages_report.figures, messages_report.lines)


def sections_of(run: MethodRun) -> list[Section]:
  """The sections of a run; none for most."""
  found = [_BY_REPORT[kind] for kind in (type(run.result.report), type(run.result.metrics)) if kind in _BY_REPORT]
  return found + [_OF_MESSAGES] * (run.messages is not None)


def draw_map_of(run: MethodRun) -> Callable[..., Any]:
  """What draws the map of a run."""
  return next((section.draw_map for section in sections_of(run)), draw_heatmap)
