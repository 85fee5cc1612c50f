"""Agreement with official code as a table, one row per array of a golden file."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
from typing import Any, ClassVar

import jax

from experiments.engine.experiment import Experiment, Lab

# Checks of each family in its module of ``tests.models``; the last group has full-size or long checks.
CHECKS = {
  "llamagen": ("TRANSFORMER_CHECKS", "TOKENIZER_CHECKS", "SLOW_CHECKS"),
  "mar": ("FAST_CHECKS", "SLOW_CHECKS"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parity(Experiment):
  """Every golden check of a family; ``quick`` leaves out full-size models and long runs."""

  family: str
  quick: bool = False
  kind: ClassVar[str] = "parity"

  def measure(self, lab: Lab) -> dict[str, Any]:
    """See `Experiment.measure`.

    Raises:
      ValueError: for a family without checks.
    """
    if self.family not in CHECKS:
      raise ValueError(f"Must have a family in {', '.join(CHECKS)}, we instead got {self.family!r}")
    module = importlib.import_module(f"tests.models.{self.family}_parity")
    groups = CHECKS[self.family][: -1 if self.quick else None]
    with jax.default_matmul_precision("highest"):
      checks = itertools.chain.from_iterable(getattr(module, group) for group in groups)
      rows = [row._asdict() | {"passed": row.passed} for check in checks for row in check()]
    return {"rows": rows}
