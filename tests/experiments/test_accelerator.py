"""The hour on an accelerator: cached cells, the time limit, and a rehearsal of every step."""

import dataclasses
import json

import pytest

from experiments.accelerator import __main__ as command
from experiments.accelerator import networks, pytorch, speed
from experiments.accelerator.ledger import Clock, Ledger, TimeIsUp
from experiments.accelerator.report import render
from experiments.bench import gpt_b
from tests.exit_status import status_of

ABOUT = {"step": "x", "rehearsal": True, "machine": {"kind": "cpu", "cpus": 2}, "versions": {"jax": "0"}}


def test_cells_are_measured_once_and_written_at_once(tmp_path, capsys):
  file, measured = tmp_path / "x.json", []
  with Ledger(file, ABOUT) as ledger:
    assert ledger.cell("a", Clock(9), lambda: measured.append(1) or {"figure": 1}) == {"figure": 1}
    assert json.loads(file.read_text())["cells"] == {"a": {"figure": 1}}
    assert "does not fit" in ledger.cell("b", Clock(9), lambda: (_ for _ in ()).throw(MemoryError("does\nnot fit")))["error"]
  with Ledger(file, ABOUT) as ledger:
    assert ledger.cell("a", Clock(-1), lambda: measured.append(1)) == {"figure": 1} and measured == [1]
    with pytest.raises(TimeIsUp, match="c"):
      ledger.cell("c", Clock(-1), dict)
    assert ledger.failed == ["b: does not fit"]
  with Ledger(file, ABOUT, again=True) as ledger:
    assert ledger.cell("b", Clock(9), lambda: {"figure": 2}) == {"figure": 2} and ledger.failed == [] and measured == [1]
  with pytest.raises(ValueError, match="a folder of a real run, .* is of a rehearsal"):
    Ledger(file, ABOUT | {"rehearsal": False})


def test_failures_are_named_and_measured_again(tmp_path, capsys, monkeypatch):
  answers = [MemoryError("does not fit"), {"figure": 1}]

  def measure():
    if isinstance(answer := answers.pop(0), Exception):
      raise answer
    return answer

  monkeypatch.setattr(command, "STEPS", {"speed": lambda ledger, clock, rehearse: ledger.cell("tiny", clock, measure)})
  monkeypatch.setattr(command, "render", lambda folder: "")
  arguments = ["--out", str(tmp_path), "--rehearse"]
  for more, status in ((), 1), ((), 1), (["--again"], 0):
    assert status_of(command.main, *arguments, *more) == status
    assert ("--again measures it again: speed: tiny: does not fit" in capsys.readouterr().err) == bool(status)
  assert answers == []


def test_a_rehearsal_is_no_real_run(tmp_path, capsys):
  assert status_of(command.main, "--out", tmp_path, "--rehearse", "--minutes", "0") == 3
  capsys.readouterr()
  assert status_of(command.main, "--out", tmp_path, "--minutes", "0") == 2
  assert capsys.readouterr().err.startswith("Error: Must have a folder of a real run, ")
  (tmp_path / "parity.json").write_text("[]")
  assert status_of(command.main, "--out", tmp_path, "--rehearse", "--minutes", "0") == 2
  assert "parity.json: must hold the cells of a step" in capsys.readouterr().err
  assert status_of(command.main, "--out", tmp_path / "parity.json", "--rehearse") == 2
  assert "Must have a folder for --out" in capsys.readouterr().err


def test_every_method_of_ids_is_measured():
  names = networks.method_names()
  assert {"speculative", "sjd", "eagle", "eagle-chain", "ciar", "sqs", "gsd", "lantern"} <= set(names)
  assert "ar" not in names and "cspd" not in names
  assert {networks.model_of(size, False).num_tokens for size in networks.SIZES} == {256}


def test_no_time_is_left(tmp_path, capsys):
  assert status_of(command.main, "--out", tmp_path, "--rehearse", "--minutes", "0") == 3
  assert "parity: time is up before llamagen" in capsys.readouterr().err


@pytest.mark.slow
def test_rehearsal(tmp_path, capsys, monkeypatch):
  """Every step runs; a restarted run does not measure again."""
  monkeypatch.setattr(networks, "_TINY", dataclasses.replace(networks._TINY, num_layers=1))
  for module in (gpt_b, pytorch):
    monkeypatch.setattr(module, "TOKENS", 8)
  monkeypatch.setattr(speed, "REHEARSED", ("speculative",))  # tests/planning has the other kinds of drafts
  arguments = ["--out", str(tmp_path), "--rehearse", "--minutes", "60"]
  assert status_of(command.main, *arguments) == 0
  cells = {name: json.loads((tmp_path / f"{name}.json").read_text())["cells"] for name in command.STEPS}
  assert not [name for step in cells.values() for name, cell in step.items() if isinstance(cell, dict) and "error" in cell]
  assert len(cells["speed"]) == 2 + len(speed.REHEARSED) and cells["training"]["from update 0"]["steps"] == 2
  assert all(cell["differ"] == [] for cell in cells["parity"].values())
  for name, cell in cells["speed"].items():
    if "acceptance" in name:
      assert cell["over_plain"]["median"] > 0 and cell["tokens_per_call"] >= 1, name
  assert (tmp_path / "scenes/bundle.json").is_file()
  page = render(tmp_path)
  assert "a rehearsal with tiny networks" in page and "| tiny batch 2 |" in page and "Failed" not in page
  capsys.readouterr()
  assert status_of(command.main, *arguments) == 0
  assert [line for line in capsys.readouterr().err.splitlines() if not line.endswith("done")] == []
