"""The images that tokenizers are trained on and judged by: painted scenes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from jaxspec.evaluation import scenes
from jaxspec.evaluation.scenes.layouts import draw_layout
from jaxspec.evaluation.scenes.reader import read
from jaxspec.evaluation.scenes.world import BACKGROUNDS, IMAGE_SIZE, LOOKS, MOST_OBJECTS, SIZES, clashes

LICENCE = (
  "Apache-2.0; trained on scenes of Noto Emoji, Twemoji (CC-BY-4.0) and Fluent Emoji images, see "
  "jaxspec/evaluation/scenes/sprites/ATTRIBUTION.md"
)

RoundTrip = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


class ImageSource(NamedTuple):
  """Where images come from; all images are uint8 ``[M, H, W, 3]``.

  Attributes:
    batch_fn: ``(batch_size, seed)`` to a pure function from the step to ``{"images": ...}``.
    probe: images of the evaluations during training, which training lacks.
    splits: the images of the final figures, by name.
    examples: images to look at.
    counts: descriptions of training and unseen images, for the record.
    extra_fn: more figures from a round trip ``pixels -> (tokens [M, N], pixels)``.
  """

  batch_fn: Callable[[int, int], Callable[[int], dict[str, np.ndarray]]]
  probe: Callable[[], np.ndarray]
  splits: Callable[[], dict[str, np.ndarray]]
  examples: Callable[[], np.ndarray]
  counts: dict[str, int | str]
  extra_fn: Callable[[RoundTrip], dict[str, float]]


def scene_images(materials: Sequence[str] = scenes.FLAT_WORLD) -> ImageSource:
  """Scenes at 96 x 96 of a world with the given materials, painted on demand.

  Training sees four objects in every image, since a background has nothing to learn. Unseen images are those of captions
  with combinations that training lacks.
  """

  def painted(seed, numbers, split):
    drawn = [scenes.draw(seed, int(number), split, materials) for number in numbers]
    return [scene for _, scene, _ in drawn], np.stack([image for _, _, image in drawn])

  def batch_fn(batch_size, seed):
    def batch(step):
      generator = np.random.default_rng((seed, 1, step))
      crowds = [_crowded(generator, materials) for _ in range(batch_size)]
      return {"images": scenes.paint_batch(crowds, generator)}

    return batch

  @functools.cache
  def unseen(count):
    return painted(1, range(count), "held_out")

  def extra(round_trip: RoundTrip) -> dict[str, float]:
    """How many tokens the flat backgrounds have in all, and the share of decoded unseen scenes that are read right."""
    flat = np.empty((len(BACKGROUNDS), IMAGE_SIZE, IMAGE_SIZE, 3), np.uint8)
    flat[...] = np.array(list(BACKGROUNDS.values()), np.uint8)[:, None, None]
    drawn, pixels = unseen(512)
    readings = read(round_trip(pixels)[1])
    same = [
      (found.background, found.material, found.objects) == (scene.background, scene.material, scene.objects)
      and not found.has_debris
      for found, scene in zip(readings, drawn, strict=True)
    ]
    tokens = round_trip(flat)[0]
    return {"flat_tokens": float(sum(len(np.unique(row)) for row in tokens)), "read_right": float(np.mean(same))}

  def splits():
    return {"train": painted(0, range(512), "train")[1], "unseen": unseen(512)[1]}

  return ImageSource(
    batch_fn, lambda: unseen(512)[1][:96], splits, lambda: unseen(512)[1][:24], {"train": "as many as steps need"}, extra
  )


def _crowded(generator: np.random.Generator, materials: Sequence[str]) -> scenes.Scene:
  """Four objects of any look and size on one background."""
  background = list(BACKGROUNDS)[generator.integers(len(BACKGROUNDS))]
  seen = [look for look in LOOKS if not clashes(look.noun, look.colour, background)]
  looks = [seen[number] for number in generator.integers(len(seen), size=MOST_OBJECTS)]
  sizes = tuple(list(SIZES)[number] for number in generator.integers(len(SIZES), size=MOST_OBJECTS))
  places = draw_layout(generator, sizes)
  objects = tuple(scenes.Object(*look, size, *place) for look, size, place in zip(looks, sizes, places, strict=True))
  return scenes.Scene(background, objects, materials[int(generator.integers(len(materials)))])
