"""`jaxspec audit`: figures that agree with each other, and one clear line for whatever is wrong."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from jaxspec.cli import audit, audit_report
from jaxspec.cli.audit_table import print_report
from jaxspec.core.command_line import UserError
from jaxspec.core.state import Counters, DecodeResult
from jaxspec.evaluation.audit import summarize_audit
from jaxspec.methods import Eagle, Gsd, Plain, Rows, Sjd
from jaxspec.rules.audited import TokenAudit
from jaxspec.run.json_values import finite
from jaxspec.sampling import SamplingConfig
from jaxspec.statistics import FEWEST_CLUSTERS


@pytest.fixture
def audited(run, bundle):
  """Runs ``jaxspec audit`` with ``--out``; returns the document and the outcome."""

  def call(*args, source=("--checkpoint", bundle)):
    outcome = run("audit", *args, *source, "--out", "audit.json")
    assert outcome.exit_code == 0, (outcome.output, outcome.exception)
    return json.loads(Path("audit.json").read_text()), outcome

  return call


@pytest.mark.slow
def test_tiny_model_against_the_closed_form(audited):
  document, outcome = audited("--tiny", "--method", "scaled", "--window", 2, "--sweep", "factor=1,2.5", source=())
  exact, relaxed = document["rows"]
  assert max(exact["tv"], exact["worst_tv"], exact["sequence_tv"]) < 1e-5
  assert relaxed["tv"] > 0.01 and relaxed["worst_tv"] > relaxed["tv"]
  for row in document["rows"]:
    assert abs(row["tv"] - row["closed_form"]) < 1e-5 and row["distribution_error"] < 1e-5
  assert relaxed["tokens_per_call"] > exact["tokens_per_call"] and relaxed["alpha"] > relaxed["alpha_sd"]
  assert [row["settings"]["options"]["factor"] for row in document["rows"]] == [1.0, 2.5]
  assert "Enumeration and closed form differ" in outcome.stdout and "factor 2.5" in outcome.stdout


@pytest.mark.slow
def test_measured_on_a_bundle(audited):
  """A padded batch; sums and means of the images agree with the totals."""
  pytest.importorskip("matplotlib")
  options = ("--method", "scaled", "--window", 2, "--factor", 3)
  document, outcome = audited("red apple", "blue cat", "cat", *options, "--batch", 2, "--plot", "plot.png")
  (row,) = document["rows"]
  images, worst = row["images"], row["worst"]
  assert [image["prompt"] for image in images] == ["red apple", "blue cat", "cat"]
  mean = lambda name: sum(image[name] for image in images) / 3
  assert row["tv"]["value"] == pytest.approx(mean("tv")) and row["tv"]["low"] is row["tv"]["high"] is None
  assert 0 < row["tv"]["value"] <= worst["tv"] <= 1
  assert row["tv"]["value"] == pytest.approx(row["excess"]["value"], abs=1e-5)
  calls, judged = (sum(image[name] for image in images) for name in ("target_calls", "judged_positions"))
  assert row["tokens_per_call"]["value"] == pytest.approx(3 * 16 / calls)
  # No rule buys acceptance for less.
  gained = (row["alpha"]["value"] - row["alpha_sd"]["value"]) * judged / (3 * 16)
  assert gained > 0 and row["tv"]["value"] >= gained - 1e-5
  assert len(worst["prefix"]) == worst["token"] and worst["prompt"] == images[worst["image"]]["prompt"]
  assert not document["exact"] and "Worst prefix" in outcome.stdout and "-: no interval" in outcome.stdout
  with Image.open("plot.png") as image:
    assert image.width > 600


@pytest.mark.slow
@pytest.mark.parametrize(
  "options",
  [
    ("sjd", "--recycle", "fresh"),
    ("eagle", "--tree-size", 6),
  ],
)
def test_exact_methods_are_exact(audited, options):
  """A chain and a tree; the audit of each rule is enumerated in tests/evaluation and tests/rules."""
  document, _ = audited("--method", *options, "--cfg-scale", 2, "--top-p", 0.9, "--prompts", 2, "--window", 4)
  (row,) = document["rows"]
  assert document["exact"] and row["worst"]["tv"] < 1e-5 and abs(row["kl"]["value"]) < 1e-5
  assert row["alpha"]["value"] == pytest.approx(row["alpha_sd"]["value"], abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["lantern", "eagle-lantern"])
def test_sweep_with_guidance(audited, method):
  """Chains and trees: factor 1 is exact; larger factors accept more, with a larger bias."""
  trees = ("--tree-size", 6, "--tree-top-k", 3, "--tree-depth", 2) if method == "eagle-lantern" else ()
  options = ("--method", method, *trees, "--num-neighbours", 3, "--cfg-scale", 2)
  document, outcome = audited(*options, "--prompts", 2, "--sweep", "factor=1,4")
  exact, relaxed = document["rows"]
  assert exact["tv"]["value"] < 1e-5 < relaxed["tv"]["value"]
  assert relaxed["alpha"]["value"] > relaxed["alpha_sd"]["value"]
  assert document["swept"] == "factor" and "factor" in outcome.stdout


@pytest.mark.parametrize("num", [2, FEWEST_CLUSTERS])
def test_texts_count_up_to_their_end_and_are_called_texts(num):
  """Rows of 4 of 12 tokens, 2 per call; tokens after the end token do not count; few prompts have a dash."""
  drawn = np.arange(12)[None] < np.full((num, 1), 4)
  tested = drawn & (np.arange(12) % 2 == 1)
  tv = np.where(tested, np.linspace(0.1, 0.9, num)[:, None], 0.0)
  metrics = TokenAudit(tested, *(np.where(tested, value, 0.0) for value in (0.8, 0.6)), tv, tv / 2, tv)
  counts, lengths = np.full(num, 2), np.full(num, 4)
  outcome = DecodeResult(np.ones((num, 12), int), lengths, Counters(*(counts,) * 6), tested, drawn, drawn, metrics)
  figures = summarize_audit(metrics, lengths, counts, prompts=np.arange(num))
  captions = [f"text {number}" for number in range(num)]
  row = audit_report.measured_row("scaled", {}, outcome, figures, captions, "text")
  assert figures.tokens_per_call.value == 2 and figures.tv.value == pytest.approx(0.25)
  assert row.details["texts"][-1] | {"tv": 0.45, "kl": 0.225, "tokens": 4} == pytest.approx(row.details["texts"][-1])
  report = audit_report.Report("words", Sjd(), [], None, False, [row], [], "text")
  console = Console(file=io.StringIO(), width=120)
  print_report(console, report, [])
  printed = console.file.getvalue()
  assert "image" not in printed and f"(text {num})" in printed and " 2.00 " in printed
  if num < FEWEST_CLUSTERS:
    assert "0.2500 -" in printed and f"-: no interval, which takes at least {FEWEST_CLUSTERS} prompts" in printed
  else:
    assert "0.2500 [" in printed and "no interval" not in printed


def test_settings_without_drafts_have_a_dash():
  """Of a sweep over rows without drafts and rows with some."""
  blank, counts, lengths = np.zeros((3, 4)), np.full(3, 2), np.full(3, 4)
  rows = []
  for value, tested in ((1, blank > 0), (2, blank == 0)):
    metrics = TokenAudit(tested, *(np.where(tested, share, 0.0) for share in (0.75, 0.5)), blank, blank, blank)
    outcome = DecodeResult(np.ones((3, 4), int), lengths, Counters(*(counts,) * 6), tested, tested, tested, metrics)
    figures = summarize_audit(metrics, lengths, counts, prompts=np.arange(3))
    rows.append(audit_report.measured_row(f"row-window {value}", {}, outcome, figures, ["a"] * 3, "image"))
  console = Console(file=io.StringIO(), width=120)
  print_report(console, audit_report.Report("images", Rows(), [], "row_window", False, rows, []), [])
  without, some = (line.split() for line in console.file.getvalue().splitlines() if line.startswith(("1 ", "2 ")))
  assert without[-3:-1] == ["-", "-"] and some[-3:-1] == ["75.0%", "50.0%"]


def test_infinite_figures_are_null():
  assert finite({"a": [float("inf"), 1.5], "b": (float("nan"), "x")}) == {"a": [None, 1.5], "b": [None, "x"]}


def test_labels():
  assert audit_report.label_of(Gsd(), "group_size", 8) == "group-size 8"
  assert audit_report.label_of(Gsd(), "recycle", "fresh") == "recycle fresh"
  assert audit_report.label_of(Gsd(), None) == "gsd"


@pytest.mark.parametrize(
  ("text", "name", "values"),
  [
    ("factor=1,2.5", "factor", [1.0, 2.5]),
    ("--group-size=3, 4", "group_size", [3, 4]),
    ("recycle=fresh,coupled", "recycle", ["fresh", "coupled"]),
    ("point-mass=yes,no", "point_mass", [True, False]),
    ("temperature=0,1", "temperature", [0.0, 1.0]),
  ],
)
def test_a_sweep_is_read_as_its_option_is(text, name, values):
  assert audit.read_sweep(text) == (name, values)


def test_rows_of_a_sweep():
  """Over an option of the method, or of the sampling; undeclared options are an error."""
  sampling = SamplingConfig(top_p=0.9)
  assert audit.walk(Sjd(), sampling, None) == [(Sjd(), sampling)]
  assert audit.walk(Sjd(), sampling, audit.Sweep("window", [3.0])) == [(Sjd(window=3), sampling)]
  assert audit.walk(Sjd(), sampling, audit.Sweep("top_k", [5])) == [(Sjd(), SamplingConfig(top_p=0.9, top_k=5))]
  with pytest.raises(UserError, match="window, round-times, recycle"):
    audit.walk(Sjd(), sampling, audit.Sweep("factor", [2.0]))
  with pytest.raises(UserError, match="a method that drafts"):
    audit.walk(Plain(), sampling, None)
  # How large a tree may be depends on its other sizes.
  sizes = [method.tree_size for method, _ in audit.walk(Eagle(tree_top_k=5), sampling, audit.read_sweep("tree-size=15,60"))]
  assert sizes == [15, 60]


@pytest.mark.parametrize(
  ("options", "words"),
  [
    (["--method", "ar"], "a method that drafts"),
    (["--prompts", 0], "--prompts"),
    (["a cat", "--prompts", 2], "not both"),
    (["  "], "prompt"),
    (["--method", "lantern", "--sweep", "window=3,4"], "num-neighbours, factor"),
    (["--method", "gsd", "--sweep", "factor=1,2"], "group-size"),
    (["--method", "eagle", "--tree-top-k", 2, "--tree-depth", 1, "--sweep", "tree-size=6,7"], "6 candidates"),
    (["--sweep", "factor"], "NAME=V1,V2"),
    (["--sweep", "factor=1,,2"], "NAME=V1,V2"),
    (["--sweep", "seed=1,2"], "an option of a method"),
    (["--sweep", "factor=1,fast"], "--factor in --sweep"),
    (["--sweep", "recycle=fresh,old"], "--recycle in --sweep"),
    (["--sweep", "factor=0.5"], "factor of at least 1"),
    (["--method", "speculative", "--sweep", "gamma=3,16"], "gamma below the 16 tokens"),
    (["--method", "lantern", "--num-neighbours", 16], "between 1 and 15 neighbours"),
    (["--method", "sqs"], "no audit with method sqs"),
    (["--samples", 5000], "at most 1024 images"),
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
    (["--method", "sjd", "--window", "auto"], "drafts of one length to enumerate a decode, we instead got auto"),
    (["--method", "speculative", "--gamma", "auto"], "drafts of one length to enumerate a decode, we instead got auto"),
    (["--method", "speculative", "--no-bonus"], "a bonus token to enumerate a decode, we instead got none"),
    (["--temperature", 0.5], "go with a checkpoint"),
    (["--method", "gsd", "--sweep", "top-k=1,2"], "gsd reads"),
    (["red heart"], "go with a checkpoint"),
  ],
)
def test_bad_input_of_a_tiny_model(fails, options, words):
  assert words in fails("audit", "--tiny", *options)
