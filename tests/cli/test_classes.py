"""`jaxspec generate --class NAME` on random networks of continuous tokens: images, figures, and errors of one line."""

import json
from pathlib import Path

import pytest
from PIL import Image

from jaxspec.io import shipped
from jaxspec.run import memory_check as memory
from tests.cli import fake_classes


@pytest.fixture(scope="session")
def masked(tmp_path_factory):
  return fake_classes.make(tmp_path_factory.mktemp("masked") / "bundle", fake_classes.MAR)


@pytest.fixture(scope="session")
def causal(tmp_path_factory):
  return fake_classes.make(tmp_path_factory.mktemp("causal") / "bundle", fake_classes.CAUSAL)


@pytest.fixture
def draw(run):
  def call(bundle, *args):
    outcome = run("generate", "--class", "animal-bird", "--checkpoint", bundle, *args, "--json", "figures.json")
    assert outcome.exit_code == 0, (outcome.output, outcome.exception)
    with open("figures.json", encoding="utf-8") as file:
      return json.load(file), outcome.stdout

  return call


@pytest.mark.slow
def test_published_and_plain(draw, masked):
  options = ("--class", "food-fruit", "--samples", 2, "--target-prefix", 0.5, "--cfg-scale", 2, "--heatmap", "h.png")
  options = ("--method", "cspd", "--gamma", 2, *options, "--inner-temperature", 42)
  document, text = draw(masked, *options, "--out", "o.png")
  captions = ["animal-bird"] * 2 + ["food-fruit"] * 2
  assert [image["prompt"] for image in document["images"]] == captions
  figures = document["methods"]["cspd"]
  assert figures["accepted"] + figures["target_calls"] == 4 * 4 == figures["tokens"]
  assert figures["replaced"]["tries"] >= figures["replaced"]["fallbacks"] == 0
  assert document["settings"]["sampling"]["steps"] == 5 and document["settings"]["options"]["target_prefix"] == 0.5
  assert "not exact" in text and "target-prefix 0.5" in text and "proposals after rejections" in text
  with Image.open("o.png") as sheet, Image.open("h.png") as maps:
    assert json.loads(sheet.text["jaxspec"])["captions"] == captions and maps.width > sheet.width
  document, text = draw(masked, *options, "--compare", "--repeats", 1)  # the same program, and the plain one
  assert document["methods"]["ar"]["target_calls"] == 4 * 4 and document["methods"]["ar"]["acceptance"] is None
  assert document["speedup"] > 0 and "tokens" not in document["images"][0]["cspd"]
  document, _ = draw(masked, "--method", "parallel", "--raw", "--heatmap", "h.png")
  assert document["methods"]["parallel"]["target_calls"] == 2


@pytest.mark.slow
def test_exact(draw, causal):
  document, text = draw(causal, "--exact", "--stop", 1)
  assert "exact" in text and "not exact" not in text
  assert document["settings"]["method"] == "cspd" and document["methods"]["cspd"]["replaced"]["fallbacks"] == 0
  again, _ = draw(causal, "--exact", "--stop", 1)
  assert again["images"] == document["images"]


@pytest.mark.slow
def test_plain_by_name_and_number(draw, causal, run):
  """A class name is a prompt too; so is its number."""
  document, _ = draw(causal, "--method", "ar", "--class", "2", "--batch", 1)
  assert [image["prompt"] for image in document["images"]] == ["animal-bird", "food-fruit"]
  outcome = run("generate", "animal-bird", "--checkpoint", causal, "--method", "ar", "--json", "again.json")
  assert outcome.exit_code == 0, (outcome.output, outcome.exception)
  with open("again.json", encoding="utf-8") as file:
    assert json.load(file)["images"][0] == document["images"][0]


# What only the networks, or the options together, can refuse; ranges of single options are in test_options.
@pytest.mark.parametrize(
  ("options", "words"),
  [
    (["--class", "animal-fish"], "animal-mammal, animal-bird"),
    (["--class", "9"], "a class from 0 to 2"),
    (["a red apple"], "animal-mammal, animal-bird"),
    (["--class", "animal-bird", "one", "two"], "as many captions"),
    (["--class", "animal-bird", "--text", "once"], "one of --class, --features and --text"),
    (["--class", "animal-bird", "--method", "eagle"], "draws continuous tokens"),
    (["--class", "animal-bird", "--method", "parallel", "--num-iter", 5], "num_iter from 1 to 4"),
    (["--class", "animal-bird", "--exact"], "stop with exact"),
    (["--class", "animal-bird", "--exact", "--no-align"], "no align with exact"),
    (["--class", "animal-bird", "--gamma", 4], "gamma below the 4 tokens"),
    (["--class", "animal-bird", "--stop", 4], "stop from 0 to 3"),
    (["--class", "animal-bird", "--steps", 1], "at least 2 diffusion steps"),
    (["--class", "animal-bird", "--temperature", 0], "temperature above 0"),
    (["--class", "animal-bird", "--draft", "huge"], "a draft in small"),
    (["--class", "animal-bird", "--max-tokens", 2], "--max-tokens goes with"),
    (["--class", "animal-bird", "--wire"], "we instead got cspd"),
    (["--class", "animal-bird", "--method", "ar", "--compare"], "--method cspd or parallel"),
    (["--class", "animal-bird", "--heatmap", "o.png", "--out", "o.png"], "different files"),
  ],
)
def test_errors(fails, masked, options, words):
  assert words in fails("generate", "--checkpoint", masked, *options)
  assert not list(Path.cwd().iterdir())


def test_errors_without_such_networks(fails, causal, bundle, tmp_path):
  assert "draws no classes: give prompts" in fails("generate", "--class", "animal-bird", "--checkpoint", bundle)
  assert "No checkpoint folder" in fails("generate", "--class", "animal-bird", "--checkpoint", tmp_path / "none")
  line = fails("generate", "--class", "animal-bird", "--checkpoint", causal, "--method", "parallel")
  assert "a masked network (MAR)" in line
  assert "draws discrete tokens" in fails("generate", "apple", "--checkpoint", bundle, "--method", "cspd")


def test_the_memory_of_vectors_is_checked_too(fails, causal, monkeypatch):
  monkeypatch.setattr(memory, "available_bytes", lambda: 0)
  assert "A batch of 2 images needs" in fails("generate", "--class", "animal-bird", "--samples", 2, "--checkpoint", causal)


@pytest.mark.parametrize(
  "method, name", [(None, "digits32-causal"), ("ar", "digits32-causal"), ("parallel", "digits32-mar")]
)
def test_a_class_without_a_checkpoint_is_drawn_by_a_shipped_bundle(fails, monkeypatch, method, name):
  monkeypatch.setattr(shipped, "shipped", lambda wanted: Path("no") / wanted)
  words = fails("generate", "--class", "animal-bird", *(["--method", method] if method else []))
  assert f"no networks {name} come" in words
