"""Agreement with golden outputs of the official code on this machine, in float32 with exact products."""

from __future__ import annotations

import importlib
from typing import Any

import jax

from experiments.accelerator.ledger import Clock, Ledger
from experiments.bench.parity import CHECKS


def run(ledger: Ledger, clock: Clock, rehearse: bool) -> None:
  """One cell per golden file; a rehearsal takes the first of each family."""
  for family, groups in CHECKS.items():
    module = importlib.import_module(f"tests.models.{family}_parity")
    checks = [check for group in groups for check in getattr(module, group)]
    for check in checks[:1] if rehearse else checks:
      ledger.cell(f"{family} {check.__name__}", clock, lambda check=check: compared(check))


def compared(check) -> dict[str, Any]:
  """Number of arrays that agree, and the array closest to its tolerance."""
  with jax.default_matmul_precision("highest"):
    rows = list(check())
  shares = {row.array: row.max_error / row.tolerance if row.tolerance else float(row.max_error > 0) for row in rows}
  worst = max(shares, key=shares.get)
  return {
    "arrays": len(rows),
    "differ": [row.array for row in rows if not row.passed],
    "worst": worst,
    "worst_share_of_tolerance": float(shares[worst]),
  }
