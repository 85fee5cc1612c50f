"""Networks of scales on the command line."""

import json

import numpy as np
import pytest
from PIL import Image

from tests.run import tiny


@pytest.mark.slow
def test_generate(run, fails, tmp_path):
  bundle = tiny.scales(tmp_path / "bundle")
  options = ["--checkpoint", bundle, "--class", 1, "--class", 2, "--class", 3, "--gamma", 2]
  outcome = run("generate", *options, "--compare", "--repeats", 1, "--raw", "--json", "figures.json")
  assert outcome.exit_code == 0, outcome.output
  document = json.loads((tmp_path / "figures.json").read_text())
  figures = document["methods"]
  assert set(figures) == {"ar", "scale-speculative"} and figures["ar"]["target_calls"] == 3 * 3
  assert 3 < figures["scale-speculative"]["target_calls"] <= 3 * 3
  assert [[len(one) for one in image["scale-speculative"]["scales"]] for image in document["images"]] == [[1, 4, 9]] * 3
  assert np.asarray(Image.open(tmp_path / "images.png")).ndim == 3
  assert "a class from 0 to 9, we instead got 10" in fails("generate", "--checkpoint", bundle, "--class", 10)
  assert "gamma below the 3 tokens of a row" in fails("generate", *options[:4], "--gamma", 3)
  messages = fails("generate", *options[:4], "--method", "ar", "--network", "4g")
  assert "discrete tokens, we instead got ar for scales" in messages
  assert "images have all of their tokens" in fails("generate", *options[:4], "--max-tokens", 2)


@pytest.mark.slow
def test_generate_on_the_edge(run, fails, tmp_path):
  """CoDe on the command line, and its figures: one scale of the target and two of the draft."""
  bundle = tiny.scales(tmp_path / "bundle")
  options = ["--checkpoint", bundle, "--class", 1, "--class", 2, "--method", "scale-ciar"]
  outcome = run("generate", *options, "--tau", "inf", "--target-prefix", 0.34, "--json", "figures.json")
  assert outcome.exit_code == 0, outcome.output
  figures = json.loads((tmp_path / "figures.json").read_text())["methods"]["scale-ciar"]
  assert figures["target_calls"] == 2 and figures["cloud"]["cloud_passes"] == 2
  assert figures["cloud"]["local"] == pytest.approx(2 / 3)
  assert "max_window below the 3 tokens of a row" in fails("generate", *options, "--max-window", 3)
