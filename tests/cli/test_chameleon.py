"""From the official downloads of Anole and Lumina-mGPT to images, on the command line and by every kind of method."""

import json

import numpy as np
import pytest
from PIL import Image

from tests.run import tiny_chameleon

METHODS = {
  "ar": (),
  "speculative": ("--gamma", 2),
  "sjd": ("--window", 3),
  "gsd": ("--window", 3, "--group-size", 4, "--max-distance", 9),
  "lantern": ("--gamma", 2, "--num-neighbours", 3),
  "eagle": ("--tree-size", 4, "--tree-top-k", 2, "--tree-depth", 1),
  "eagle-chain": ("--gamma", 2),
  "eagle-lantern": ("--tree-size", 4, "--tree-top-k", 2, "--tree-depth", 1, "--num-neighbours", 3),
  "ciar": ("--gamma", 2, "--tau", 0.1),
}
DRAFTS = {
  "speculative": "draft",
  "lantern": "draft",
  "eagle": "head",
  "eagle-chain": "head",
  "eagle-lantern": "head",
  "ciar": "edge",
}


@pytest.fixture(scope="module")
def downloads(tmp_path_factory):
  folder = tmp_path_factory.mktemp("downloads")
  tiny_chameleon.save_anole(folder / "small", seed=1, layers=1)
  tiny_chameleon.save_lumina(folder / "lumina", layers=1)
  return tiny_chameleon.save_anole(folder / "anole", layers=1).parent


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["anole", "lumina"])
def test_folders_to_images(run, downloads, tmp_path, layout):
  folder, tokenizers = downloads, downloads / "anole" / "tokenizer"
  extra = ("--tokenizer", tokenizers / "text_tokenizer.json", "--image-tokenizer", tokenizers / "vqgan.ckpt")
  extra = extra if layout == "lumina" else ()
  for source, name in ((layout, "target"), ("small", "draft")):
    outcome = run("convert", "chameleon", folder / source, name, "--layout", layout, "--image-size", "32x64", *extra)
    assert outcome.exit_code == 0, outcome.output
  tiny_chameleon.save_heads(tmp_path, tmp_path / "target")
  drawn = {}
  for method, options in METHODS.items():
    draft = ("--draft-model", DRAFTS[method]) if method in DRAFTS else ()
    prompts = ("a red fox", "two cats on a mat", "é")
    options = (*options, "--model", "target", *draft, "--json", "f.json", "--out", "o.png", "--raw", "--heatmap", "h.png")
    outcome = run("generate", *prompts, "--method", method, *options)
    assert outcome.exit_code == 0, (method, outcome.output, outcome.exception)
    document = json.loads((tmp_path / "f.json").read_text())
    drawn[method] = np.asarray([image[method]["tokens"] for image in document["images"]])
    with Image.open("o.png") as image, Image.open("h.png") as maps:
      assert image.height % 8 == 0 and image.width % 4 == 0 and maps.width > 400
  shape = (3, 4, 2) if layout == "anole" else (3, 4, 3)
  for tokens in drawn.values():
    grid = tokens.reshape(shape)
    assert (grid[:, :, :2] < 16).all() and (grid[:, :, 2:] == 16).all() and len({row.tobytes() for row in grid}) == 3
