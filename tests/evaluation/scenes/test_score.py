"""Demands are scored one by one; tables have intervals; distributions of unconstrained attributes are compared."""

import dataclasses
import functools
import itertools

import numpy as np
import pytest

from jaxspec.evaluation.scenes import (
  Object,
  Reading,
  closer,
  compare_right,
  compare_sets,
  compare_with_painter,
  distance_between,
  draw,
  draw_scene,
  holds,
  parse,
  sample_scene,
  score_images,
  score_readings,
  summarise,
  unconstrained,
)
from jaxspec.evaluation.scenes.held_out import reasons
from jaxspec.statistics import share

CAT = Object("cat", "noto", None, "large", 0, 0)
DOG = Object("dog", "noto", None, "small", 0, 6)
HEART = Object("heart", "plain", "red", "small", 8, 0)


def wrong_demands(caption: str, *objects: Object, background: str = "blue", debris: float = 0.0) -> set[str]:
  held = holds(parse(caption), Reading(background, objects, debris))
  assert held["right"] == (not [name for name, value in held.items() if name != "right" and value not in (None, 1)])
  return {name for name, value in held.items() if name != "right" and value not in (None, 1)}


@pytest.mark.parametrize(
  "caption, objects, wrong",
  [
    ("a cat", (CAT,), set()),
    ("a cat", (), {"objects", "count"}),
    ("a cat", (CAT, DOG), {"nothing_more"}),
    ("two cats", (CAT,), {"objects", "count"}),
    ("a cat", (CAT, dataclasses.replace(CAT, row=8)), {"count"}),
    ("some cats", (CAT, dataclasses.replace(CAT, row=8)), set()),
    ("some cats", (CAT,), {"objects", "count"}),
    ("a cat and a dog", (CAT, DOG), set()),
    ("a cat and a dog", (CAT, HEART), {"objects", "count", "nothing_more"}),
    ("a cat left of a dog", (CAT, DOG), set()),
    ("a dog right of a cat", (CAT, DOG), set()),
    ("a cat right of a dog", (CAT, DOG), {"relation"}),
    ("a cat above a dog", (CAT, DOG), {"relation"}),
    ("a cat left of a dog", (CAT,), {"objects", "count", "relation"}),
    ("a small dog", (DOG,), set()),
    ("a large dog", (DOG,), {"attribute"}),
    ("a red heart", (HEART,), set()),
    ("a blue heart", (HEART,), {"attribute"}),
    ("a cat and a blue heart", (CAT, HEART), {"attribute"}),
    ("a cat on a pink background", (CAT,), {"background"}),
  ],
)
def test_demands(caption, objects, wrong):
  assert wrong_demands(caption, *objects) == wrong


def test_debris_is_not_right():
  assert wrong_demands("a cat", CAT, debris=0.5) == {"clean"}


def test_half_of_the_objects_are_recalled():
  assert holds(parse("two cats and a dog"), Reading("blue", (CAT, DOG), 0.0))["objects"] == pytest.approx(2 / 3)


def test_painted_images_are_right_and_other_captions_are_not():
  drawn = [draw(20, index) for index in range(200)]
  captions, _, images = zip(*drawn, strict=True)
  scores = score_images(captions, np.stack(images))
  assert all(held["right"] for held in scores.held)
  others = score_readings(scores.requests[1:] + scores.requests[:1], scores.readings)
  assert np.mean([held["right"] for held in others.held]) <= 0.02  # correct by chance: "a cat" for an image of a cat
  for request, reading, held in zip(others.requests, others.readings, others.held, strict=True):
    if held["right"]:
      assert {phrase.noun for phrase in request.phrases} == {one.noun for one in reading.objects}


def test_bad_lines_are_all_named():
  with pytest.raises(ValueError, match="(?s)caption 2: .*'zebra'.*caption 3: "):
    score_images(["a cat", "a zebra", "a red dog"], np.zeros((3, 96, 96, 3), np.uint8))
  with pytest.raises(ValueError, match="1 captions and 2 images"):
    score_images(["a cat"], np.zeros((2, 96, 96, 3), np.uint8))


@functools.cache
def requested(index: int, split: str):
  """The request of a caption of one seed, drawn and parsed once."""
  return parse(draw_scene(20, index, split)[0])


def painted(seed: int, count: int, split: str = "train", change=lambda index, scene: scene):
  """Scores of scenes that the painter draws for the captions of one seed; ``change`` may modify them."""
  requests = [requested(index, split) for index in range(count)]
  generator = np.random.default_rng(seed)
  scenes = [change(index, sample_scene(generator, request)) for index, request in enumerate(requests)]
  return score_readings(requests, [Reading(scene.background, scene.objects, 0.0) for scene in scenes])


def without_objects(index, scene):
  return Reading(scene.background, () if index % 4 == 0 else scene.objects, 0.0)


def test_summary_has_intervals_by_task():
  table = summarise(painted(0, 200, change=without_objects))
  assert set(table) == {
    "single_object",
    "two_objects",
    "counting",
    "colours",
    "position",
    "colour_attribution",
    "all",
    "train",
  }
  assert table["all"]["right"].value == pytest.approx(0.75)
  assert table["all"]["right"].low < 0.75 < table["all"]["right"].high
  assert table["all"]["clean"].value == 1 and table["all"]["clean"].low < 1
  assert "relation" not in table["counting"] and "relation" in table["position"]
  requests = painted(0, 10, "held_out").requests
  assert all(map(reasons, requests))
  assert set(summarise(painted(0, 10, "held_out"))) >= {"held_out", "all"}


def test_single_images_have_the_interval_of_wilson():
  captions = [f"a {noun}" for noun in ("cat", "dog", "pig", "frog")]
  readings = [Reading("white", (dataclasses.replace(CAT, noun=noun),), 0.0) for noun in ("cat", "dog", "pig", "pig")]
  row = summarise(score_readings([parse(caption) for caption in captions], readings))["single_object"]
  assert row["right"] == share(np.array([1, 1, 1, 0]))


def test_paired_comparison_of_right():
  good, bad = painted(0, 200), painted(1, 200, change=without_objects)
  table = compare_right(good, bad)
  assert table["all"].difference.value == pytest.approx(0.25, abs=0.02) and table["all"].adjusted < 0.01
  assert table["all"].detectable < 0.25
  same = compare_right(good, painted(1, 200))
  assert all(row.adjusted == 1 for row in same.values())
  with pytest.raises(ValueError, match="same captions"):
    compare_right(good, painted(0, 100))


def prefer_large(index, scene):
  objects = (one if one.row > 8 or one.column > 8 else dataclasses.replace(one, size="large") for one in scene.objects)
  return Reading(scene.background, tuple(objects), 0.0)


@pytest.mark.slow
def test_distributions_of_what_is_open():
  plain, other, lossy = painted(0, 120), painted(1, 120), painted(2, 120, change=prefer_large)
  same, changed = compare_sets(plain, other, permutations=299), compare_sets(plain, lossy, permutations=299)
  assert min(row.p_value for row in same.values()) > 0.02
  assert changed["size"].p_value < 0.01 and changed["size"].distance > 0.2 > changed["size"].expected
  assert changed["background"].p_value > 0.02
  against_painter = compare_with_painter(lossy, draws=59)
  assert against_painter["size"].p_value < 0.02 and against_painter["background"].p_value > 0.02
  assert min(row.p_value for row in compare_with_painter(plain, draws=59).values()) > 0.016
  np.testing.assert_allclose(against_painter["background"].first.sum(), 1)


def test_one_figure_over_all_aspects():
  plain, other, lossy = painted(0, 120), painted(1, 120), painted(2, 120, change=prefer_large)
  by_aspect = compare_sets(plain, lossy, permutations=299)
  found = distance_between(plain, lossy, permutations=299)
  assert min(row.distance for row in by_aspect.values()) < found.value < max(row.distance for row in by_aspect.values())
  assert 0 < found.expected < max(row.expected for row in by_aspect.values())
  assert found.p_value < 0.02 and found.value > found.expected + 2 * found.standard_error
  assert distance_between(plain, other, permutations=299).p_value > 0.02
  same = distance_between(plain, plain, permutations=99)
  assert (same.value, same.p_value) == (0, 1)
  assert distance_between(plain, painted(1, 120, change=lambda index, scene: Reading("white", (), 0.0))) is None


def test_which_of_two_methods_is_nearer_to_a_third():
  plain, other, lossy = painted(0, 120), painted(1, 120), painted(2, 120, change=prefer_large)
  found = closer(lossy, other, plain, permutations=299)
  assert found.value > 0 and found.p_value < 0.02 and found.low > 0 and found.clusters > 50
  turned = closer(other, lossy, plain, permutations=299)
  assert turned.value == pytest.approx(-found.value) and turned.p_value == pytest.approx(found.p_value, abs=0.02)
  alike = closer(other, painted(3, 120), plain, permutations=299)
  assert alike.p_value > 0.02 and alike.low < 0 < alike.high
  none = painted(1, 120, change=lambda index, scene: Reading("white", (), 0.0))
  assert closer(none, other, plain) is None


@pytest.mark.slow
def test_p_values_of_equal_distributions_are_valid(monkeypatch):
  # The scenes are equal in each of the 100 comparisons, so they are drawn and counted once.
  drawn = []
  monkeypatch.setattr(unconstrained, "open_values", functools.cache(unconstrained.open_values))

  def with_painter(seed):
    calls = itertools.count()

    def draw_once(generator, request, materials):
      if (number := next(calls)) == len(drawn):
        drawn.append((request, sample_scene(generator, request, materials)))
      known, scene = drawn[number]
      assert known == request
      return scene

    monkeypatch.setattr(unconstrained, "sample_scene", draw_once)
    return compare_with_painter(painted(seed, 40), draws=39)

  for compare in (
    lambda seed: compare_sets(painted(2 * seed, 60), painted(2 * seed + 1, 60), permutations=99),
    with_painter,
  ):
    p_values = np.array([[row.p_value for row in compare(seed).values()] for seed in range(100)])
    assert (np.mean(p_values <= 0.1, axis=0) < 0.2).all()
    # Colour and number are unconstrained in few captions; ties make their p values large.
    assert (np.mean(p_values <= 0.5, axis=0)[:4] > 0.3).all()
