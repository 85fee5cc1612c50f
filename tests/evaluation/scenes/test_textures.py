"""The textured world: its captions, its painter, and the reader's material."""

import numpy as np
import pytest

from jaxspec.evaluation import scenes
from jaxspec.evaluation.scenes.requests import SAID_MATERIALS
from jaxspec.evaluation.scenes.sprites import load_coverage
from jaxspec.evaluation.scenes.textures import GRAINS, LIGHT, draw_brightness
from jaxspec.evaluation.scenes.world import BACKGROUNDS, FLAT, LOOK_NUMBERS
from tests.evaluation.scenes.distortion import distort

CAT = scenes.Object("cat", "noto", None, "large", 4, 4)


def textured(seed: int, count: int):
  """Captions, scenes and images ``[count, 96, 96, 3]``."""
  drawn = [scenes.draw(seed, number, ("train", "held_out")[number % 2], scenes.TEXTURED_WORLD) for number in range(count)]
  captions, painted, images = zip(*drawn, strict=True)
  return captions, painted, np.stack(images)


def is_read(scene, reading) -> bool:
  found = (reading.background, reading.material, reading.objects)
  return found == (scene.background, scene.material, scene.objects) and not reading.has_debris


@pytest.mark.slow
def test_textured_images_are_read_exactly():
  captions, painted, images = textured(5, 200)
  readings = scenes.read(images)
  assert all(map(is_read, painted, readings))
  assert {scene.material for scene in painted} == set(scenes.MATERIALS)
  assert all(held["right"] for held in scenes.score_images(captions, images).held)


@pytest.mark.slow
def test_a_thousand_textured_images_are_read_exactly():
  for seed in (11, 12):
    _, painted, images = textured(seed, 500)
    assert all(map(is_read, painted, scenes.read(images)))


def test_noise_of_a_tokenizer_is_forgiven():
  _, painted, images = textured(6, 100)
  noisy = ((images.astype(np.uint16) + distort(images, 0)) // 2).astype(np.uint8)  # noise of 32 dB
  readings = scenes.read(noisy)
  assert np.mean([scene.material == reading.material for scene, reading in zip(painted, readings, strict=True)]) >= 0.97
  assert np.mean([scene.objects == reading.objects for scene, reading in zip(painted, readings, strict=True)]) >= 0.97


@pytest.mark.slow
def test_captions_of_others_are_wrong():
  captions, _, images = textured(7, 200)
  held = scenes.score_images([*captions[1:], captions[0]], images).held
  assert np.mean([one["right"] for one in held]) < 0.005


def test_captions_state_materials():
  requests = [
    scenes.parse(caption) for caption, _ in (scenes.draw_scene(0, n, "train", scenes.TEXTURED_WORLD) for n in range(500))
  ]
  assert {request.material for request in requests} == {None, *SAID_MATERIALS}
  generator = np.random.default_rng(0)
  for request in requests:
    assert scenes.parse(scenes.caption_of(request, generator)) == request == scenes.parse(scenes.caption_of(request))
  assert scenes.parse("a boat on blue water") == scenes.Request((scenes.Phrase("boat"),), None, "blue", "water")
  assert scenes.parse("on wood a boat") == scenes.Request((scenes.Phrase("boat"),), material="wood")


@pytest.mark.parametrize(
  "caption", ["a cat on wood background", "a cat on wood blue", "a cat on flat", "a cat on wood on blue"]
)
def test_other_words_about_materials_are_refused(caption):
  with pytest.raises(ValueError, match="Must have"):
    scenes.parse(caption)


def test_the_flat_world_knows_no_material():
  assert scenes.vocabulary() - scenes.vocabulary(scenes.FLAT_WORLD) == set(SAID_MATERIALS)
  drawn = [scenes.draw_scene(3, number) for number in range(200)]
  assert all(scene.material == FLAT and scenes.parse(caption).material is None for caption, scene in drawn)


def test_a_demanded_material_is_part_of_the_background():
  (request,) = scenes.parse_captions(["a cat on white wood"])
  for background, material, right in (("white", "wood", True), ("white", "cloth", False), ("gray", "wood", False)):
    held = scenes.score_readings([request], [scenes.Reading(background, (CAT,), 0.0, material)]).held[0]
    assert held["background"] is right and held["right"] is right


@pytest.mark.slow
def test_the_material_is_an_aspect_of_the_textured_world():
  captions = ["a cat"] * 60
  sets = []
  for materials in (scenes.TEXTURED_WORLD, ("wood", "cloth"), scenes.FLAT_WORLD):
    generator = np.random.default_rng(len(sets))
    drawn = [scenes.sample_scene(generator, caption, materials) for caption in captions]
    readings = [scenes.Reading(scene.background, scene.objects, 0.0, scene.material) for scene in drawn]
    sets.append(scenes.score_readings(scenes.parse_captions(captions), readings, clusters=np.arange(60)))
  assert scenes.compare_with_painter(sets[0])["material"].p_value > 0.01
  assert scenes.compare_with_painter(sets[1])["material"].p_value < 0.01
  assert "material" not in scenes.compare_with_painter(sets[2]) and "material" not in scenes.compare_sets(sets[2], sets[2])


def test_textures_have_the_stated_deviation_and_stop_at_objects():
  generator = np.random.default_rng(0)
  for material, grains in GRAINS.items():
    fields = np.stack([draw_brightness(generator, material, "gray") for _ in range(50)])
    expected = np.sqrt(sum(grain.deviation**2 for grain in (LIGHT, *grains)))
    assert abs(fields.std() / expected - 1) < 0.1
    assert abs(fields.mean()) < 0.01  # gray has room for the brightest pixels
  assert draw_brightness(generator, "wood", "white").mean() < -10
  plain = scenes.paint(scenes.Scene("blue", (CAT,)))
  wood = scenes.paint(scenes.Scene("blue", (CAT,), "wood"), generator)
  covered = load_coverage()["large"][LOOK_NUMBERS[CAT.look]] == 1
  assert (plain[32:64, 32:64][covered] == wood[32:64, 32:64][covered]).all()
  assert (plain != wood).any(-1).mean() > 0.6


def test_a_seed_repeats_an_image():
  first, second = (scenes.draw(3, 5, "train", ("wood", "water"))[2] for _ in range(2))
  np.testing.assert_array_equal(first, second)
  other = scenes.draw(3, 6, "train", ("wood", "water"))[2]
  assert (first != other).any()


def test_bad_input_is_refused():
  with pytest.raises(ValueError, match="a generator for the texture of wood"):
    scenes.paint(scenes.Scene("blue", (CAT,), "wood"))
  with pytest.raises(ValueError, match="Must have a material among"):
    scenes.Scene("blue", (CAT,), "stone")
  with pytest.raises(ValueError, match="Must have a material among"):
    scenes.Request((scenes.Phrase("cat"),), material=FLAT)
  assert set(GRAINS) == set(SAID_MATERIALS) and FLAT not in GRAINS and "blue" in BACKGROUNDS


def test_an_entropy_counts_the_materials():
  assert scenes.freedom_nats("a cat", scenes.TEXTURED_WORLD) - scenes.freedom_nats("a cat") == pytest.approx(np.log(5))
  assert scenes.freedom_nats("a cat on wood", scenes.TEXTURED_WORLD) == pytest.approx(scenes.freedom_nats("a cat"))
