"""The lines about bits in what ``jaxspec generate --method sqs`` prints and writes."""

from __future__ import annotations

from typing import Any

from jaxspec.cli.decoding import MethodRun
from jaxspec.cli.settings import Settings
from jaxspec.metrics.compression import compression_figures


def figures(run: MethodRun) -> dict[str, Any]:
  """`compression_figures` of a run; where the two ends ran, also whether they agreed with the one program."""
  found = compression_figures(run.result, run.traffic)
  return found if run.traffic is None else found | {"wire_agrees": run.wire_agrees}


def settings_parts(settings: Settings) -> list[str]:
  """The budget, and how laws are sent, in words."""
  if settings.sparsifier == "topk":
    kept = f"the likeliest {settings.support}"
  else:
    kept = f"threshold from {settings.beta1:g} (eta {settings.eta:g}, alpha {settings.alpha:g}, policy {settings.policy})"
  budget = f"{settings.budget:g} bits and {settings.max_drafts} drafts a round"
  return [f"{settings.sparsifier}: {kept}", f"ell {settings.ell}", f"{settings.coding} coding", budget]


# Label, key, format; a line whose key no method has is left out.
_LINES = (
  ("drafts per round", "drafts_per_round", "{:.2f}"),
  ("rounds without a draft", "empty_rounds", "{:,}"),
  ("resampling rate", "resampling_rate", "{:.1%}"),
  ("tokens of a law", "support", "{:.1f}"),
  ("dropped probability", "dropped", "{:.4f}"),
  ("final beta", "final_beta", "{:.6g}"),
  ("bits per token, by formula", "formula_bits_per_token", "{:,.1f}"),
  ("bits per token, coded", "coded_bits_per_token", "{:,.1f}"),
  ("bytes per token, on the wire", "wire_bytes_per_token", "{:,.1f}"),
  ("same tokens through messages", "wire_agrees", "{}"),
)


def rows(columns: list[dict[str, Any] | None]) -> list[tuple[str, ...]]:
  """Lines of the table of figures: a label and one cell for each method, "-" for methods that send nothing."""
  lines = []
  for label, key, form in _LINES:
    values = [None if column is None else column.get(key) for column in columns]
    if any(value is not None for value in values):
      lines.append((label, *(_cell(value, form) for value in values)))
  return lines


def _cell(value: Any, form: str) -> str:
  if value is None:
    return "-"
  return form.format({True: "yes", False: "no"}[value] if isinstance(value, bool) else value)
