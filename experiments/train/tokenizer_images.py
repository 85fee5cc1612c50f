"""The images that tokenizers are trained on and judged by: emoji on coloured backgrounds, or painted scenes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from experiments.train.command import epochs_of
from jaxspec import scenes
from jaxspec.data.emoji import load_emoji
from jaxspec.data.tokens import Painting, draw, random_paintings
from jaxspec.scenes.layouts import draw_layout
from jaxspec.scenes.reader import read
from jaxspec.scenes.world import BACKGROUNDS, IMAGE_SIZE, LOOKS, MOST_OBJECTS, SIZES, clashes

LICENCE = (
  "Apache-2.0; trained on Noto Emoji, Twemoji (CC-BY-4.0) and Fluent Emoji images, see jaxspec/data/emoji/ATTRIBUTION.md"
)

RoundTrip = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


class ImageSource(NamedTuple):
  """Where images come from; all images are uint8 ``[M, H, W, 3]``.

  Attributes:
    batch_fn: ``(batch_size, seed)`` to a pure function from the step to ``{"images": ...}``.
    probe: images of the evaluations during training, which training lacks.
    splits: the images of the final figures, by name.
    examples: images to look at.
    counts: what the training and the unseen images are, for the record.
    extra_fn: more figures from a round trip ``pixels -> (tokens [M, N], pixels)``.
  """

  batch_fn: Callable[[int, int], Callable[[int], dict[str, np.ndarray]]]
  probe: Callable[[], np.ndarray]
  splits: Callable[[], dict[str, np.ndarray]]
  examples: Callable[[], np.ndarray]
  counts: dict[str, int | str]
  extra_fn: Callable[[RoundTrip], dict[str, float]]


def image_source(name: str) -> ImageSource:
  """The source of a name.

  Raises:
    ValueError: if there is none.
  """
  if name not in _SOURCES:
    raise ValueError(f"Must have images among {', '.join(_SOURCES)}, we instead got {name!r}")
  return _SOURCES[name]()


def emoji_images() -> ImageSource:
  """Emoji at 64 x 64. Training draws half of them on white, else on a colour of the palette, a quarter of them small.

  Unseen images are of families that no training image belongs to (``val_concept``).
  """
  emoji = load_emoji()
  train, unseen = emoji.indices("train"), emoji.indices("val_concept")

  def batch_fn(batch_size, seed):
    chosen = epochs_of(train, batch_size, (seed, 0))

    def batch(step):
      painting = random_paintings(np.random.default_rng((seed, 1, step)), batch_size)
      return {"images": draw(emoji.rgba[chosen(step)], painting)}

    return batch

  def splits():
    """Unseen families, held-out styles and as many training images, each on white and painted."""
    of = {"unseen": unseen, "val_style": emoji.indices("val_style")}
    of["train"] = np.random.default_rng(1).permutation(train)[: len(unseen)]
    images = {}
    for name, rows in of.items():
      painted = random_paintings(np.random.default_rng(2), len(rows), white_fraction=0.0)
      for ground, painting in (("white", Painting.plain(len(rows))), ("painted", painted)):
        images[f"{name}_{ground}"] = draw(emoji.rgba[rows], painting)
    return images

  def examples():
    """24 unseen emoji, half of them plain and half painted."""
    rows = np.random.default_rng(3).permutation(unseen)[:24]
    painted = random_paintings(np.random.default_rng(4), 24, white_fraction=0.0)
    plain, half = Painting.plain(24), np.arange(24) < 12
    choose = lambda a, b: np.where(half.reshape(-1, *[1] * (a.ndim - 1)), a, b)
    return draw(emoji.rgba[rows], Painting(*(choose(a, b) for a, b in zip(plain, painted))))

  def probe():
    rows = np.random.default_rng(0).permutation(unseen)[:96]
    return draw(emoji.rgba[rows], Painting.plain(len(rows)))

  return ImageSource(batch_fn, probe, splits, examples, {"train": len(train), "unseen": len(unseen)}, lambda round_trip: {})


def scene_images() -> ImageSource:
  """Scenes at 96 x 96, painted as they are asked for.

  Training sees four objects in every image, since a background has nothing to learn. Unseen images are those of captions
  with combinations that training lacks.
  """

  def painted(seed, numbers, split):
    drawn = [scenes.draw_scene(seed, int(number), split)[1] for number in numbers]
    return drawn, scenes.paint_batch(drawn)

  def batch_fn(batch_size, seed):
    def batch(step):
      generator = np.random.default_rng((seed, 1, step))
      return {"images": scenes.paint_batch([_crowded(generator) for _ in range(batch_size)])}

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
      (found.background, found.objects) == (scene.background, scene.objects) and not found.has_debris
      for found, scene in zip(readings, drawn, strict=True)
    ]
    tokens = round_trip(flat)[0]
    return {"flat_tokens": float(sum(len(np.unique(row)) for row in tokens)), "read_right": float(np.mean(same))}

  def splits():
    return {"train": painted(0, range(512), "train")[1], "unseen": unseen(512)[1]}

  return ImageSource(
    batch_fn, lambda: unseen(512)[1][:96], splits, lambda: unseen(512)[1][:24], {"train": "as many as steps need"}, extra
  )


def _crowded(generator: np.random.Generator) -> scenes.Scene:
  """Four objects of any look and size on one background."""
  background = list(BACKGROUNDS)[generator.integers(len(BACKGROUNDS))]
  seen = [look for look in LOOKS if not clashes(look.noun, look.colour, background)]
  looks = [seen[number] for number in generator.integers(len(seen), size=MOST_OBJECTS)]
  sizes = tuple(list(SIZES)[number] for number in generator.integers(len(SIZES), size=MOST_OBJECTS))
  places = draw_layout(generator, sizes)
  return scenes.Scene(
    background, tuple(scenes.Object(*look, size, *place) for look, size, place in zip(looks, sizes, places, strict=True))
  )


_SOURCES = {"emoji": emoji_images, "scenes": scene_images}
