"""`jaxspec generate` on random networks: images, figures, reproducibility."""

import json

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save_file

from jaxspec.methods import Plain
from jaxspec.run import batches
from tests.cli import fake_bundle


@pytest.fixture
def generate(run, bundle):
  """Runs ``jaxspec generate`` with ``--json``; returns the document and the outcome."""

  def call(*args, source=("--checkpoint", bundle)):
    outcome = run("generate", *args, *source, "--json", "figures.json")
    assert outcome.exit_code == 0, (outcome.output, outcome.exception)
    with open("figures.json", encoding="utf-8") as file:
      return json.load(file), outcome

  return call


def tokens(document, method="ar"):
  return [image[method]["tokens"] for image in document["images"]]


@pytest.mark.slow
def test_compare_greedy(generate):
  """Greedy speculation gives the images of greedy plain decoding, and every figure is consistent."""
  options = ("--temperature", 0, "--compare", "--repeats", 2, "--out", "o.png", "--heatmap", "h.png")
  document, outcome = generate("a red apple", "a sleeping cat", *options)
  assert tokens(document, "speculative") == tokens(document, "ar")
  fast, plain = document["methods"]["speculative"], document["methods"]["ar"]
  assert fast["tokens"] == plain["tokens"] == 32
  assert plain["target_calls"] == 32 and plain["acceptance"] is None
  assert fast["accepted"] + fast["target_calls"] == 32  # every call of the target yields one token of its own
  assert len(fast["run_s_each"]) == len(plain["run_s_each"]) == 2
  assert document["speedup"] == pytest.approx(plain["run_s"] / fast["run_s"])
  assert sum(p["speculative"]["rounds"] for p in document["images"]) == fast["rounds"]
  assert "Speculation was" in outcome.stdout and "tokens per second" in outcome.stdout
  assert outcome.stderr == ""
  with Image.open("o.png") as grid, Image.open("h.png") as maps:
    assert grid.width == 2 * 24 + 2 * (2 * 192 + 8) + 24
    assert maps.width == 2 * 24 + 2 * (3 * 192 + 16) + 24
    assert json.loads(grid.text["jaxspec"])["captions"] == ["a red apple", "a sleeping cat"]


@pytest.mark.slow
def test_trees_compare_greedy(generate):
  """The draft of the right family is found, and greedy trees give the images of greedy plain decoding."""
  trees = ("--method", "eagle", "--tree-size", 5, "--tree-top-k", 2, "--tree-depth", 2)
  document, outcome = generate("a red apple", *trees, "--cfg-scale", 2, "--temperature", 0, "--compare", "--repeats", 1)
  assert tokens(document, "eagle") == tokens(document, "ar")
  assert document["settings"]["draft"] == "feature" and document["speedup"] > 0
  assert "draft feature, tree-size 5, tree-top-k 2, tree-depth 2" in outcome.stdout


@pytest.mark.slow
@pytest.mark.parametrize("method,words", [("sjd", "window 5"), ("lantern", "num-neighbours 3, factor 3")])
def test_methods_of_chains(generate, method, words):
  """Each method runs on a batch with guidance, with its name and its calls; other options are not read."""
  options = ("--window", 5, "--group-size", 4, "--num-neighbours", 3, "--factor", 3, "--cfg-scale", 2)
  document, outcome = generate("a red apple", "a cat", "--method", method, *options, "--compare", "--repeats", 1)
  assert words in outcome.stdout and ("not exact" in outcome.stdout) == (method != "sjd")
  figures = document["methods"][method]
  assert figures["accepted"] + figures["target_calls"] == 32
  assert (figures["draft_calls"] == 0) == (method != "lantern")
  assert (document["settings"]["draft"] is None) == (method != "lantern")


@pytest.mark.slow
def test_rows_have_their_width_in_the_heading(generate):
  """The default depends on the image."""
  _, outcome = generate("a red apple", "--method", "rows", "--compare", "--repeats", 1)
  assert "several rows of an image at once, width 2, not exact" in outcome.stdout and "Method rows was " in outcome.stdout


@pytest.mark.slow
def test_same_seed_same_image(generate):
  first, _ = generate("a red apple", "--method", "ar", "--seed", 3)
  again, _ = generate("a red apple", "--method", "ar", "--seed", 3)
  other, _ = generate("a red apple", "--method", "ar", "--seed", 4)
  assert tokens(first) == tokens(again) != tokens(other)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["ar", "speculative"])
def test_image_does_not_depend_on_the_batch(generate, method):
  alone, _ = generate("a red apple", "--method", method)
  together, _ = generate("a red apple", "cat", "blue cat", "--method", method, "--batch", 2)
  assert together["batch"] == {"rows": 2, "batches": 2, "images": 3}
  assert tokens(together, method)[0] == tokens(alone, method)[0]
  assert together["methods"][method]["tokens"] == 48  # the filled-up row is not counted


@pytest.mark.slow
def test_samples_prompt_file_and_raw(generate, tmp_path):
  (tmp_path / "prompts.txt").write_text("red apple\n\n  blue cat \n")
  options = ("--prompt-file", "prompts.txt", "--samples", 2, "--raw", "--method", "ar", "--out", "raw.png")
  document, _ = generate(*options)
  assert [p["prompt"] for p in document["images"]] == ["red apple", "red apple", "blue cat", "blue cat"]
  assert tokens(document)[0] != tokens(document)[1]
  with Image.open("raw.png") as grid:
    assert grid.size == (32, 32)


@pytest.mark.slow
def test_draft_that_needs_no_guidance(generate):
  document, outcome = generate("red apple", "--draft", "distilled", "--cfg-scale", 2)
  assert document["networks"]["draft_guidance"] is False
  assert "cfg_scale 4" in outcome.stderr and outcome.stderr.startswith("Warning:")
  assert "draft without guidance" in outcome.stdout


def test_every_field_of_the_json(generate):
  """Of one image, whose prompt is cut; nothing is missing that other programs may read."""
  options = ("--method", "ar", "--heatmap", "h.png", "--gamma", 2)
  document, outcome = generate("sleeping cat on blue background qxz qxz", *options)
  warnings = ["Not read by --method ar: --gamma", "Prompt 1 is too long: its last 5 of 11 word pieces were cut off"]
  assert [line.removeprefix("Warning: ") for line in outcome.stderr.splitlines()] == document["warnings"] == warnings
  settings = document["settings"]
  assert (settings["method"], settings["draft"], settings["options"], settings["seed"]) == ("ar", None, {}, 0)
  expected = {"cfg_scale": 1.0, "cfg_interval": -1, "top_k": 8, "top_p": 1.0, "temperature": 1.0}
  assert settings["sampling"] == expected and settings["dtype"] == "float32"
  networks = document["networks"]
  assert networks["source"] == "tiny" and networks["draft"] is None and networks["draft_guidance"]
  assert all(networks[name].endswith(name) for name in ("target", "tokenizer", "text"))
  assert document["batch"] == {"rows": 1, "batches": 1, "images": 1} and document["speedup"] is None
  (image,) = document["images"]
  assert len(image["ar"]["tokens"]) == image["ar"]["target_calls"] == document["max_tokens"] == 16
  figures = document["methods"]["ar"]
  assert figures["tokens"] == 16 and figures["acceptance"] is None and figures["pixels_s"] > 0
  assert document["files"] == {"images": "images.png", "heatmap": "h.png", "json": "figures.json"}
  assert document["versions"].keys() == {"python", "jaxspec", "jax"}


def test_unknown_words_and_letters(generate):
  generate("Schrödinger 猫 zzz", "--method", "ar")


@pytest.mark.slow
def test_classes(generate, class_models):
  source = ("--model", class_models / "target", "--tokenizer", class_models / "vq")
  classes = ("--class", 4, "--class", 0)
  document, _ = generate(*classes, "--top-p", 0.9, "--draft-model", class_models / "draft", source=source)
  assert document["settings"]["method"] == "speculative"
  sampling = document["settings"]["sampling"]
  assert sampling["cfg_scale"] == 4.0 and sampling["top_k"] == 2000 and sampling["top_p"] == 0.9
  assert [p["prompt"] for p in document["images"]] == ["class 4", "class 0"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["npz", "safetensors"])
def test_features(generate, bundle, tmp_path, kind):
  arrays = {"features": np.random.default_rng(0).normal(size=(2, 6, 8)).astype(np.float32)}
  arrays["mask"] = np.arange(6) < np.array([[2], [6]])
  if kind == "npz":
    np.savez(tmp_path / "t5.npz", **arrays)
  else:
    save_file(arrays, tmp_path / "t5.safetensors")
  source = ("--model", bundle / "target", "--tokenizer", bundle / "tokenizer", "--features", f"t5.{kind}")
  document, _ = generate("one", "two", "--cfg-scale", 1, source=source)
  assert [p["prompt"] for p in document["images"]] == ["one", "two"]
  assert list(document["methods"]) == ["ar"]  # there is no draft


def test_default_bundle(run, bundle, monkeypatch):
  monkeypatch.setenv("JAXSPEC_CHECKPOINT", str(bundle))
  monkeypatch.setattr(Plain, "build", None)  # plain decoding is built to be compared, and here nothing is
  outcome = run("generate", "apple", "--method", "sjd")
  assert outcome.exit_code == 0 and "wrote images.png" in outcome.stdout


def test_batches_fill_up_with_the_last_image():
  condition = np.arange(3)
  made = batches.make_batches(condition, samples=1, seed=0, rows=2)
  assert [list(np.asarray(rows)) for rows in made.condition] == [[0, 1], [2, 2]] and (made.rows, made.num) == (2, 3)
  keys = [np.asarray(rows) for rows in made.key_data]
  np.testing.assert_array_equal(keys[1][0], keys[1][1])


@pytest.mark.parametrize("batch, num, rows", [(None, 1, 1), (None, 17, 9), (None, 64, 16), (4, 6, 3), (1000, 5, 5)])
def test_rows_of_a_batch(batch, num, rows):
  """No more than an even split needs."""
  assert batches.batch_rows(batch, num) == rows


def test_fake_bundle_is_what_it_says(bundle):
  assert fake_bundle.TARGET.num_tokens == fake_bundle.TOKENIZER.num_tokens
  assert (bundle / "bundle.json").is_file()
