"""The painter: scenes to pixels, by copying tiles (`jaxspec.evaluation.scenes.sprites`) on textured backgrounds
(`jaxspec.evaluation.scenes.textures`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jaxspec.evaluation.scenes.sprites import load_coverage, load_tiles
from jaxspec.evaluation.scenes.textures import draw_brightness
from jaxspec.evaluation.scenes.world import BACKGROUNDS, FLAT, IMAGE_SIZE, LOOK_NUMBERS, Object, Scene

_BACKGROUND_NUMBERS = {name: number for number, name in enumerate(BACKGROUNDS)}
_COLOURS = np.array(list(BACKGROUNDS.values()), np.uint8)  # [G, 3]


def paint(scene: Scene, generator: np.random.Generator | None = None) -> np.ndarray:
  """Image ``[96, 96, 3]`` uint8 of a scene; arguments as for `paint_batch`."""
  return paint_batch([scene], generator)[0]


def paint_batch(scenes: Sequence[Scene], generator: np.random.Generator | None = None) -> np.ndarray:
  """Images ``[B, 96, 96, 3]`` uint8 of scenes.

  Args:
    generator: draws the texture of each scene that is not flat, in their order; may be None if all are flat.
  Raises:
    ValueError: for a textured scene without a generator.
  """
  tiles = load_tiles()
  backgrounds = [_BACKGROUND_NUMBERS[scene.background] for scene in scenes]
  images = np.empty((len(scenes), IMAGE_SIZE, IMAGE_SIZE, 3), np.uint8)
  images[...] = _COLOURS[backgrounds][:, None, None, :]
  for image, scene, background in zip(images, scenes, backgrounds, strict=True):
    for one in scene.objects:
      image[_box(one)] = tiles[one.size][LOOK_NUMBERS[one.look], background]
    if scene.material != FLAT:
      if generator is None:
        raise ValueError(f"Must have a generator for the texture of {scene.material}, we instead got none")
      image[...] = _add_texture(image, scene, generator)
  return images


def _add_texture(image: np.ndarray, scene: Scene, generator: np.random.Generator) -> np.ndarray:
  """``[96, 96, 3]`` uint8: the texture on an image, as far as no object covers it."""
  brightness = draw_brightness(generator, scene.material, scene.background)
  for one in scene.objects:
    brightness[_box(one)] *= 1 - load_coverage()[one.size][LOOK_NUMBERS[one.look]]
  return np.clip(np.floor(image + brightness[..., None] + 0.5), 0, 255).astype(np.uint8)


def _box(one: Object) -> tuple[slice, slice]:
  top, left, bottom, right = one.box
  return np.s_[top:bottom, left:right]
