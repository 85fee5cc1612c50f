"""`jaxspec plan`: the table fits a hundred columns, JSON has every figure, and what does not fit is one line."""

import json

import pytest

from jaxspec.core.options import values_of
from jaxspec.planning.recorded_acceptance import RecordedAcceptance
from jaxspec.run.loading import load_pipeline

TINY = ("--device", "h100")


@pytest.fixture
def target(bundle):
  return ("--model", bundle / "target")


def test_table(run, target):
  outcome = run("plan", *target, *TINY, "--batch", 1, "--batch", 100_000_000, "--method", "sjd", "--window", 3)
  assert outcome.exit_code == 0, (outcome.output, outcome.exception)
  lines = outcome.stdout.splitlines()
  assert max(map(len, lines)) <= 100
  for words in ("bfloat16", "1 x h100 with 80 GB", "3 drafts a round", "assumed", "weights", "caches"):
    assert words in outcome.stdout
  verdict = next(line for line in lines if line.startswith("fits"))
  assert " yes " in verdict and " over" in verdict and "no, " in verdict
  assert any(line.startswith("The largest batch that fits is ") for line in lines)


def test_rows_of_an_image_have_no_rounds_of_drafts(run, target):
  rows = ("plan", *target, *TINY, "--method", "rows", "--width", 2)
  assert "rows, 3 tokens read in a pass\n" in run(*rows).stdout
  outcome = run(*rows, "--row-window", 2, "--acceptance", 0.5)
  assert "rows, 6 tokens read in a pass; acceptance 0.50 (given)" in outcome.stdout


def test_json(run, target):
  outcome = run("plan", *target, *TINY, "--batch", 2, "--method", "speculative", "--gamma", 2, "--acceptance", 0.5, "--json")
  found = json.loads(outcome.stdout)
  assert found["method"]["options"] == {"gamma": 2, "round_times": None, "bonus": True, "verify": "token"}
  assert found["acceptance"] == {"value": 0.5, "source": "given"}
  (batch,) = found["batches"]
  assert batch["fits"] and batch["tokens"] == 1.75 and batch["bytes"] < sum(batch["parts"].values())
  assert found["largest_batch"] > 2 and found["model"]["family"] == "llamagen"


def test_a_bundle_has_the_defaults(run, bundle):
  """Of options and of sampling settings; given ones replace them."""
  of_bundle = load_pipeline(bundle)
  plan = ("plan", "--model", bundle, *TINY, "--method", "speculative", "--json")
  found = json.loads(run(*plan).stdout)
  assert found["method"]["options"]["gamma"] == of_bundle.method("speculative").gamma == 3
  assert found["sampling"] == values_of(of_bundle.sampling())
  given = json.loads(run(*plan, "--gamma", 5, "--cfg-scale", 3).stdout)
  assert given["method"]["options"]["gamma"] == 5 and given["sampling"] == found["sampling"] | {"cfg_scale": 3.0}


def test_calls(run, fails, target, tmp_path):
  """A share, or a recording with its acceptance."""
  ciar = ["plan", *target, *TINY, "--method", "ciar", "--gamma", 2, "--json"]
  found = json.loads(run(*ciar, "--calls", 0.25, "--acceptance", 0.5).stdout)
  assert found["calls"] == 0.25 and found["batches"][0]["tokens"] == 4 and found["batches"][0]["draft_calls"] == 4.25
  recorded = RecordedAcceptance("ciar", 2, ((0, 1),), {}, ((0, 4),), (10,))
  (tmp_path / "ciar.json").write_text(recorded.as_json())
  found = json.loads(run(*ciar, "--calls", tmp_path / "ciar.json").stdout)
  assert found["calls"] == 0.2 and found["acceptance"]["value"] == pytest.approx(recorded.acceptance)
  assert "calls 0.25 (given)" in run(*ciar[:-1], "--calls", 0.25).stdout
  assert "Must have calls above 0, at most" in fails(*ciar, "--calls", 0.9)
  assert "accepts tokens locally (ciar) for its calls, we instead got ar" in fails("plan", *target, *TINY, "--calls", 0.3)


def test_several(run, target):
  """A row for each device; as text, as Markdown and as JSON."""
  both = ("plan", *target, "--device", "v5e:2x2", "--device", "a100-80", "--batch", 4)
  text, markdown = run(*both).stdout, run(*both, "--markdown").stdout.splitlines()
  assert max(map(len, text.splitlines())) <= 100 and "…" not in text
  assert len(markdown) == 4 and markdown[2].startswith("| target | v5e:2x2 | 2 x 2 | 4 |")
  assert [plan["device"]["count"] for plan in json.loads(run(*both, "--json").stdout)] == [4, 1]


def test_list(run):
  outcome = run("plan", "--list")
  for words in ("anole-7b", "llamagen-xl-t2i", "v5e:2x2", "h100:8"):
    assert words in outcome.stdout
  assert max(map(len, outcome.stdout.splitlines())) <= 100
  found = json.loads(run("plan", "--list", "--json").stdout)
  assert found["models"]["anole-7b"]["num_tokens"] == 1024 and found["devices"]["h200"]["memory"] == 141e9


def test_unread_options(run, target):
  assert run("plan", *target, *TINY, "--gamma", 2).stderr == "Warning: Not read by --method ar: --gamma\n"


@pytest.mark.parametrize("args, words", [
  (("--device", "h100"), "Must have --model; jaxspec plan --list"),
  (("--model", "anole-7b"), "Must have --device"),
  (("--model", "anole", "--device", "h100"), "did you mean anole-7b?"),
  (("--model", "anole-7b", "--device", "h1000"), "device in a100-40"),
  (("--model", "anole-7b", "--device", "h100", "--mesh", "rows=2"), "a mesh such as data=2,model=4"),
  (("--model", "anole-7b", "--device", "h100", "--method", "gs"), "mean gsd?"),
  (("--model", "anole-7b", "--device", "h100", "--method", "gsd", "--window", "0"), "window"),
  (("--model", "gpt-neo-125m", "--device", "h100", "--method", "sjd", "--initial", "above"), "Must have a grid"),
  (("--model", "anole-7b", "--device", "h100", *("--batch", "1") * 7), "at most 6 batches"),
  (("--model", "anole-7b", "--device", "v5e", "--device", "h100", "--compile"), "one device and one batch with --compile"),
])  # fmt: skip
def test_errors(fails, args, words):
  assert words in fails("plan", *args)


def test_compiling_for_what_is_no_tpu(fails, target):
  assert "Must have a TPU (v5e, v5p, v6e)" in fails("plan", *target, *TINY, "--compile")


def test_a_mesh_that_does_not_divide(fails, target):
  line = fails("plan", *target, "--device", "h100:3", "--mesh", "model=3")
  assert "axis model that divides the 2 heads of target (one of 1, 2), we instead got model=3" in line
  assert "the axis data=2 divides, we instead got 3" in fails(
    "plan", *target, "--device", "h100:2", "--mesh", "data=2", "--batch", 3
  )
