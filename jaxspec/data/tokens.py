"""Painted images in batches, and the token set a transformer trains on.

The token set is made once with a trained tokenizer. It holds every image of every split in a few painted variants. Variant 0
is always the plain image, on white at normal size. Variants are a pure function of (seed, image, variant).
"""

from __future__ import annotations

import dataclasses
import os
import zipfile
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from jaxspec.data.emoji import EmojiSet
from jaxspec.data.paint import BACKGROUNDS, SCALES, composite, place

BACKGROUND_NAMES = tuple(BACKGROUNDS)
WHITE = BACKGROUND_NAMES.index("white")
_COLOURS = np.array([BACKGROUNDS[name] for name in BACKGROUND_NAMES], np.uint8)


class Painting(NamedTuple):
  """Attributes of some images."""

  background: np.ndarray  # [M] int, index into BACKGROUND_NAMES
  small: np.ndarray  # [M] bool
  offset: np.ndarray  # [M, 2] int pixels (down, right); 0 where not small

  @classmethod
  def plain(cls, num: int) -> Painting:
    """On white, at normal size."""
    return cls(np.full(num, WHITE), np.zeros(num, bool), np.zeros((num, 2), int))


def random_paintings(
  generator: np.random.Generator,
  num: int,
  *,
  white_fraction: float = 0.5,
  small_fraction: float = 0.25,
  max_offset: int = 6,
) -> Painting:
  """Independent random attributes: white or one of the other colours, and a size.

  Args:
    generator: source of randomness; advanced.
    num: how many images.
    white_fraction: probability of a white background; the rest is uniform over the other colours.
    small_fraction: probability of a small image.
    max_offset: small images move by up to so many pixels from the centre.
  """
  white = generator.random(num) < white_fraction
  others = np.delete(np.arange(len(BACKGROUND_NAMES)), WHITE)
  background = np.where(white, WHITE, generator.choice(others, num))
  small = generator.random(num) < small_fraction
  offset = generator.integers(-max_offset, max_offset + 1, (num, 2)) * small[:, None]
  return Painting(background, small, offset)


def draw(rgba: np.ndarray, painting: Painting) -> np.ndarray:
  """Paints ``[M, H, W, 4]`` uint8 images; returns ``[M, H, W, 3]`` uint8."""
  placed = rgba.copy()
  for i in np.flatnonzero(painting.small):
    placed[i] = place(rgba[i], SCALES["small"], tuple(int(x) for x in painting.offset[i]))
  return composite(placed, _COLOURS[painting.background])


@dataclasses.dataclass(frozen=True, eq=False)
class TokenSet:
  """Tokens of painted images.

  Attributes:
    tokens: ``[M, N]`` int16.
    image: ``[M]`` int32 index into the `EmojiSet`.
    background: ``[M]`` int8 index into `BACKGROUND_NAMES`.
    small: ``[M]`` bool.
    split: ``[M]`` int8, as in the `EmojiSet`.
    variant: ``[M]`` int8; 0 is the plain image.
  """

  tokens: np.ndarray
  image: np.ndarray
  background: np.ndarray
  small: np.ndarray
  split: np.ndarray
  variant: np.ndarray

  def __len__(self) -> int:
    return len(self.tokens)

  def save(self, path: str | os.PathLike) -> None:
    """Writes a compressed ``.npz``."""
    fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
    np.savez_compressed(path, **fields, background_names=np.array(BACKGROUND_NAMES))

  @classmethod
  def load(cls, path: str | os.PathLike) -> TokenSet:
    """Reads what `save` wrote.

    Raises:
      ValueError: if the file is missing, is no token set, or has another palette.
    """
    if not os.path.isfile(path):
      raise ValueError(f"No token set at {path}: make it with python -m experiments.data.tokenize_emoji --out {path}")
    try:
      with np.load(path) as archive:
        names = tuple(archive["background_names"].tolist())
        fields = {f.name: archive[f.name] for f in dataclasses.fields(cls)}
    except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
      raise ValueError(f"Must have a token set written by TokenSet.save, {path} is none: {error}") from error
    if names != BACKGROUND_NAMES:
      raise ValueError(f"Must have tokens of the palette {BACKGROUND_NAMES}, we instead got {names} in {path}")
    return cls(**fields)


def token_paintings(
  emoji: EmojiSet, *, train_variants: int = 8, val_variants: int = 2, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, Painting]:
  """Which images are tokenized, and how they are painted.

  Variant 0 is plain; the others are white in a third of the cases, else a random colour, and small in a third.

  Returns:
    ``image [M]`` int32, ``variant [M]`` int8, and the attributes; ordered by image, then variant.
  """
  train = emoji.split == 0
  counts = np.where(train, train_variants, val_variants)
  image = np.repeat(np.arange(len(emoji), dtype=np.int32), counts)
  variant = np.concatenate([np.arange(n, dtype=np.int8) for n in counts])
  parts = [
    random_paintings(np.random.default_rng((seed, i)), int(n), white_fraction=1 / 3, small_fraction=1 / 3, max_offset=0)
    for i, n in enumerate(counts)
  ]
  painting = Painting(*(np.concatenate(leaves) for leaves in zip(*parts)))
  plain = variant == 0
  painting = Painting(np.where(plain, WHITE, painting.background), painting.small & ~plain, painting.offset)
  return image, variant, painting


def tokenize(
  emoji: EmojiSet,
  encode_fn: Callable[[np.ndarray], np.ndarray],
  *,
  train_variants: int = 8,
  val_variants: int = 2,
  seed: int = 0,
  batch: int = 64,
  report_fn: Callable[[int, int], None] | None = None,
) -> TokenSet:
  """Makes the token set.

  Args:
    emoji: the images.
    encode_fn: ``[batch, H, W, 3]`` uint8 images to ``[batch, N]`` integer tokens.
    train_variants: paintings of each training image, the plain one included.
    val_variants: paintings of each image of the other splits.
    seed: of the paintings.
    batch: images per call of `encode_fn`; the last batch is filled up, so that shapes never change.
    report_fn: called with (done, total).
  """
  image, variant, painting = token_paintings(emoji, train_variants=train_variants, val_variants=val_variants, seed=seed)
  tokens = []
  for start in range(0, len(image), batch):
    rows = np.minimum(np.arange(start, start + batch), len(image) - 1)
    pixels = draw(emoji.rgba[image[rows]], Painting(*(leaf[rows] for leaf in painting)))
    tokens.append(np.asarray(encode_fn(pixels)).astype(np.int16)[: len(image) - start])
    if report_fn is not None:
      report_fn(min(start + batch, len(image)), len(image))
  return TokenSet(
    np.concatenate(tokens),
    image,
    painting.background.astype(np.int8),
    painting.small,
    emoji.split[image].astype(np.int8),
    variant,
  )
