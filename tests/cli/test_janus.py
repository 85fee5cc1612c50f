"""From released folders of Janus-Pro to images, on the command line."""

import pytest

from tests.cli.drawn_images import draw_by
from tests.conversion.commands import write_fields
from tests.models import janus_golden as golden

# Methods that read a second folder and the codebook, or the target's own drafts. tests/families has the others.
METHODS = {"lantern": ("--gamma", 2, "--num-neighbours", 3), "sjd": ("--window", 3)}
HEADS = ("eagle", "ciar")


@pytest.mark.slow
def test_folders_to_images(run, tmp_path):
  """Three prompts in one batch; one pair of converted folders."""
  fields = write_fields(tmp_path, golden.FIELDS)
  for name in ("target", "draft"):
    outcome = run("convert", "janus", golden.FOLDER / name, name, "--config", fields)
    assert outcome.exit_code == 0 and "(vision_model, aligner) is left out" in outcome.output, outcome.output
  drawn = draw_by(run, (20, 20), METHODS, {"lantern": "draft"})
  for tokens in drawn.values():
    assert tokens.shape == (3, 25) and tokens.min() >= 0 and tokens.max() < 256
  for method in HEADS:
    outcome = run("generate", "a red fox", "--method", method, "--model", "target", "--draft-model", "draft")
    assert outcome.exit_code == 2 and outcome.stderr.count("\n") == 1, (method, outcome.output)
