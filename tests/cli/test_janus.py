"""From released folders of Janus-Pro to images, on the command line and by every method."""

import json

import numpy as np
import pytest
from PIL import Image

from tests.conversion.commands import write_fields
from tests.models import janus_golden as golden

METHODS = {
  "ar": (),
  "speculative": ("--gamma", 2),
  "sjd": ("--window", 3),
  "gsd": ("--window", 3, "--group-size", 4, "--max-distance", 0.5),
  "lantern": ("--gamma", 2, "--num-neighbours", 3),
  "scaled": ("--window", 3, "--factor", 2),
  "sqs": ("--max-drafts", 2),
}
DRAFTING = ("speculative", "lantern", "sqs")
HEADS = ("eagle", "eagle-chain", "eagle-lantern", "ciar")


@pytest.mark.slow
def test_folders_to_images(run, tmp_path):
  """Three prompts in one batch; one pair of converted folders."""
  fields = write_fields(tmp_path, golden.FIELDS)
  for name in ("target", "draft"):
    outcome = run("convert", "janus", golden.FOLDER / name, name, "--config", fields)
    assert outcome.exit_code == 0 and "(vision_model, aligner) is left out" in outcome.output, outcome.output
  drawn = {}
  for method, options in METHODS.items():
    draft = ("--draft-model", "draft") if method in DRAFTING else ()
    prompts = ("a red fox", "two cats on a mat", "é")
    options = (*options, "--model", "target", *draft, "--json", "f.json", "--out", "o.png", "--raw", "--heatmap", "h.png")
    outcome = run("generate", *prompts, "--method", method, *options)
    assert outcome.exit_code == 0, (method, outcome.output, outcome.exception)
    document = json.loads((tmp_path / "f.json").read_text())
    drawn[method] = np.asarray([image[method]["tokens"] for image in document["images"]])
    with Image.open("o.png") as image, Image.open("h.png") as maps:
      assert image.height % 20 == 0 and image.width % 20 == 0 and maps.width > 400
  for tokens in drawn.values():
    assert tokens.shape == (3, 25) and tokens.min() >= 0 and tokens.max() < 256
    assert len({row.tobytes() for row in tokens}) == 3
  for method in HEADS:
    outcome = run("generate", "a red fox", "--method", method, "--model", "target", "--draft-model", "draft")
    assert outcome.exit_code == 2 and outcome.stderr.count("\n") == 1, (method, outcome.output)
