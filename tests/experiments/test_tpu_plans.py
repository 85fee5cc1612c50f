"""Compiled plans: a row has both, and an error is one line."""

import json
import subprocess

import pytest

from experiments.bench import tpu_child, tpu_plans
from experiments.engine.experiment import Lab
from experiments.engine.tables import render
from jaxspec.planning import make_plan, parse_device
from tests.planning.test_plan import DISCRETE

SAID = dict(
  bytes=3.3e9, arguments=2e9, temporary=1e9, results=0, code=0.3e9, caches=0.5e9, planned=3e9, fits=True,
  copies={}, moves={"bf16[4,8]": 57, "bf16[4,9]": 3},
  exchanges={"all-reduce": 72}, exchanges_outside={}, lower_s=5.4, compile_s=60.0,
)  # fmt: skip


def table_of(tmp_path, monkeypatch, *, status=0, error=""):
  """Cells of a table of one tiny decode with a given output of the child; measured twice with one child."""
  plan = make_plan(DISCRETE, parse_device("v5e:2x2"), batches=(4,))
  printed, asked = json.dumps(plan.as_json() | {"compiled": SAID}), []
  run = lambda command, **given: asked.append(command) or subprocess.CompletedProcess(command, status, printed, error)
  monkeypatch.setattr(tpu_plans.subprocess, "run", run)
  monkeypatch.setattr(tpu_plans, "planned", lambda *arguments: plan)
  table = tpu_plans.TpuPlans(title="T", models=("tiny",), devices=("v5e:2x2",), batches=(4,), methods=("ar",))
  for _ in range(2):
    document = table.measure(Lab(tmp_path))
  assert [command[1:] for command in asked] == [["-m", "experiments.bench.tpu_child", "tiny", "v5e:2x2", "4", "ar"]]
  return document | table.frame("bench:tpu_plans", "c")


def test_a_row_says_both(tmp_path, monkeypatch):
  text = render(table_of(tmp_path, monkeypatch))
  assert "| 4 | ar | 2.00 | 1.00 | 0.50 | 0.30 | 3.30 | 3.00 | 0.00 | 1.10 | yes | 0 | 60 | 72 all-reduce | 65 |" in text


def test_what_fails_is_one_line():
  with pytest.raises(ValueError, match="a published model or a checkpoint folder, we instead got 'nothing'"):
    tpu_plans.report("nothing", "v5e:2x2", "1", "ar")


OWN = "JaxRuntimeError, INTERNAL: RET_CHECK failure (x.cc:390) of it"
LARGE = "JaxRuntimeError, E1000: total memory required for HLO temporaries (16.41G) exceeds available HBM (15.75G). H"


@pytest.mark.parametrize(
  ("error", "shown"),
  [(OWN, "the compiler fails: INTERNAL"), (LARGE, "no, 17.6 GB of temporary buffers alone, 16.9 GB are there")],
)
def test_a_program_that_is_not_made_is_a_row(tmp_path, monkeypatch, error, shown):
  (row,) = table_of(tmp_path, monkeypatch, status=1, error=f"log\n{error}\n")["rows"]
  assert row["cells"][:5] == ["tiny", "v5e:2x2", "2 x 2", "4", "ar"]
  assert [cell for cell in row["cells"][5:] if cell] == [shown]


def test_what_is_not_of_the_compiler_is_no_row(tmp_path, monkeypatch):
  """A missing library ends the table, and the error is not cached."""
  with pytest.raises(ValueError, match="can be compiled, we instead got: ValueError, Must have libtpu"):
    table_of(tmp_path, monkeypatch, status=1, error="ValueError, Must have libtpu to compile\n")
  assert not list(tmp_path.rglob("*.pickle"))


def test_a_child_ends_with_one_line(capsys):
  """GPU programs need a GPU to compile."""
  assert tpu_child.main(["llamagen-b", "h100", "1", "ar"]) == 1
  assert capsys.readouterr().err.startswith("ValueError, Must have a TPU")
