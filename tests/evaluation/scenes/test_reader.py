"""The reader is exact on painted images, robust to noise, and sees no object in debris."""

import numpy as np
import pytest

from jaxspec.evaluation.scenes import IMAGE_SIZE, Object, Scene, draw_scene, paint, paint_batch, read
from jaxspec.evaluation.scenes.world import BACKGROUNDS, LOOKS, MOST_OBJECTS, SIZES, are_apart, clashes
from tests.evaluation.scenes.distortion import decibels, distort

SPLITS = ("train", "held_out")


def scenes_of(seed: int, count: int) -> list[Scene]:
  return [draw_scene(seed, index, SPLITS[index % 2])[1] for index in range(count)]


def is_read(scene: Scene, reading) -> bool:
  return (reading.background, reading.objects) == (scene.background, scene.objects)


@pytest.mark.slow
def test_painted_images_are_read_exactly():
  scenes = scenes_of(5, 500)
  images = paint_batch(scenes)
  readings = read(images)
  assert all(map(is_read, scenes, readings))
  assert all(reading.debris == 0 for reading in readings)
  assert read(images[:8].astype(np.float32) / 127.5 - 1) == readings[:8]


@pytest.mark.slow
def test_noise_of_a_tokenizer_is_forgiven():
  scenes = scenes_of(6, 150)
  images = paint_batch(scenes)
  noisy = distort(images, 0)
  assert 25 < decibels(images, noisy) < 27
  readings = read(noisy)
  assert np.mean(list(map(is_read, scenes, readings))) >= 0.99
  assert np.mean([reading.has_debris for reading in readings]) <= 0.03


def test_a_reading_does_not_depend_on_the_batch():
  images = paint_batch(scenes_of(7, 40))
  assert read(images)[17:19] == read(images[17:19])
  assert read(images[:0]) == []


def test_half_an_object_is_debris():
  for size in SIZES:
    images = []
    for number, look in enumerate(LOOKS):
      background = [name for name in BACKGROUNDS if not clashes(look.noun, look.colour, name)][number % 5]
      image = paint(Scene(background, (Object(*look, size, 4, 4),)))
      side = image[32 : 32 + 8 * SIZES[size]]
      side[:, 32 + 4 * SIZES[size] : 32 + 8 * SIZES[size]] = BACKGROUNDS[background]
      images.append(image)
    readings = read(np.stack(images))
    whole = sum(bool(reading.objects) and not reading.has_debris for reading in readings)
    assert whole <= 1, [look for look, reading in zip(LOOKS, readings, strict=True) if reading.objects]


def test_noise_and_shuffled_cells_are_debris():
  generator = np.random.default_rng(0)
  noise = generator.integers(0, 256, (20, IMAGE_SIZE, IMAGE_SIZE, 3)).astype(np.uint8)
  images = paint_batch(scenes_of(8, 30)).reshape(30, 12, 8, 12, 8, 3).transpose(0, 1, 3, 2, 4, 5).reshape(30, 144, 8, 8, 3)
  shuffled = generator.permuted(np.arange(144 * 30).reshape(30, 144) % 144, axis=1)
  mixed = np.stack([image[order] for image, order in zip(images, shuffled, strict=True)])
  mixed = mixed.reshape(30, 12, 12, 8, 8, 3).transpose(0, 1, 3, 2, 4, 5).reshape(30, 96, 96, 3)
  for reading in read(np.concatenate([noise, mixed])):
    assert reading.has_debris and not reading.objects


def test_an_empty_image_has_neither_object_nor_debris():
  for name, colour in BACKGROUNDS.items():
    reading = read(np.broadcast_to(np.uint8(colour), (1, 96, 96, 3)))[0]
    assert reading == (name, (), 0.0, "flat")


def test_something_beside_an_object_is_debris():
  image = paint(Scene("white", (Object("cat", "noto", None, "large", 0, 0),)))
  image[60:72, 60:72] = (200, 30, 30)
  reading = read(image[None])[0]
  assert [one.noun for one in reading.objects] == ["cat"] and reading.has_debris


@pytest.mark.parametrize("shape, dtype", [((96, 96, 3), np.uint8), ((1, 64, 64, 3), np.uint8), ((1, 96, 96, 3), np.int32)])
def test_other_images_are_refused(shape, dtype):
  with pytest.raises(ValueError, match="Must have"):
    read(np.zeros(shape, dtype))


@pytest.mark.slow
def test_a_thousand_images_are_read_exactly():
  scenes = scenes_of(9, 1000)
  for start in range(0, len(scenes), 500):
    chunk = scenes[start : start + 500]
    assert all(map(is_read, chunk, read(paint_batch(chunk))))


@pytest.mark.slow
def test_a_thousand_noisy_images_are_read():
  scenes = scenes_of(10, 1000)
  readings = read(distort(paint_batch(scenes), 1))
  assert np.mean(list(map(is_read, scenes, readings))) >= 0.995


def packed(background: str, objects: list[Object]) -> list[Scene]:
  """Scenes with all of the objects, each in the first scene with enough space."""
  full, open_ = [], []
  for one in objects:
    found = next((group for group in open_ if all(are_apart(one, other) for other in group)), [])
    if not found:
      open_.append(found)
    found.append(one)
    if len(found) == MOST_OBJECTS:
      full.append(found)
      open_.remove(found)
  by_place = lambda group: tuple(sorted(group, key=lambda one: (one.row, one.column)))
  return [Scene(background, by_place(group)) for group in full + open_]


@pytest.mark.slow
def test_every_look_is_read_on_every_background_and_place():
  for background in BACKGROUNDS:
    looks = [look for look in LOOKS if not clashes(look.noun, look.colour, background)]
    for size, cells in SIZES.items():
      objects = [
        Object(*look, size, place % (13 - cells), place // (13 - cells))
        for number, look in enumerate(looks)
        for place in range(number % 31, (13 - cells) ** 2, 31)
      ]
      scenes = packed(background, objects)
      assert sum(len(scene.objects) for scene in scenes) == len(objects)
      assert all(map(is_read, scenes, read(paint_batch(scenes))))
