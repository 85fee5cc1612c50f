"""From files in the released formats to an image: a text network, its image tokenizer and a T5 encoder, all random."""

import json

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save_file

from conversion import engine, llamagen, llamagen_vq
from jaxspec.io.text.language_tokenizer import TOKENIZER_FILE
from jaxspec.models.llamagen import LlamaGenConfig
from jaxspec.models.text_encoders.t5 import T5Config
from jaxspec.models.tokenizers.llamagen_vq import LlamaGenVQConfig
from tests import t5_folders

T2I = LlamaGenConfig(
  model_type="t2i", num_layers=2, dim=16, num_heads=2, vocab_size=16, num_tokens=16, prefix_len=120, caption_dim=8,
  multiple_of=16,
)  # fmt: skip
VQ = LlamaGenVQConfig(base_channels=32, multipliers=(1, 1), num_res_blocks=1, z_channels=8, codebook_size=16, codebook_dim=4)
PROMPTS = ("a red fox in the snow", "a Bowl of ramen (on a table)")


def _release(file, config, family, seed):
  """A file of random weights with the official names."""
  rng = np.random.default_rng(seed)
  shapes = engine.source_shapes(family, engine.template_of(config))
  draw = lambda shape: 0.3 * rng.normal(size=shape) + (len(shape) == 1)
  save_file({name: draw(shape).astype(np.float32) for name, shape in shapes.items()}, file)


@pytest.fixture
def weights(run, tmp_path, monkeypatch):
  """Converts everything on the command line; returns the options that name the networks."""
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
  _release(tmp_path / "t2i.safetensors", T2I, llamagen.FAMILY, 0)
  _release(tmp_path / "vq.safetensors", VQ, llamagen_vq.FAMILY, 1)
  t5_folders.hub(tmp_path / "flan-t5")
  (tmp_path / "t2i.json").write_text(json.dumps({"num_heads": 2, "num_tokens": 16}))
  (tmp_path / "vq.json").write_text(json.dumps({"multipliers": [1, 1], "num_res_blocks": 1, "base_channels": 32}))
  for args in (
    ("llamagen", "t2i.safetensors", "w/t2i", "--config", "t2i.json"),
    ("llamagen-vq", "vq.safetensors", "w/vq", "--config", "vq.json"),
    ("t5", "flan-t5", "w/t5"),
  ):
    outcome = run("convert", *args)
    assert outcome.exit_code == 0, (outcome.output, outcome.exception)
  return ("--model", "w/t2i", "--tokenizer", "w/vq")


@pytest.mark.slow
def test_prompts_to_images(run, fails, weights, tmp_path):
  def generate(*args):
    outcome = run("generate", *args, *weights, "--json", "figures.json", "--seed", 3)
    assert outcome.exit_code == 0, (outcome.output, outcome.exception)
    return json.loads((tmp_path / "figures.json").read_text()), outcome

  text = ("--text-encoder", "w/t5")
  document, outcome = generate(*PROMPTS, *text, "--save-features", "t5.npz", "--out", "o.png", "--raw")
  assert [image["prompt"] for image in document["images"]] == list(PROMPTS)
  assert document["settings"]["sampling"]["cfg_scale"] == 7.5 and document["networks"]["text"] == str(tmp_path / "w" / "t5")
  assert document["files"]["features"] == "t5.npz" and "wrote t5.npz" in outcome.stdout and not outcome.stderr
  with Image.open("o.png") as image:
    assert image.size == (2 * 8, 8)
  # The second run needs no T5.
  tokens = lambda document: [image["ar"]["tokens"] for image in document["images"]]
  stored, _ = generate("--features", "t5.npz")
  assert tokens(stored) == tokens(document) and "text" not in stored["networks"]
  assert [image["prompt"] for image in stored["images"]] == list(PROMPTS)
  other, _ = generate("a green house", *text)
  assert tokens(other)[0] != tokens(document)[0]

  nothing = ("generate", "a fox", *weights)
  assert "prompts need a T5 encoder (text=, --text-encoder)" in fails(*nothing)
  # A part is converted too.
  released, _ = generate(*PROMPTS, "--text-encoder", "flan-t5")
  assert tokens(released) == tokens(document)
  assert "No checkpoint folder" in fails(*nothing, "--text-encoder", "nowhere")
  wide = t5_folders.converted(tmp_path / "wide", T5Config(vocab_size=500, dim=12, num_layers=1, num_heads=1, ffn_hidden=4))
  assert "12 wide, w/t2i takes 8" in fails(*nothing, "--text-encoder", wide)
  (tmp_path / "w" / "t5" / TOKENIZER_FILE).unlink()
  assert "Must have tokenizer.json or spiece.model" in fails(*nothing, *text)


@pytest.mark.parametrize(
  ("options", "words"),
  [
    (("--text-encoder", "t"), "--text-encoder goes with --model"),
    (("--model", "m", "--text-encoder", "t", "--features", "f.npz"), "either --features or --text-encoder"),
    (("--model", "m", "--save-features", "g.npz", "--features", "f.npz"), "either --features or --save-features"),
    (("--model", "m", "--save-features", "g.txt"), "ends in .npz"),
  ],
)
def test_options_that_contradict(fails, options, words):
  assert words in fails("generate", *(() if "--features" in options else ("a fox",)), *options)


def test_classes_have_no_features(fails, class_models):
  source = ("--model", class_models / "target", "--tokenizer", class_models / "vq")
  assert "--save-features goes with" in fails("generate", "--class", 1, *source, "--save-features", "f.npz")
