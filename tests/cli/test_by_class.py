"""`jaxspec generate --class NAME` on random networks of vector tokens: pictures, figures, and errors in one line."""

import json
from pathlib import Path

import pytest
from PIL import Image

from jaxspec.cli import by_class
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
  options = ("--class", "food-fruit", "--samples", 2, "--prefill", 0.5, "--cfg-scale", 2, "--heatmap", "h.png")
  document, text = draw(masked, "--method", "cspd", "--gamma", 2, *options, "--inner-temperature", 42, "--out", "o.png")
  assert document["captions"] == ["animal-bird"] * 2 + ["food-fruit"] * 2
  figures = document["figures"]
  assert figures["accepted"] + figures["target_calls"] == 4 * 4
  assert "published rule, not exact" in text and "prefill 50%" in text and document["settings"]["steps"] == 5
  with Image.open("o.png") as sheet, Image.open("h.png") as maps:
    assert json.loads(sheet.text["jaxspec"])["captions"] == document["captions"] and maps.width > sheet.width
  document, _ = draw(masked, "--method", "ar")
  assert document["figures"]["target_calls"] == 4 and "acceptance" not in document["figures"]
  document, _ = draw(masked, "--method", "parallel", "--raw")
  assert document["figures"]["target_calls"] == 2


@pytest.mark.slow
def test_exact(draw, causal):
  document, text = draw(causal, "--exact", "--stop", 1)
  assert "exact rule" in text and document["settings"]["method"] == "cspd" and document["figures"]["fallbacks"] == 0
  again, _ = draw(causal, "--exact", "--stop", 1)
  assert again["pictures"] == document["pictures"]


@pytest.mark.parametrize(
  ("options", "words"),
  [
    (["--class", "animal-fish"], "animal-mammal, animal-bird"),
    (["--class", "animal-bird", "a prompt"], "either --class or prompts"),
    (["--class", "animal-bird", "--top-k", 3], "--top-k does not go with --class NAME"),
    (["--class", "animal-bird", "--method", "eagle"], "--method ar, parallel, cspd"),
    (["--class", "animal-bird", "--method", "ar", "--gamma", 3], "--gamma goes with --method cspd"),
    (["--class", "animal-bird", "--num-iter", 3], "--num-iter goes with --method parallel"),
    (["--class", "animal-bird", "--method", "parallel", "--num-iter", 5], "num_iter from 1 to 4"),
    (["--class", "animal-bird", "--method", "parallel", "--heatmap", "h.png"], "--heatmap goes with"),
    (["--class", "animal-bird", "--exact"], "--stop STEP with --exact"),
    (["--class", "animal-bird", "--exact", "--no-align"], "--exact has neither"),
    (["--class", "animal-bird", "--gamma", 4], "gamma from 1 to 3"),
    (["--class", "animal-bird", "--prefill", 1.5], "prefill from 0 to 1"),
    (["--class", "animal-bird", "--stop", 4], "stop from 0 to 3"),
    (["--class", "animal-bird", "--steps", 1], "at least 2 diffusion steps"),
    (["--class", "animal-bird", "--temperature", 0], "temperature above 0"),
    (["--class", "animal-bird", "--cfg-scale", 0.5], "cfg_scale of at least 1"),
    (["--class", "animal-bird", "--draft", "huge"], "a draft in small"),
    (["--class", "animal-bird", "--max-tries", 0], "max_tries of at least 1"),
    (["--class", "animal-bird", "--inner-temperature", 0], "inner_temperature above 0"),
    (["--class", "animal-bird", "--heatmap", "o.png", "--out", "o.png"], "different files"),
  ],
)
def test_errors(fails, masked, options, words):
  assert words in fails("generate", "--checkpoint", masked, *options)


def test_errors_without_such_networks(fails, causal, bundle, tmp_path):
  assert "do not generate pictures by class" in fails("generate", "--class", "animal-bird", "--checkpoint", bundle)
  assert "No checkpoint folder" in fails("generate", "--class", "animal-bird", "--checkpoint", tmp_path / "none")
  assert "causal one" in fails("generate", "--class", "animal-bird", "--checkpoint", causal, "--method", "parallel")
  assert "goes with --class NAME" in fails("generate", "apple", "--exact")
  assert "goes with --class NAME" in fails("generate", "apple", "--method", "cspd")
  assert "a number as --class" in fails("generate", "--model", "x", "--tokenizer", "y", "--class", "bird")


def test_settings_come_from_the_training_where_nothing_is_said():
  """The end of the chains follows other steps, and nothing is refined where they end in a mean."""
  nothing = dict.fromkeys([*by_class._DEFAULTS, "no_align"]) | {"exact": False, "samples": 1, "seed": 0, "classes": ("a",)}
  trained = {"steps": 8, "stop": 4, "refine": True}
  chosen = lambda defaults=trained, **given: by_class._resolve(nothing | given, defaults, ["small", "other"])
  assert {**trained, "draft": "small"}.items() <= chosen().items()
  assert chosen(steps=16)["stop"] == 7 and chosen(steps=16)["refine"]
  assert chosen(steps=16, stop=2)["stop"] == 2
  assert chosen(stop=0)["refine"] is False
  assert chosen({"steps": 8})["stop"] is None and chosen({"steps": 8}, steps=16)["stop"] is None
  assert chosen(method="ar")["draft"] is None and chosen(draft="other")["draft"] == "other"


@pytest.mark.parametrize("method, name", [(None, "classes64-causal"), ("ar", "classes64-causal"), ("parallel", "classes64")])
def test_a_class_without_a_checkpoint_is_drawn_by_a_shipped_bundle(fails, monkeypatch, method, name):
  monkeypatch.setattr(by_class, "shipped", lambda wanted: Path("no") / wanted)
  words = fails("generate", "--class", "animal-bird", *(["--method", method] if method else []))
  assert words.rstrip().endswith(f"No checkpoint folder at {Path('no') / name}")
