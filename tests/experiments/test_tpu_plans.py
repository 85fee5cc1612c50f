"""Compiled plans: a row says both, and what fails is one line."""

import json
import subprocess

import pytest

from experiments.bench import tpu_plans
from experiments.engine.experiment import Lab
from experiments.engine.tables import render
from jaxspec.planning import make_plan, parse_device
from tests.planning.test_plan import IDS

SAID = dict(
  bytes=3.3e9, arguments=2e9, temporary=1e9, results=0, code=0.3e9, caches=0.5e9, planned=3e9, fits=True,
  copies={}, moves={"bf16[4,8]": 57, "bf16[4,9]": 3},
  exchanges={"all-reduce": 72}, exchanges_outside={}, lower_s=5.4, compile_s=60.0,
)  # fmt: skip


def test_a_row_says_both(tmp_path, monkeypatch):
  plan = make_plan(IDS, parse_device("v5e:2x2"), batches=(4,))
  printed = json.dumps(plan.as_json() | {"compiled": SAID})
  asked = []
  run = lambda command, **given: asked.append(command) or subprocess.CompletedProcess(command, 0, printed, "")
  monkeypatch.setattr(tpu_plans.subprocess, "run", run)
  table = tpu_plans.TpuPlans(title="T", models=("tiny",), devices=("v5e:2x2",), batches=(4,), methods=("plain",))
  for _ in range(2):  # what was compiled is kept
    document = table.measure(Lab(tmp_path))
    assert len(asked) == 1 and "--compile" in asked[0] and "--json" in asked[0]
  text = render(document | table.frame("bench:tpu_plans", "c"))
  assert "| 4 | plain | 2.00 | 1.00 | 0.50 | 0.30 | 3.30 | 3.00 | 0.00 | 1.10 | yes | 0 | 60 | 72 all-reduce | 65 |" in text


def test_what_fails_is_one_line():
  with pytest.raises(ValueError, match="jaxspec plan --model nothing .* ended with: .*nothing") as error:
    tpu_plans.told(["--model", "nothing", "--device", "v5e:2x2"])
  assert "\n" not in str(error.value)


OWN = "Error: Unforeseen JaxRuntimeError, INTERNAL: RET_CHECK failure (x.cc:390) of it: JAXSPEC_DEBUG=1 shows where"
LARGE = "Error: Out of memory (E1000: total memory required for HLO temporaries (16.41G) exceeds available HBM (15.75G). H)"


@pytest.mark.parametrize(
  ("said", "shown"),
  [(OWN, "the compiler fails: INTERNAL"), (LARGE, "no, 17.6 GB of temporary buffers alone, 16.9 GB are there")],
)
def test_a_program_that_is_not_made_is_a_row(tmp_path, monkeypatch, said, shown):
  plan = json.dumps(make_plan(IDS, parse_device("v5e:2x2"), batches=(4,)).as_json())
  fails, works = (1, "", said), (0, plan, "")
  run = lambda command, **given: subprocess.CompletedProcess(command, *(fails if "--compile" in command else works))
  monkeypatch.setattr(tpu_plans.subprocess, "run", run)
  table = tpu_plans.TpuPlans(title="T", models=("tiny",), devices=("v5e:2x2",), batches=(4,), methods=("ar",))
  (row,) = table.measure(Lab(tmp_path))["rows"]
  assert row["cells"][:5] == ["tiny", "v5e:2x2", "2 x 2", "4", "ar"]
  assert [cell for cell in row["cells"][5:] if cell] == [shown]
