"""`jaxspec diagnose`: its report and files, and one line for what is wrong."""

import json
from pathlib import Path

import pytest
from PIL import Image

from jaxspec.statistics import FEWEST_CLUSTERS


@pytest.mark.slow
def test_classes_without_drafts(run, class_models):
  outcome = run(
    "diagnose", "--model", class_models / "target", "--tokenizer", class_models / "vq", "--class", 1, "--class", 3,
    "--samples", 2, "--batch", 3, "--out", "d.json",
  )  # fmt: skip
  assert outcome.exit_code == 0, (outcome.output, outcome.exception)
  document = json.loads(Path("d.json").read_text())
  assert document["images"] == 4 and document["tokens"] == 64 and document["vocab_size"] == 16
  assert [row["method"] for row in document["exact"]] == ["sjd", "ngram"] and document["intervals"] == []
  assert all(row["draft"] is None and row["tokens_per_call"]["low"] is None for row in document["exact"])
  shares = document["largest_probability"]
  assert 0 < shares["quantiles"]["0.05"] <= shares["mean"] <= 1 and shares["above_0.95"] + shares["below_0.2"] <= 1
  assert "64 tokens of 4 images" in outcome.stdout and document["advice"][-1] in outcome.stdout.replace("\n", " ")
  assert outcome.stdout.rstrip().endswith("wrote d.json")


@pytest.mark.slow
def test_a_bundle_with_every_draft(run, bundle):
  pytest.importorskip("matplotlib")
  outcome = run("diagnose", "--checkpoint", bundle, "--prompts", FEWEST_CLUSTERS, "--out", "d.json", "--plot", "d.png")
  assert outcome.exit_code == 0, (outcome.output, outcome.exception)
  document = json.loads(Path("d.json").read_text())
  assert {row["draft"] for row in document["exact"]} >= {"small", "feature", None}
  assert all(row["accepted"]["low"] is not None for row in document["exact"])
  assert [row["draft"] for row in document["intervals"]] == ["edge"] and "radius for 90%" in outcome.stdout
  with Image.open("d.png") as image:
    assert image.width > 600


@pytest.mark.parametrize(
  ("options", "words"),
  [
    (["--temperature", "0"], "No such option"),
    (["a dog", "--prompts", "2"], "either prompts or --prompts N"),
    (["--out", "d.txt"], "ends in .json"),
    (["--plot", "nowhere/d.png"], "there is no folder nowhere"),
    (["--checkpoint", "digits32-causal"], "discrete tokens to diagnose, digits32-causal draws continuous tokens"),
  ],
)
def test_one_line_for_what_is_wrong(run, options, words):
  outcome = run("diagnose", *options)
  assert outcome.exit_code == 2 and words in outcome.output and "Traceback" not in outcome.output


@pytest.mark.parametrize(("kind", "option"), [("bundle", "--checkpoint"), ("network", "--model")])
def test_a_folder_of_networks_is_no_prompt(run, class_models, bundle, kind, option):
  """``diagnose FOLDER`` would take the shipped networks and the prompt "FOLDER"."""
  folder = {"bundle": bundle, "network": class_models / "target"}[kind]
  outcome = run("diagnose", folder)
  assert outcome.exit_code == 2 and f"use {option} {folder}" in outcome.output.replace("\n", " ")
  Path("config.json").write_text("{}")
  assert "folder of networks" not in run("diagnose", "").output  # an empty prompt is not the current folder
