"""`jaxspec generate` on random networks: pictures, figures, reproducibility."""

import json

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save_file

from jaxspec.cli import decoding
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
  return [picture[method]["tokens"] for picture in document["pictures"]]


@pytest.mark.slow
def test_compare_greedy(generate):
  """Greedy speculation gives the pictures of greedy plain decoding, and every figure is consistent."""
  options = ("--temperature", 0, "--compare", "--repeats", 2, "--out", "o.png", "--heatmap", "h.png")
  document, outcome = generate("a red apple", "a sleeping cat", *options)
  assert tokens(document, "speculative") == tokens(document, "ar")
  fast, plain = document["methods"]["speculative"], document["methods"]["ar"]
  assert fast["tokens"] == plain["tokens"] == 32
  assert plain["target_calls"] == 32 and plain["acceptance"] is None
  assert fast["accepted"] + fast["target_calls"] == 32  # every call of the target gives one token of its own
  assert len(fast["run_s_each"]) == len(plain["run_s_each"]) == 2
  assert document["speedup"] == pytest.approx(plain["run_s"] / fast["run_s"])
  assert sum(p["speculative"]["rounds"] for p in document["pictures"]) == fast["rounds"]
  assert "Speculation was" in outcome.stdout and "tokens per second" in outcome.stdout
  assert outcome.stderr == ""
  with Image.open("o.png") as grid, Image.open("h.png") as maps:
    assert grid.width == 2 * 24 + 2 * (2 * 192 + 8) + 24
    assert maps.width == 2 * 24 + 2 * (3 * 192 + 16) + 24
    assert json.loads(grid.text["jaxspec"])["captions"] == ["a red apple", "a sleeping cat"]


@pytest.mark.slow
def test_feature_chains_compare_greedy(generate):
  options = ("--method", "eagle-chain", "--gamma", 3, "--cfg-scale", 2, "--temperature", 0)
  document, outcome = generate("a red apple", *options, "--compare", "--repeats", 1)
  assert tokens(document, "eagle-chain") == tokens(document, "ar")
  assert document["settings"]["draft"] == "feature" and "draft feature, gamma 3" in outcome.stdout


@pytest.mark.slow
def test_trees_compare_greedy(generate):
  """The draft of the right family is found, and greedy trees give the pictures of greedy plain decoding."""
  trees = ("--method", "eagle", "--tree-size", 5, "--tree-top-k", 2, "--tree-depth", 2)
  document, outcome = generate("a red apple", *trees, "--cfg-scale", 2, "--temperature", 0, "--compare", "--repeats", 1)
  assert tokens(document, "eagle") == tokens(document, "ar")
  assert document["settings"]["draft"] == "feature" and document["speedup"] > 0
  assert "draft feature, trees of 5 (2 wide, 3 deep)" in outcome.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
  "method,words", [("sjd", "window 5, coupled drafts"), ("gsd", "groups of 4"), ("lantern", "factor 3")]
)
def test_methods_of_chains(generate, method, words):
  """Each method runs on a batch with guidance, says what it is, and counts its calls."""
  options = ("--window", 5, "--group-size", 4, "--num-neighbours", 3, "--factor", 3, "--cfg-scale", 2)
  document, outcome = generate("a red apple", "a cat", "--method", method, *options, "--compare", "--repeats", 1)
  assert words in outcome.stdout and ("not exact" in outcome.stdout) == (method != "sjd")
  figures = document["methods"][method]
  assert figures["accepted"] + figures["target_calls"] == 32
  assert (figures["draft_calls"] == 0) == (method != "lantern")
  assert (document["settings"]["draft"] is None) == (method != "lantern")


@pytest.mark.slow
def test_same_seed_same_picture(generate):
  first, _ = generate("a red apple", "--method", "ar", "--seed", 3)
  again, _ = generate("a red apple", "--method", "ar", "--seed", 3)
  other, _ = generate("a red apple", "--method", "ar", "--seed", 4)
  assert tokens(first) == tokens(again) != tokens(other)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["ar", "speculative"])
def test_picture_does_not_depend_on_the_batch(generate, method):
  alone, _ = generate("a red apple", "--method", method)
  together, _ = generate("a red apple", "cat", "blue cat", "--method", method, "--batch", 2)
  assert together["batch"] == {"rows": 2, "batches": 2, "pictures": 3}
  assert tokens(together, method)[0] == tokens(alone, method)[0]
  assert together["methods"][method]["tokens"] == 48  # the filled-up row is not counted


@pytest.mark.slow
def test_samples_prompt_file_and_raw(generate, tmp_path):
  (tmp_path / "prompts.txt").write_text("red apple\n\n  blue cat \n")
  options = ("--prompt-file", "prompts.txt", "--samples", 2, "--raw", "--method", "ar", "--out", "raw.png")
  document, _ = generate(*options)
  assert [p["prompt"] for p in document["pictures"]] == ["red apple", "red apple", "blue cat", "blue cat"]
  assert tokens(document)[0] != tokens(document)[1]
  with Image.open("raw.png") as grid:
    assert grid.size == (32, 32)


@pytest.mark.slow
def test_draft_that_needs_no_guidance(generate):
  document, outcome = generate("red apple", "--draft", "distilled", "--cfg-scale", 2)
  assert document["networks"]["draft_guidance"] is False
  assert "--cfg-scale 4" in outcome.stderr and outcome.stderr.startswith("Warning:")
  assert "(target only)" in outcome.stdout


def test_long_prompt_is_cut_with_a_warning(generate):
  document, outcome = generate("sleeping cat on blue background qxz qxz", "--method", "ar")
  assert len(outcome.stderr.splitlines()) == 1 and "Prompt 1 is too long" in outcome.stderr
  assert document["warnings"]


def test_unknown_words_and_letters(generate):
  generate("Schrödinger 猫 zzz", "--method", "ar")


@pytest.mark.slow
def test_classes(generate, class_models):
  source = ("--model", class_models / "target", "--tokenizer", class_models / "vq")
  classes = ("--class", 4, "--class", 0)
  document, _ = generate(*classes, "--top-p", 0.9, "--draft-model", class_models / "draft", source=source)
  assert document["settings"]["method"] == "speculative"
  assert document["settings"]["cfg_scale"] == 4.0 and document["settings"]["top_k"] == 2000
  assert [p["prompt"] for p in document["pictures"]] == ["class 4", "class 0"]


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
  assert [p["prompt"] for p in document["pictures"]] == ["one", "two"]
  assert list(document["methods"]) == ["ar"]  # there is no draft


def test_default_bundle(run, bundle, monkeypatch):
  monkeypatch.setenv("JAXSPEC_CHECKPOINT", str(bundle))
  outcome = run("generate", "apple", "--method", "ar")
  assert outcome.exit_code == 0 and "wrote pictures.png" in outcome.stdout


def test_batches_fill_up_with_the_last_picture():
  condition = np.arange(3)
  batches = decoding.make_batches(condition, samples=1, seed=0, rows=2)
  assert [list(np.asarray(rows)) for rows in batches.condition] == [[0, 1], [2, 2]]
  keys = [np.asarray(rows) for rows in batches.key_data]
  np.testing.assert_array_equal(keys[1][0], keys[1][1])


def test_fake_bundle_is_what_it_says(bundle):
  assert fake_bundle.TARGET.num_tokens == fake_bundle.TOKENIZER.num_tokens
  assert (bundle / "bundle.json").is_file()
