"""Every method draws from the shipped bundles what it drew when `tests/recorded` was written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import recorded_tokens

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
@pytest.mark.parametrize("bundle", recorded_tokens.CASES)
def test_tokens_and_counters_are_as_recorded(bundle):
  recorded = recorded_tokens.read()
  if (why := recorded_tokens.difference(recorded["machines"][bundle])) is not None:
    pytest.skip(f"tokens may differ by rounding: {why}; python -m tests.recorded_tokens --write records anew")
  # As recorded: by a process with the compiler's own settings, and on all cores. Both decide how sums are rounded.
  env = {name: value for name, value in os.environ.items() if not name.startswith(("XLA_", "JAX_"))}
  env["JAX_PLATFORMS"] = "cpu"
  command = [sys.executable, "-m", "tests.recorded_tokens", bundle]
  done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True)
  assert done.returncode == 0, done.stdout + done.stderr


def test_every_case_is_recorded():
  recorded = recorded_tokens.read()["cases"]
  cases = {
    f"{bundle}/{method}/{number}": settings
    for bundle, methods in recorded_tokens.CASES.items()
    for method, chosen in methods.items()
    for number, settings in enumerate(chosen)
  }
  assert recorded_tokens.read()["machines"].keys() == recorded_tokens.CASES.keys()
  assert {case: entry["settings"] for case, entry in recorded.items()} == cases
  for case, entry in recorded.items():
    bundle = case.partition("/")[0]
    assert ("sha256" in entry) != (case in recorded_tokens.read_vectors(bundle)), case
    assert set(recorded_tokens.COUNTERS) <= entry.keys()
