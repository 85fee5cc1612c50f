"""Figures of a decode of vector tokens: how rejected tokens were replaced."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxspec.cli.decoding import MethodRun


def figures(run: MethodRun) -> dict[str, Any]:
  """Proposals until every rejected token was replaced, and how often none passed within the cap."""
  report = run.result.metrics
  return {"tries": int(np.sum(report.tries)), "fallbacks": int(np.sum(report.fallback))}


def lines(found: dict[str, Any], run: MethodRun) -> list[tuple[str, str]]:
  """Labels and cells of the summary."""
  if not run.counters()["drafted"].any():
    return []
  return [
    ("proposals after rejections", f"{found['tries']:,}"),
    ("rejections where none passed", f"{found['fallbacks']:,}"),
  ]
