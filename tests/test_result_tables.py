"""Every rendered table in ``experiments/results`` is what its module makes of the figures beside it."""

import json
from pathlib import Path

import pytest

from experiments import (
  ciar_speed,
  ciar_table,
  cspd_acceptance,
  cspd_digits,
  cspd_marginals,
  cspd_quality,
  cspd_speed,
  method_speeds,
)

RESULTS = Path(__file__).parents[1] / "experiments" / "results"
OWN = {
  "cspd_digits": cspd_digits, "cspd_marginals": cspd_marginals, "cspd_quality": cspd_quality, "cspd_speed": cspd_speed,
  "ciar_speed": ciar_speed, "method_speeds": method_speeds,
}  # fmt: skip
GATED = ("tau", "rho", "code", "window", "depth", "heads_1", "loss_1", "discrete", "comparison")


def module_of(name: str):
  for prefix, module in OWN.items():
    if name.startswith(prefix):
      return module
  if name.removeprefix("ciar_") in GATED:
    return ciar_table
  return cspd_acceptance if name.startswith("cspd_") else None


@pytest.mark.parametrize("file", [f for f in sorted(RESULTS.glob("*.json")) if module_of(f.stem)], ids=lambda f: f.stem)
def test_rendered_table_is_that_of_its_figures(file):
  document = json.loads(file.read_text())
  assert module_of(file.stem).render(document) + "\n" == file.with_suffix(".md").read_text()
