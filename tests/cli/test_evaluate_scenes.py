"""`jaxspec evaluate --scenes`: painted images are right, others are not, and whatever does not fit is one line."""

import dataclasses
import json

import numpy as np
import pytest
from PIL import Image

from jaxspec.cli import evaluate
from jaxspec.cli.drawn_captions import Drawn
from jaxspec.cli.image_folder import write_folder
from jaxspec.evaluation import scenes
from jaxspec.io.bundle import BUNDLE_FILE
from tests.cli.fake_bundle import DRAFT, SCENE_TOKENIZER, TARGET, make_fake_bundle

CAPTIONS = [
  "a cat",
  "a dog",
  "a key on a pink background",
  "two stars",
  "two small boats",
  "a red heart",
  "a blue square on white",
  "a panda and a moon",
  "a cat left of a tree",
  "there is a sun above a large house",
  "a red heart and a yellow star",
  "a green circle and a blue square on a gray background",
]
NUM = len(CAPTIONS)


@pytest.fixture
def without_painter(monkeypatch):
  """Without a reference of the painter, whose first images of four objects take seconds."""
  monkeypatch.setattr("jaxspec.evaluation.scenes.compare_with_painter", lambda scores, **_: {})


@pytest.fixture(scope="module")
def drawn():
  generator = np.random.default_rng(0)
  return CAPTIONS, scenes.paint_batch([scenes.sample_scene(generator, caption) for caption in CAPTIONS])


@pytest.fixture
def folder(drawn, tmp_path):
  """Painted images with their own captions."""
  captions, images = drawn
  write_folder(tmp_path / "painted", images, captions)
  return tmp_path / "painted"


@pytest.fixture
def painting_bundle(tmp_path, monkeypatch):
  """A stand-in for a bundle whose images a painter draws; returns the folder and the requests."""
  asked = []

  def draw_captions(side, options, decoding, captions, report):
    asked.append((options, decoding, captions, side))
    generator = np.random.default_rng(0)
    pixels = scenes.paint_batch([scenes.sample_scene(generator, caption) for caption in captions])
    about = {"settings": {"method": "ar", "sampling": {}, "seed": options["seed"]}, "counters": {"target_calls": 3}}
    return Drawn("painter", pixels, about, ["Prompt 1 is too long"])

  monkeypatch.setattr("jaxspec.cli.drawn_captions.load_drawing", lambda options, *, side, purpose: side)
  monkeypatch.setattr("jaxspec.cli.drawn_captions.draw_captions", draw_captions)
  (tmp_path / "bundle").mkdir()
  (tmp_path / "bundle" / BUNDLE_FILE).write_text("{}")
  return tmp_path / "bundle", asked


def _call(run, *args):
  outcome = run("evaluate", "--scenes", *args)
  assert outcome.exit_code == 0, (outcome.output, outcome.exception)
  with open("eval.json", encoding="utf-8") as file:
    return json.load(file), outcome


def test_splits_are_those_of_scenes():
  assert set(evaluate.SPLITS) == set(scenes.SPLITS)


def test_painted_images_are_right(run, folder, drawn):
  captions, _ = drawn
  document, outcome = _call(run, folder)
  table = document["scores"]
  assert set(table) == {*scenes.TASKS, "all", "train", "held_out"}  # training has no blue square
  for row in table.values():
    assert set(row) <= set(scenes.DEMANDS) and {"right", "objects", "count", "clean"} <= set(row)
    for figure in row.values():
      assert set(figure) == {"value", "low", "high", "count"}
      assert figure["value"] == figure["high"] == 1 and 0 < figure["low"] < 1
  assert table["all"]["right"]["count"] == document["images"]["count"] == NUM
  assert document["images"]["source"] == "painted" and len(document["images"]["names"]) == NUM
  assert [row["caption"] for row in document["rows"]] == captions and all(row["right"] for row in document["rows"])
  distances = document["unconstrained"]
  assert {"cell", "size", "background"} <= set(distances) <= set(scenes.ASPECTS)
  for row in distances.values():
    assert set(row) == {"distance", "expected", "p_value", "count", "images", "painter"}
    assert 0 <= row["distance"] <= 1 and 0 < row["p_value"] <= 1 and row["count"] > 0
    assert sum(row["images"].values()) == pytest.approx(1) and sum(row["painter"].values()) == pytest.approx(1)
  assert set(document["versions"]) == {"python", "jaxspec"} and outcome.stderr == ""
  for word in ("right", "single object", "total variation", "background", f"{NUM} images", "eval.json"):
    assert word in outcome.stdout
  assert "100.0" in outcome.stdout and "…" not in outcome.stdout


def test_other_captions_are_not_right(run, folder, drawn):
  captions, _ = drawn
  others = captions[1:] + captions[:1]
  names = [f"{number:04d}.png" for number in range(NUM)]
  (folder / "prompts.json").write_text(json.dumps(dict(zip(names, others, strict=True))))  # goes before prompts.txt
  document, outcome = _call(run, folder)
  assert [row["caption"] for row in document["rows"]] == others
  right = document["scores"]["all"]["right"]
  assert right["value"] <= 1 / NUM and right["low"] <= right["value"] < right["high"]
  assert document["scores"]["all"]["clean"]["value"] == 1
  assert document["unconstrained"] or "No image is correct" in outcome.stdout


def test_captions_of_the_grammar(run, painting_bundle, without_painter, tmp_path):
  bundle, asked = painting_bundle
  seed = 6  # its first captions have at most two objects
  options = ("--num", 6, "--split", "held_out", "--seed", seed, "--temperature", 0.5, "--method", "gsd")
  document, outcome = _call(run, bundle, *options, "--save-images", "kept")
  ((_, decoding, captions, side),) = asked
  assert captions == [scenes.draw_scene(seed, number, "held_out")[0] for number in range(6)] and side == 96
  assert decoding.method == "gsd" and decoding.options == {"temperature": 0.5}
  assert document["images"]["split"] == "held_out" and document["images"]["counters"] == {"target_calls": 3}
  assert set(document["scores"]) >= {"all", "held_out"} and document["scores"]["all"]["right"]["value"] == 1
  assert "too long" in outcome.stderr and f"ar, seed {seed}" in outcome.stdout
  again, _ = _call(run, tmp_path / "kept", "--seed", seed)
  assert again["scores"] == document["scores"] and again["rows"] == document["rows"]


def test_which_captions_are_drawn(run, painting_bundle, without_painter, tmp_path, monkeypatch):
  bundle, asked = painting_bundle
  monkeypatch.setattr("jaxspec.cli.evaluate_scenes.DEFAULT_NUM", 2)
  document, outcome = _call(run, bundle)
  assert asked[-1][2] == [scenes.draw_scene(0, number, "validation")[0] for number in range(2)]
  assert document["images"]["split"] == "validation" and "No image is correct" in outcome.stdout
  (tmp_path / "p.txt").write_text("A cat!\ntwo stars\nA cat!\n")
  document, _ = _call(run, bundle, "--prompts", "p.txt")
  assert asked[-1][2] == ["A cat!", "two stars", "A cat!"] and document["images"]["prompts"] == "p.txt"
  _call(run, bundle, "--prompts", "p.txt", "--num", 2)
  assert asked[-1][2] == ["A cat!", "two stars"]


@pytest.mark.parametrize(
  ("options", "words"),
  [
    (["--reference", "."], "--reference does not go with --scenes"),
    (["--standard"], "Must have one of --scenes .* or --standard .*, we instead got both"),
    (["--split", "test"], "--split.*'test' is not one of"),
    (["--split", "train"], "where .* is a folder of images"),
    (["--num", 4], "--num goes with a bundle"),
    (["--method", "gsd"], "--method goes with a bundle"),
    (["--out", "eval.txt"], "ends in .json"),
    (["--prompts", "none.txt"], "Cannot read prompts from none.txt"),
  ],
)
def test_options(fails, folder, tmp_path, options, words):
  import re

  assert re.search(words, fails("evaluate", "--scenes", folder, *options))
  assert not (tmp_path / "eval.json").exists()


def test_captions_that_cannot_be_read(fails, painting_bundle, folder, tmp_path):
  """The line names the first, and nothing is drawn."""
  bundle, asked = painting_bundle
  (tmp_path / "p.txt").write_text("a cat\na zebra\ntwo stars\na red dog\n" + "a dog\n" * (NUM - 4))
  for path in (bundle, folder):
    line = fails("evaluate", "--scenes", path, "--prompts", "p.txt")
    assert "caption 2 of p.txt" in line and "'zebra'" in line
    assert "it knows cat, dog, panda" in line and "the backgrounds white" in line
    assert "1 more cannot be read, the next is caption 4" in line
  (tmp_path / "p.txt").write_text("a cat cat\n")
  assert "such as 'two cats and a red heart" in fails("evaluate", "--scenes", bundle, "--prompts", "p.txt")
  assert "where captions come from p.txt" in fails("evaluate", "--scenes", bundle, "--prompts", "p.txt", "--split", "train")
  assert not asked and not (tmp_path / "eval.json").exists()


def test_folders_that_do_not_fit(fails, folder, tmp_path):
  assert "No folder at" in fails("evaluate", "--scenes", tmp_path / "none")
  (folder / "0003.png").unlink()
  assert f"{NUM} for {NUM - 1} images" in fails("evaluate", "--scenes", folder)
  Image.new("RGB", (64, 64)).save(folder / "0003.png")
  line = fails("evaluate", "--scenes", folder)
  assert "96x96 pixels" in line and "0003.png has 64x64" in line
  (folder / "prompts.txt").unlink()
  assert "Must have captions for --scenes: give prompts.txt" in fails("evaluate", "--scenes", folder)


def test_bundle_of_other_images(fails, bundle):
  line = fails("evaluate", "--scenes", bundle, "--num", 2, "--method", "ar")
  assert "Must have images of 96 pixels for --scenes" in line and "draws 16" in line


@pytest.mark.slow
def test_bundle_of_scenes(run, tmp_path):
  """A bundle of random networks draws images of the right size, none of them right."""
  target, draft = (dataclasses.replace(config, num_tokens=36) for config in (TARGET, DRAFT))
  bundle = make_fake_bundle(tmp_path / "tiny", target=target, draft=draft, tokenizer=SCENE_TOKENIZER, method="ar")
  document, outcome = _call(run, bundle, "--num", 5, "--batch", 3, "--save-images", "kept")
  assert document["images"]["counters"]["target_calls"] == 5 * 36 and document["images"]["settings"]["method"] == "ar"
  assert document["scores"]["all"]["right"]["value"] == 0 and document["unconstrained"] == {}
  assert "No image is correct" in outcome.stdout and len(list((tmp_path / "kept").glob("*.png"))) == 5
  again, _ = _call(run, tmp_path / "kept")
  assert again["scores"] == document["scores"]
