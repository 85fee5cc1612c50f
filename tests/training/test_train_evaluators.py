"""The training script of the evaluators: its batches, its scores, and a short run."""

import dataclasses
import functools
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from experiments.train import evaluators as script
from jaxspec.data import STYLES, load_text_tokenizer
from jaxspec.data.tokens import Painting, draw
from jaxspec.metrics.evaluators import load_evaluators
from tests.metrics.emoji_subset import subset

BUNDLE = Path(__file__).parents[2] / "checkpoints" / "emoji64"


@pytest.fixture(scope="module")
def emoji(emoji_set):
  return emoji_set


@pytest.fixture(scope="module")
def vocabulary():
  return load_text_tokenizer(BUNDLE / "vocabulary.json")


def test_groups_are_those_of_the_set(emoji):
  assert script.GROUPS == tuple(sorted({entry.group for entry in emoji.emoji}))


@pytest.mark.parametrize("part", script.PARTS)
def test_batches_are_functions_of_the_step(emoji, vocabulary, part):
  run = script.get_config(f"smoke-{part}")
  first, again = (script.make_batch_fn(run, emoji, vocabulary) for _ in range(2))
  for step in (0, 700):
    a, b = first(step), again(step)
    assert a.keys() == b.keys()
    for name in a:
      np.testing.assert_array_equal(a[name], b[name])
      assert len(a[name]) == run.batch_size
  assert (first(0)["images"] != first(1)["images"]).any()


def test_pairs_are_two_styles_of_training_images(emoji, vocabulary, monkeypatch):
  """No held-out image is shown, and the two views of a concept differ in style if it has two styles."""
  shown = []
  monkeypatch.setattr(script, "draw_augmented", lambda rgba, *_: shown.append(rgba) or np.zeros((len(rgba), 1), np.uint8))
  number = {image.tobytes(): i for i, image in enumerate(emoji.rgba)}
  run = dataclasses.replace(script.get_config("concept"), batch_size=300)
  script.make_batch_fn(run, emoji, vocabulary)(2)
  first, second = (np.array([number[image.tobytes()] for image in part]) for part in shown)
  assert (emoji.split[first] == 0).all() and (emoji.split[second] == 0).all()
  np.testing.assert_array_equal(emoji.concept[first], emoji.concept[second])
  train = emoji.concept[emoji.indices("train")]
  several = np.bincount(train, minlength=len(emoji.emoji))[emoji.concept[first]] > 1
  np.testing.assert_array_equal(emoji.style[first] != emoji.style[second], several)
  assert several.mean() > 0.9


def test_augmented_images_keep_their_drawing(emoji):
  """Plain settings give the plain image; random ones move it but never cut it."""
  rgba = emoji.rgba[:40]
  plain = script.Augmentation(white_fraction=1.0, small_fraction=0.0, least_scale=1.0)
  drawn = script.draw_augmented(rgba, np.random.default_rng(0), plain)
  np.testing.assert_array_equal(drawn, draw(rgba, Painting.plain(40)))
  moved = script.draw_augmented(rgba, np.random.default_rng(0), script.Augmentation(white_fraction=1.0))
  ink = lambda images: (255 - images.astype(float)).sum(axis=(1, 2, 3))
  share = ink(moved) / ink(drawn)
  assert (moved != drawn).any() and share.min() > 0.3 and share.max() < 1.1


def test_cross_style_retrieval_of_an_oracle_and_of_pixels(emoji):
  concepts = emoji.concept[:, None] == np.unique(emoji.concept[emoji.split != 0])[None]
  vectors = concepts.astype(np.float32)
  for split in script.HELD_OUT:
    assert script.cross_style_retrieval(emoji, split, vectors, vectors)["top1"] == 1
    swapped = script.cross_style_retrieval(emoji, split, np.roll(vectors, 1, axis=1), vectors)
    assert swapped["top1"] < 0.02


def test_a_concept_encoder_must_beat_the_pixels():
  score = lambda value: {"white": {"val_concept": {"top1": value}}}
  script.check_concept(score(0.5) | {"raw_pixels": score(0.4)})
  with pytest.raises(ValueError, match="beats raw pixels .40.0%., we instead got 40.0%"):
    script.check_concept(score(0.4) | {"raw_pixels": score(0.4)})


@pytest.mark.slow
def test_all_parts_train_resume_and_export(tmp_path, monkeypatch, emoji):
  """All parts train, resume, and are exported with scores in [0, 1] that `load_evaluators` finds."""
  emoji = subset(emoji, np.arange(0, len(emoji.emoji), 12))
  assert {entry.group for entry in emoji.emoji} == set(script.GROUPS) and set(emoji.split) == {0, 1, 2}
  # Every part asks for the same images.
  held_out_images = script.held_out_images
  images = functools.cache(lambda conditions: held_out_images(script.get_config(), emoji, conditions=conditions))
  monkeypatch.setattr(script, "load_emoji", lambda: emoji)
  monkeypatch.setattr(script, "held_out_images", lambda run, emoji, *, conditions: images(conditions))
  arguments = ["x", "--smoke", "--set", f"bundle={BUNDLE}", "--run-dir", tmp_path / "run"]
  arguments += ["--export", tmp_path / "out", "--results", tmp_path / "r.json"]
  monkeypatch.setattr(sys, "argv", [str(argument) for argument in arguments])
  script.main()
  judges = load_evaluators(tmp_path / "out")
  document = json.loads((tmp_path / "r.json").read_text())
  for part in script.PARTS:
    meta = getattr(judges, part).meta
    assert meta["steps"] == 4 and meta["held_out"] == document["parts"][part]["held_out"]
    scores = meta["held_out"]["white"]["val_style"]
    assert all(0 <= scores[name] <= 1 for name in scores.keys() - {"candidates", "labels_of_split"})
  assert "first of 32" in (tmp_path / "r.md").read_text()
  losses = [record["loss"] for record in document["parts"]["caption"]["metrics"]]
  script.main()  # nothing is left to do
  again = json.loads((tmp_path / "r.json").read_text())
  assert [record["loss"] for record in again["parts"]["caption"]["metrics"]] == losses
  assert STYLES == judges.classifier.config.styles
