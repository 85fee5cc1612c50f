"""From the released folders of an Emu3 network and its vision tokenizer to images, by every kind of method."""

import json

import numpy as np
import pytest
from PIL import Image

from tests.cli.test_chameleon import DRAFTS, METHODS
from tests.models import emu3_golden as golden
from tests.run import tiny_chameleon


@pytest.mark.slow
def test_folders_to_images(run, tmp_path):
  network, small = golden.write_download(tmp_path / "hub"), golden.write_small(tmp_path / "hub" / "small")
  for source, name in ((network, "target"), (small, "draft")):
    options = ("--ratio", "1:2", "--image-area", 32, "--dtype", "float32")
    outcome = run("convert", "emu3", source, name, *options)
    assert outcome.exit_code == 0, outcome.output
    assert outcome.stdout.endswith("width 32, 4 heads over 2; images of 2 x 4 codes\n")
  tiny_chameleon.save_heads(tmp_path, tmp_path / "target")
  for method, options in METHODS.items():
    draft = ("--draft-model", DRAFTS[method]) if method in DRAFTS else ()
    options = (*options, "--model", "target", *draft, "--json", "f.json", "--out", "o.png", "--raw", "--heatmap", "h.png")
    outcome = run("generate", "a red fox", "two cats on a mat", "é", "--method", method, *options)
    assert outcome.exit_code == 0, (method, outcome.output, outcome.exception)
    document = json.loads((tmp_path / "f.json").read_text())
    grid = np.asarray([image[method]["tokens"] for image in document["images"]]).reshape(3, 4, 3)
    assert (grid[:, :, :2] < 24).all() and (grid[:, :, 2] == 24).all() and len({row.tobytes() for row in grid}) == 3
    with Image.open("o.png") as image, Image.open("h.png") as maps:
      assert image.height % 8 == 0 and image.width % 4 == 0 and maps.width > 400
