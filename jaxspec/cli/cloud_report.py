"""Figures of decodes on the edge (``ciar`` and its kin): how often the cloud was called, and who decided."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxspec.cli.decoding import MethodRun
from jaxspec.methods.base import IDS
from jaxspec.methods.ciar import pass_widths
from jaxspec.metrics.cloud_calls import cloud_calls, cloud_passes


def figures(run: MethodRun) -> dict[str, Any]:
  """Calls and shares as plain numbers."""
  found = cloud_calls(run.result)._asdict()
  # JSON has no infinity, which is the ratio without a call.
  found["steps_cloud"] = found["steps_cloud"] if np.isfinite(found["steps_cloud"]) else None
  found["cloud_passes"] = _passes(run)
  found["tokens_sent"] = int(np.sum(run.result.report.sent))
  return found


def _passes(run: MethodRun) -> int:
  """Passes of the cloud; of whole maps or states a call is one pass, whatever it catches up."""
  if run.method.tokens != IDS:
    return int(np.sum(run.result.counters.target_calls))
  window = run.method.gamma
  return int(cloud_passes(run.result, window=window, widest=pass_widths(window)[-1]).sum())


def lines(found: dict[str, Any], run: MethodRun) -> list[tuple[str, str]]:
  """Labels and cells of the summary."""
  return [
    ("cloud calls per token", f"{found['call_rate']:.1%}"),
    ("cloud passes per {noun}", f"{found['cloud_passes'] / run.num:,.0f}"),
    ("accepted on the edge", f"{found['local']:.1%}"),
    ("accepted by the cloud", f"{found['accepted']:.1%}"),
    ("drawn by the cloud", f"{found['by_cloud']:.1%}"),
  ]
