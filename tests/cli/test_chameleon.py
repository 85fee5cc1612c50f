"""From the official downloads of Anole and Lumina-mGPT to images, on the command line and by every kind of drafts.

Each kind is read by one of the two; tests/families/test_chameleon.py has all on one network.
"""

import pytest

from tests.cli.drawn_images import METHODS, draw_by
from tests.run import tiny_chameleon


@pytest.fixture(scope="module")
def downloads(tmp_path_factory):
  folder = tmp_path_factory.mktemp("downloads")
  tiny_chameleon.save_anole(folder / "small", seed=1, layers=1)
  tiny_chameleon.save_lumina(folder / "lumina", layers=1)
  return tiny_chameleon.save_anole(folder / "anole", layers=1).parent


@pytest.mark.slow
@pytest.mark.parametrize(("layout", "methods"), [("anole", ("sjd", "eagle-chain")), ("lumina", ("speculative", "ciar"))])
def test_folders_to_images(run, downloads, tmp_path, layout, methods):
  folder, tokenizers = downloads, downloads / "anole" / "tokenizer"
  extra = ("--tokenizer", tokenizers / "text_tokenizer.json", "--image-tokenizer", tokenizers / "vqgan.ckpt")
  extra = extra if layout == "lumina" else ()
  for source, name in ((layout, "target"), ("small", "draft")):
    outcome = run("convert", "chameleon", folder / source, name, "--layout", layout, "--image-size", "32x64", *extra)
    assert outcome.exit_code == 0, outcome.output
  tiny_chameleon.save_heads(tmp_path, tmp_path / "target")
  drawn = draw_by(run, (8, 4), {name: METHODS[name] for name in methods})
  shape = (3, 4, 2) if layout == "anole" else (3, 4, 3)
  for tokens in drawn.values():
    grid = tokens.reshape(shape)
    assert (grid[:, :, :2] < 16).all() and (grid[:, :, 2:] == 16).all()
