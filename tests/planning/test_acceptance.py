"""Default acceptances are those of the measured table."""

import json
from pathlib import Path

import pytest

from jaxspec import methods
from jaxspec.acceptance import expected_tokens
from jaxspec.planning.acceptance import ASSUMED, MEASURED, acceptance_of

RESULTS = Path(__file__).parents[2] / "experiments" / "results" / "speed_methods.json"


def test_as_measured():
  """Tokens for each call at batch 1, with the settings of the rows."""
  rows = {row["label"]: row for row in json.loads(RESULTS.read_text())["rows"] if row["batch"] == 1 and row["options"]}
  for name, (drafts, tokens) in MEASURED.items():
    row = rows[name]
    calls = sum(row["target_calls"]) / len(row["target_calls"])
    assert tokens == pytest.approx(256 / calls, abs=0.001)
    assert drafts == methods.make_method(name, **row["options"]).longest_path()
  assert set(MEASURED) == set(rows) - {"sjd-fresh"}


def test_solved():
  """The acceptance brings as many tokens as were measured, in rounds of the same length."""
  for name, (drafts, tokens) in MEASURED.items():
    found = acceptance_of(methods.make_method(name))
    assert expected_tokens(found.value, drafts) == pytest.approx(tokens) and "emoji64" in found.source


def test_others():
  assert acceptance_of(methods.Plain()) is None and acceptance_of(methods.Parallel()) is None
  assert acceptance_of(methods.Sqs()).value == ASSUMED and acceptance_of(methods.Sqs(), 0.9).source == "given"
  assert expected_tokens(1.0, 4) == 5 and expected_tokens(0.0, 4) == 1
  with pytest.raises(ValueError, match="from 0 to 1, we instead got -1"):
    acceptance_of(methods.Plain(), -1)
