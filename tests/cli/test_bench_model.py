"""`jaxspec bench-model`: errors are raised before the measurement; the table and the file."""

import importlib
import json
import math

import pytest

from jaxspec.planning.recorded_acceptance import RecordedAcceptance
from jaxspec.sampling.row_schedule import num_passes
from tests.cli.fake_bundle import CLASS_TARGET


@pytest.fixture
def small_measurements(monkeypatch):
  """Limits of this machine from arrays that take milliseconds; tests/planning measures with all of them."""
  here = importlib.import_module("jaxspec.planning.this_machine")
  monkeypatch.setattr(here, "_READ_MB", {"cpu": 8})
  monkeypatch.setattr(here, "_SIDE", {"cpu": 64})
  here.this_machine.cache_clear()
  yield
  here.this_machine.cache_clear()


@pytest.mark.parametrize(
  ("options", "words"),
  [
    ([], "Must have --model; jaxspec plan --list"),
    (["--model", "llamagen-q"], "did you mean"),
    (["--model", "llamagen-b", "--acceptance", 1.5], "an acceptance from 0 to 1, or a file, we instead got 1.5"),
    (["--model", "llamagen-b", "--acceptance", "none.json"], "Cannot read none.json"),
    (["--model", "llamagen-b", "--batch", 0], "batch from 1 to 1024"),
    (["--model", "llamagen-b", "--method", "ar"], "drafts discrete tokens, or draws rows, we instead got ar"),
    (["--model", "llamagen-b", "--method", "cspd"], "drafts discrete tokens, or draws rows, we instead got cspd"),
    (["--model", "llamagen-b", "--method", "spatial", "--draft-layers", 2], "no draft for method spatial, whose head"),
    (["--model", "mar-b"], "a model of token ids to impose acceptance, we instead got mar-b"),
    (["--model", "llamagen-b", "--draft", "llamagen-b", "--draft-layers", 2], "either --draft or --draft-layers"),
    (["--model", "llamagen-b", "--draft-layers", 99], "at most the 12 layers of llamagen-b in a draft, we instead got 99"),
    (["--model", "llamagen-b", "--tokens", 16, "--gamma", 20], "gamma below the 16 tokens of a row"),
    (["--model", "llamagen-b", "--out", "figures.txt"], "figures.txt"),
    (["--model", "llamagen-b", "--tokens", 0], "at least 1 token"),
    (["--model", "gpt-neo-125m", "--method", "sjd", "--initial", "above"], "a grid (for initial drafts from above)"),
    (["--model", "llamagen-b", "--method", "ciar", "--calls", "1.5"], "calls from 0 to 1, or a file, we instead got 1.5"),
    pytest.param(  # compiles a simulation
      ["--model", "llamagen-b", "--method", "ciar", "--calls", 0.6], "calls from 0 to 0.52", marks=pytest.mark.slow
    ),
    (["--model", "llamagen-b", "--method", "ciar", "--calls", 0], "imposed calls above 0"),
    (["--model", "llamagen-b", "--method", "ciar", "--calls", "none.json"], "Cannot read none.json"),
    (["--model", "gpt-neo-125m", "--method", "rows"], "images with a grid of tokens for method rows, we instead got none"),
    (["--model", "llamagen-b", "--method", "rows", "--row-window", 4], "acceptance, rows tests its own"),
    (["--model", "gpt-neo-125m", "--method", "gsd"], "the codebook of the image tokenizer for method gsd"),
  ],
)
def test_options(fails, options, words):
  assert words in fails("bench-model", *options)


@pytest.mark.slow
@pytest.mark.usefixtures("small_measurements")
def test_acceptance_is_recorded_and_imposed(run, fails, bundle, class_models):
  """Recorded acceptance of a bundle gives the speed-up of another network."""
  decode = ["generate", "a red heart", "--checkpoint", bundle, "--samples", 3]
  assert "drafts of discrete tokens to record" in fails(*decode, "--method", "ar", "--save-acceptance", "a.json")
  decode += ["--gamma", 2]
  assert "ends in .json" in fails(*decode, "--save-acceptance", "a.png")
  assert run(*decode, "--save-acceptance", "a.json", "--json", "all.json").exit_code == 0
  found, every = json.loads(open("a.json").read()), json.loads(open("all.json").read())
  rows = [image["speculative"] for image in every["images"]]
  assert [len(row) for row in found["lengths"]] == [row["rounds"] for row in rows]
  assert [sum(row) for row in found["lengths"]] == [row["accepted"] for row in rows]
  assert found["method"] == "speculative" and found["drafts"] == 2 and found["source"]["max_tokens"] == 16
  words = ["--draft-layers", 1, "--repeats", 1, "--acceptance", "a.json"]
  measure = ["bench-model", "--model", class_models / "target", *words]
  assert "acceptance of method sjd" in fails(*measure, "--method", "sjd")
  outcome = run(*measure, "--gamma", 2, "--batch", 1, "--calls", 0.2, "--out", "figures.json")
  assert outcome.exit_code == 0 and "Not read by --method speculative: --calls" in outcome.stderr, outcome.output
  (cell,) = json.loads(open("figures.json").read())["cells"]
  assert cell["acceptance"]["file"] == "a.json" and cell["over_plain"]["median"] > 0
  assert "a.json (0." in outcome.stdout


@pytest.mark.slow
@pytest.mark.usefixtures("small_measurements")
def test_the_network_of_a_folder(run, class_models):
  """Random weights of its sizes: no weights are read."""
  outcome = run(
    "bench-model", "--model", class_models / "target", "--draft-layers", 1, "--gamma", 2, "--batch", 2, "--acceptance", 0.7,
    "--repeats", 1, "--out", "figures.json", "--tree-size", 4,
  )  # fmt: skip
  assert outcome.exit_code == 0, outcome.output
  assert "Not read by --method speculative: --tree-size" in outcome.stderr
  report = json.loads(open("figures.json").read())
  assert report["draft"] == "1 layers of target" and report["num_tokens"] == CLASS_TARGET.num_tokens
  assert [(cell["batch"], cell["acceptance"]) for cell in report["cells"]] == [(2, 0.7)]
  assert report["cells"][0]["over_lock_step"]["median"] > 0
  assert "Acceptance is imposed" in outcome.stdout and outcome.stdout.count("\n| 2 | ") == 2
  assert outcome.stdout.count("| reads MB | of the memory floor | of the arithmetic floor |") == 2


@pytest.mark.slow
@pytest.mark.usefixtures("small_measurements")
def test_chosen_lengths_have_no_figures_of_a_round(run, class_models):
  words = ("bench-model", "--model", class_models / "target", "--draft-layers", 1, "--acceptance", 0.7, "--repeats", 1)
  outcome = run(*words, "--gamma", "auto", "--out", "figures.json")
  assert outcome.exit_code == 0, outcome.output
  (cell,) = json.loads(open("figures.json").read())["cells"]
  assert {cell[name] for name in ("round_ms", "read_bytes", "memory_floor_ms", "break_even", "loop_efficiency")} == {None}
  assert cell["over_plain"]["median"] > 0 and cell["tokens_per_call"] >= 1 and "|  |  |  |  |  |  | " in outcome.stdout


@pytest.mark.slow
@pytest.mark.usefixtures("small_measurements")
def test_a_method_without_drafts(run, class_models):
  """Rows in parallel: as many passes as their schedule has, and no acceptance."""
  outcome = run(
    "bench-model", "--model", class_models / "target", "--method", "rows", "--width", 1, "--batch", 2, "--repeats", 1,
    "--acceptance", 0.7, "--out", "figures.json",
  )  # fmt: skip
  assert outcome.exit_code == 0, outcome.output
  assert "Not read by --method rows without drafts: --acceptance" in outcome.stderr
  (cell,) = json.loads(open("figures.json").read())["cells"]
  side = math.isqrt(CLASS_TARGET.num_tokens)
  assert cell["tokens_per_call"] == pytest.approx(CLASS_TARGET.num_tokens / num_passes((side, side), 1))
  assert cell["acceptance"] is None and cell["loop_efficiency"] is None and cell["round_ms"] > 0
  assert "no acceptance is imposed" in outcome.stdout


@pytest.mark.slow
@pytest.mark.usefixtures("small_measurements")
def test_calls_are_recorded_and_imposed(run, fails, class_models, tmp_path, monkeypatch):
  """Recorded calls of a pair with their own acceptance, and a share of calls with the default acceptance."""
  monkeypatch.setattr("jaxspec.cli.bench_model.ACCEPTANCES", (0.5,))
  recorded = RecordedAcceptance("ciar", 2, ((0, 2, 1), (1,)), {}, ((0, 3, 6, 11), (2, 9)), (16, 16))
  (tmp_path / "ciar.json").write_text(recorded.as_json())
  (tmp_path / "sjd.json").write_text(RecordedAcceptance("sjd", 8, ((0,),)).as_json())
  words = ["--draft-layers", 1, "--repeats", 1, "--gamma", 2, "--out", "f.json"]
  ask = ["bench-model", "--model", class_models / "target", *words]
  assert "acceptance of method ciar" in fails(*ask, "--method", "ciar", "--calls", "sjd.json")
  outcome = run(*ask, "--method", "ciar", "--calls", "ciar.json", "--calls", 0.2, "--batch", 2)
  assert outcome.exit_code == 0, outcome.output
  cells = json.loads(open("f.json").read())["cells"]
  shown = [cell["acceptance"]["file"] if isinstance(cell["acceptance"], dict) else cell["acceptance"] for cell in cells]
  assert shown == ["ciar.json", 0.5]
  assert cells[0]["calls"]["mean"] == pytest.approx(6 / 32) and cells[1]["calls"] == 0.2
  assert 1 / cells[0]["tokens_per_call"] in [pytest.approx(share) for share in (4 / 16, 2 / 16, 3 / 16)]
  assert "| ciar.json (" in outcome.stdout and "| 0.2 |" in outcome.stdout
