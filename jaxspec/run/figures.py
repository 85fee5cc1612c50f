"""The figures of a result as plain numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxspec.diffusion.token_chains import TokenReport
from jaxspec.drafters.ciar_drafter import GatedReport
from jaxspec.drafters.sqs_drafter import SqsReport
from jaxspec.methods.ciar import pass_widths
from jaxspec.methods.method import DISCRETE
from jaxspec.run.cloud_calls import cloud_calls, cloud_passes
from jaxspec.run.compression import compression_figures
from jaxspec.run.generation import Generation, per_row


def figures(run: Generation) -> dict[str, Any]:
  """Every figure of one method as plain numbers, with an object for the report of its drafter or rule."""
  total = {name: int(values.sum()) for name, values in per_row(run.counters).items()}
  tokens, seconds = run.num_tokens, run.median_s
  found: dict[str, Any] = {
    "tokens": tokens,
    "run_s": seconds,
    "run_s_each": run.run_s,
    "compile_s": run.compile_s,
    "tokens_per_s": tokens / seconds,
    "acceptance": total["accepted"] / total["drafted"] if total["drafted"] else None,
    "tokens_per_target_call": tokens / total["target_calls"] if total["target_calls"] else float("inf"),
    **total,
  }
  if isinstance(run.outputs, np.ndarray):
    found |= {"pixels_s": run.pixels_s, "images_per_s": run.num / seconds}
  if (name := report_name(run)) is not None:
    found[name] = _BY_NAME[name](run)
  return found if run.messages is None else found | {"messages": run.messages.figures(run)}


def speedup(runs: Sequence[Generation]) -> float | None:
  """Seconds per token of plain decoding over those of speculation; None without both methods."""
  return runs[1].token_s / runs[0].token_s if len(runs) == 2 else None


def report_name(run: Generation) -> str | None:
  """Name of the object for the report of a drafter or rule; None for most methods."""
  kinds = type(run.result.report), type(run.result.metrics)
  return next((name for kind, name in _NAMES.items() if kind in kinds), None)


def _compression(run: Generation) -> dict[str, Any]:
  """Traffic under a bit budget (method ``sqs``)."""
  return compression_figures(run.result)


def _cloud(run: Generation) -> dict[str, Any]:
  """Cloud calls and origins of tokens (``ciar`` and related methods)."""
  found = cloud_calls(run.result)._asdict()
  # JSON has no infinity, the ratio without a call.
  found["steps_cloud"] = found["steps_cloud"] if np.isfinite(found["steps_cloud"]) else None
  found["cloud_passes"] = _passes(run)
  found["tokens_sent"] = int(np.sum(run.result.report.sent))
  return found


def _passes(run: Generation) -> int:
  """Passes of the cloud; for scales and denoising steps a call is one pass, including any backlog."""
  if run.method.tokens != DISCRETE:
    return int(np.sum(run.counters.target_calls))
  window = run.method.options()["gamma"]
  return int(cloud_passes(run.result, window=window, widest=pass_widths(window)[-1]).sum())


def _replaced(run: Generation) -> dict[str, Any]:
  """Proposals to replace rejected continuous tokens, and the number of tokens without an accepted proposal within the
  cap."""
  report = run.result.metrics
  return {"tries": int(np.sum(report.tries)), "fallbacks": int(np.sum(report.fallback))}


_NAMES: dict[type, str] = {SqsReport: "compression", GatedReport: "cloud", TokenReport: "replaced"}
_BY_NAME: dict[str, Callable[[Generation], dict[str, Any]]] = {
  "compression": _compression,
  "cloud": _cloud,
  "replaced": _replaced,
}
