"""Figures of a decode under a bit budget (method ``sqs``): what was sent for what was gained."""

from __future__ import annotations

from typing import Any

from jaxspec.cli.decoding import MethodRun
from jaxspec.metrics.compression import compression_figures

# Label, key, format; a line whose key is not there is left out.
_LINES = (
  ("drafts per round", "drafts_per_round", "{:.2f}"),
  ("rounds without a draft", "empty_rounds", "{:,}"),
  ("resampling rate", "resampling_rate", "{:.1%}"),
  ("tokens of a distribution", "support", "{:.1f}"),
  ("dropped probability", "dropped", "{:.4f}"),
  ("final beta", "final_beta", "{:.6g}"),
  ("bits per token, by formula", "formula_bits_per_token", "{:,.1f}"),
)


def figures(run: MethodRun) -> dict[str, Any]:
  """`compression_figures` of a run."""
  return compression_figures(run.result)


def lines(found: dict[str, Any], run: MethodRun) -> list[tuple[str, str]]:
  """Labels and cells of the summary."""
  return [(label, form.format(found[key])) for label, key, form in _LINES if found.get(key) is not None]
