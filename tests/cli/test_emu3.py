"""From the released folders of an Emu3 network and its vision tokenizer to images."""

import pytest

from tests.cli.drawn_images import METHODS, draw_by
from tests.models import emu3_golden as golden
from tests.run import tiny_chameleon

# Row ends are those of the base that Emu3 shares with Chameleon, whose test has every kind of drafts.
WINDOWS = ("speculative", "eagle-chain")


@pytest.mark.slow
def test_folders_to_images(run, tmp_path):
  network, small = golden.write_download(tmp_path / "hub"), golden.write_small(tmp_path / "hub" / "small")
  for source, name in ((network, "target"), (small, "draft")):
    options = ("--ratio", "1:2", "--image-area", 32, "--dtype", "float32")
    outcome = run("convert", "emu3", source, name, *options)
    assert outcome.exit_code == 0, outcome.output
    assert outcome.stdout.endswith("width 32, 4 heads over 2; images of 2 x 4 codes\n")
  tiny_chameleon.save_heads(tmp_path, tmp_path / "target")
  for tokens in draw_by(run, (8, 4), {name: METHODS[name] for name in WINDOWS}).values():
    grid = tokens.reshape(3, 4, 3)
    assert (grid[:, :, :2] < 24).all() and (grid[:, :, 2] == 24).all()
