"""Denoising steps of DiT on the command line."""

import json

import numpy as np
import pytest
from PIL import Image

from tests.run.test_denoising import STEPS, write_tiny


@pytest.mark.slow
def test_generate(run, fails, tmp_path):
  bundle = write_tiny(tmp_path / "bundle")
  parts = ["--model", bundle / "target", "--tokenizer", bundle / "tokenizer"]
  options = [*parts, "--class", 3, "--class", 1, "--samples", 2, "--steps", STEPS, "--cfg-scale", 1.5]
  outcome = run(
    "generate", *options, "--method", "step-speculative", "--gamma", 2, "--compare", "--repeats", 1, "--raw",
    "--json", "figures.json", "--heatmap", "map.png",
  )  # fmt: skip
  assert outcome.exit_code == 0, outcome.output
  assert "speculative denoising, draft frozen" in outcome.stdout
  document = json.loads((tmp_path / "figures.json").read_text())
  figures = document["methods"]
  assert set(figures) == {"ar", "step-speculative"} and figures["ar"]["target_calls"] == 4 * STEPS
  assert 4 < figures["step-speculative"]["target_calls"] <= 4 * STEPS and not figures["step-speculative"]["draft_calls"]
  assert document["settings"]["draft"] == document["networks"]["draft"] == "frozen"
  assert len(document["images"]) == 4 and "tokens" not in document["images"][0]["ar"]
  assert np.asarray(Image.open(tmp_path / "images.png")).ndim == 3 and (tmp_path / "map.png").is_file()
  drafting = ["--draft-model", bundle / "drafts" / "small", "--coupling", "split", "--json", "small.json"]
  outcome = run(
    "generate", *options, "--gamma", 2, *drafting
  )  # the draft is the target: the last step alone is drawn by itself
  assert outcome.exit_code == 0, outcome.output
  accepted = json.loads((tmp_path / "small.json").read_text())["methods"]["step-speculative"]
  assert accepted["acceptance"] > 0.9 and accepted["draft_calls"] == 2 * (accepted["target_calls"] - 4)
  outcome = run("generate", *options, "--out", "plain.png")
  assert outcome.exit_code == 0 and "plain decoding" in outcome.stdout and (tmp_path / "plain.png").is_file()
  assert "a class from 0 to 9, we instead got 10" in fails("generate", *parts, "--class", 10)
  assert "Must have ddim_eta (0 is DDIM)" in fails("generate", *parts, "--class", 1, "--steps", "ddim50")
  without_noise = ["--steps", "ddim5", "--ddim-eta", 0]
  assert run("generate", *parts, "--class", 1, *without_noise, "--out", "ddim.png").exit_code == 0
  assert "ddim_eta above 0" in fails("generate", *parts, "--class", 1, *without_noise, "--method", "step-speculative")
  assert "gamma below the 6 tokens" in fails("generate", *options, "--method", "step-speculative", "--gamma", 6)
  assert "Must have --tokenizer DIR" in fails("generate", *parts[:2], "--class", 1)
  assert "a draft in frozen, we instead got 'other'" in fails(
    "generate", *options, "--method", "step-speculative", "--draft", "other"
  )


@pytest.mark.slow
def test_generate_on_the_edge(run, tmp_path):
  """Half of the steps are the target's, half the draft's."""
  bundle = write_tiny(tmp_path / "bundle")
  options = ["--checkpoint", bundle, "--class", 1, "--class", 2, "--method", "step-ciar"]
  outcome = run("generate", *options, "--tau", "inf", "--target-prefix", 0.5, "--json", "figures.json")
  assert outcome.exit_code == 0, outcome.output
  figures = json.loads((tmp_path / "figures.json").read_text())["methods"]["step-ciar"]
  assert figures["cloud"]["cloud_passes"] == 2 * 3 and figures["cloud"]["local"] == 0.5
