"""`jaxspec audit`: figures that agree with each other, and one clear line for whatever is wrong."""

import json
from pathlib import Path

import pytest
from PIL import Image

from jaxspec.cli import audit, audit_report
from jaxspec.cli.settings import Settings


@pytest.fixture
def audited(run, bundle):
  """Runs ``jaxspec audit`` with ``--out``; returns the document and the outcome."""

  def call(*args, source=("--checkpoint", bundle)):
    outcome = run("audit", *args, *source, "--out", "audit.json")
    assert outcome.exit_code == 0, (outcome.output, outcome.exception)
    return json.loads(Path("audit.json").read_text()), outcome

  return call


def test_tiny_model_against_the_closed_form(audited):
  document, outcome = audited("--tiny", "--method", "scaled", "--window", 2, "--sweep", "factor=1,2.5", source=())
  exact, relaxed = document["rows"]
  assert max(exact["tv"], exact["worst_tv"], exact["sequence_tv"]) < 1e-5
  assert relaxed["tv"] > 0.01 and relaxed["worst_tv"] > relaxed["tv"]
  for row in document["rows"]:
    assert abs(row["tv"] - row["closed_form"]) < 1e-5 and row["law_error"] < 1e-5
  assert relaxed["tokens_per_call"] > exact["tokens_per_call"] and relaxed["alpha"] > relaxed["alpha_sd"]
  assert [row["settings"]["factor"] for row in document["rows"]] == [1.0, 2.5]
  assert "Enumeration and closed form differ" in outcome.stdout and "factor 2.5" in outcome.stdout


@pytest.mark.slow
def test_measured_on_a_bundle(audited):
  """A batch that is filled up; sums and means of the pictures agree with the totals."""
  pytest.importorskip("matplotlib")
  options = ("--method", "scaled", "--window", 2, "--factor", 3)
  document, outcome = audited("red apple", "blue cat", "cat", *options, "--batch", 2, "--plot", "plot.png")
  (row,) = document["rows"]
  pictures, worst = row["pictures"], row["worst"]
  assert [picture["prompt"] for picture in pictures] == ["red apple", "blue cat", "cat"]
  mean = lambda name: sum(picture[name] for picture in pictures) / 3
  assert row["tv"]["value"] == pytest.approx(mean("tv")) and row["tv"]["low"] <= row["tv"]["value"] <= row["tv"]["high"]
  assert 0 < row["tv"]["value"] <= worst["tv"] <= 1
  assert row["tv"]["value"] == pytest.approx(row["excess"]["value"], abs=1e-5)
  calls, judged = (sum(picture[name] for picture in pictures) for name in ("target_calls", "judged_places"))
  assert row["tokens_per_call"]["value"] == pytest.approx(3 * 16 / calls)
  # No rule buys acceptance for less.
  gained = (row["alpha"]["value"] - row["alpha_sd"]["value"]) * judged / (3 * 16)
  assert gained > 0 and row["tv"]["value"] >= gained - 1e-5
  assert len(worst["prefix"]) == worst["token"] and worst["prompt"] == pictures[worst["picture"]]["prompt"]
  assert not document["exact"] and "Worst prefix" in outcome.stdout
  with Image.open("plot.png") as picture:
    assert picture.width > 600


@pytest.mark.slow
@pytest.mark.parametrize(
  "options",
  [
    ("sjd", "--recycle", "fresh"), ("sjd", "--initial", "above"), ("speculative",), ("eagle-chain",),
    ("eagle", "--tree-size", 6),
  ],
)
def test_exact_methods_are_exact(audited, options):
  document, _ = audited("--method", *options, "--cfg-scale", 2, "--top-p", 0.9, "--prompts", 2, "--window", 4)
  (row,) = document["rows"]
  assert document["exact"] and row["worst"]["tv"] < 1e-5 and abs(row["kl"]["value"]) < 1e-5
  assert row["alpha"]["value"] == pytest.approx(row["alpha_sd"]["value"], abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["lantern", "eagle-lantern"])
def test_sweep_with_guidance(audited, method):
  """Chains and trees: factor 1 is exact, more is kept with more, at the price of the law."""
  trees = ("--tree-size", 6, "--tree-top-k", 3, "--tree-depth", 2) if method == "eagle-lantern" else ()
  options = ("--method", method, *trees, "--num-neighbours", 3, "--cfg-scale", 2)
  document, outcome = audited(*options, "--prompts", 2, "--sweep", "factor=1,4")
  exact, relaxed = document["rows"]
  assert exact["tv"]["value"] < 1e-5 < relaxed["tv"]["value"]
  assert relaxed["alpha"]["value"] > relaxed["alpha_sd"]["value"]
  assert document["swept"] == "factor" and "factor" in outcome.stdout


def test_labels():
  settings = Settings(method="gsd", group_size=8, recycle="fresh")
  assert audit_report.label_of(settings, "group_size") == "group-size 8"
  assert audit_report.label_of(settings, "recycle") == "recycle fresh"
  assert audit_report.label_of(settings, None) == "gsd"


def test_options_are_those_of_generate(run):
  """One definition: what ``generate`` reads about a method, ``audit`` reads too."""
  names = {option.name for option in audit.audit.params}
  assert {"method", "draft", "gamma", "window", "group_size", "num_neighbours", "factor", "matmul_precision"} <= names
  assert not {"heatmap", "compare", "model"} & names


@pytest.mark.parametrize(
  ("options", "words"),
  [
    (["--method", "ar"], "a method that drafts"),
    (["--method", "magic"], "'ar', 'speculative'"),
    (["--prompts", 0], "--prompts"),
    (["a cat", "--prompts", 2], "not both"),
    (["  "], "prompt"),
    (["--method", "lantern", "--sweep", "window=3,4"], "num-neighbours, factor"),
    (["--method", "gsd", "--sweep", "factor=1,2"], "group-size"),
    (["--method", "eagle", "--tree-top-k", 2, "--tree-depth", 1, "--sweep", "tree-size=6,7"], "6 candidates"),
    (["--sweep", "factor"], "NAME=V1,V2"),
    (["--sweep", "factor=1,,2"], "NAME=V1,V2"),
    (["--sweep", "seed=1,2"], "an option of the method"),
    (["--sweep", "speed=1,2"], "an option of the method"),
    (["--sweep", "factor=1,fast"], "--factor in --sweep"),
    (["--sweep", "recycle=fresh,old"], "--recycle in --sweep"),
    (["--sweep", "factor=0.5"], "factor of at least 1"),
    (["--method", "speculative", "--sweep", "gamma=3,16"], "gamma below the 16 tokens"),
    (["--method", "lantern", "--num-neighbours", 16], "between 1 and 15 neighbours"),
    (["--factor", "many"], "--factor"),
    (["--samples", 5000], "at most 1024 pictures"),
    (["--out", "audit.txt"], "ends in .json"),
    (["--out", "missing/audit.json"], "no folder missing"),
    (["--plot", "/proc/plot.png"], "Cannot write /proc/plot.png"),
    (["--plot", "plot.gif"], "ends in .png"),
    (["--tiny"], "go with a checkpoint"),
  ],
)
def test_bad_input(fails, bundle, options, words):
  assert words in fails("audit", *options, "--checkpoint", bundle)
  assert not list(Path.cwd().iterdir())


@pytest.mark.parametrize(
  ("options", "words"),
  [
    (["--method", "eagle"], "others take a checkpoint"),
    (["--method", "sjd", "--initial", "left"], "uniform initial drafts"),
    (["--temperature", 0.5], "go with a checkpoint"),
    (["--method", "gsd", "--sweep", "top-k=1,2"], "gsd reads"),
    (["red heart"], "go with a checkpoint"),
  ],
)
def test_bad_input_of_a_tiny_model(fails, options, words):
  assert words in fails("audit", "--tiny", *options)


def test_a_sweep_of_trees_is_bounded_by_the_other_settings():
  name, values = audit._read_sweep("tree-size=15,60")
  settings = Settings(method="eagle", tree_top_k=5)
  assert [row.tree_size for row in audit._walk(settings, (name, values), sampling=())] == [15, 60]
