"""The packed emoji set: 4,839 images of 1,632 emoji in three drawing styles, with captions and fixed splits.

It is not shipped. ``python -m experiments.data.pack_emoji`` writes its files into ``runs/emoji``:

- ``emoji64.zip``: an uncompressed zip of lossless 64x64 RGBA WebP images, ``{style}/{codepoint}.webp``;
- ``index.json``: captions, groups, families and the split of every image;
- ``ATTRIBUTION.md``: sources and licences, which must accompany the images and weights trained on them.

Splits follow families, not single emoji, because many emoji are near duplicates (gender variants, arrows, families):

1. The family of an emoji is its label without the words man, woman, person, ... and without "facing right" and ":".
2. ``h = sha256("split:" + family) mod 20``. For h in 0-1 the split is ``val_concept``: training shows no style of it.
3. For h in 2-4, the images of one style (``sha256("style:" + family) mod 3``) are in ``val_style``. Training shows the
   concept in the other styles only.
4. All other images are in ``train``.
"""

import hashlib
import io
import json
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

STYLES = ("noto", "twemoji", "fluent")
SPLITS = ("train", "val_concept", "val_style")
IMAGE_SIZE = 64
FORMAT_VERSION = 1
DEFAULT_PATH = Path("runs/emoji")
WRITE_IT = "write it with python -m experiments.data.pack_emoji --work runs/npm"

_GENDER_WORDS = re.compile(r"\b(man|woman|person|men|women|people|girl|boy|child)\b")


class Emoji(NamedTuple):
  """Caption data of one emoji, from emojibase (label, tags) and emoji-datasource (groups).

  Attributes:
    codepoint: lower-case hexadecimal code points joined by ``-``, without ``fe0f`` and leading zeros.
    label: lower-case name, e.g. ``"red apple"``.
    tags: lower-case keywords, e.g. ``("apple", "fruit", "red", "ripe")``.
    group: one of 8 groups, e.g. ``"Food & Drink"``.
    subgroup: one of 95 subgroups, e.g. ``"food-fruit"``.
    family: see ``emoji_family``; a family is always in one split (apart from ``val_style``, by design).
  """

  codepoint: str
  label: str
  tags: tuple[str, ...]
  group: str
  subgroup: str
  family: str


@dataclass(frozen=True, eq=False)
class EmojiSet:
  """All images with their metadata.

  Attributes:
    rgba: ``[N, 64, 64, 4]`` uint8, straight alpha; invisible pixels are zero.
    style: ``[N]`` int32 index into ``STYLES``.
    concept: ``[N]`` int32 index into ``emoji``.
    split: ``[N]`` int32 index into ``SPLITS``.
    emoji: metadata of the concepts, in the order of the Unicode charts.
  """

  rgba: np.ndarray
  style: np.ndarray
  concept: np.ndarray
  split: np.ndarray
  emoji: tuple[Emoji, ...]

  def __len__(self) -> int:
    return len(self.rgba)

  def indices(self, split: str | None = None, style: str | None = None) -> np.ndarray:
    """Indices of the images of one split and/or style, ascending.

    Args:
      split: a name in ``SPLITS``, or None for all.
      style: a name in ``STYLES``, or None for all.

    Returns:
      ``[M]`` int64 image numbers.
    """
    keep = np.ones(len(self), bool)
    if split is not None:
      keep &= self.split == _index_of(split, SPLITS, "split")
    if style is not None:
      keep &= self.style == _index_of(style, STYLES, "style")
    return np.flatnonzero(keep)


def emoji_family(label: str) -> str:
  """Family name of an emoji: its label without words for people, "facing right" and ":".

  A label without other words ("man", "woman", ...) is a separate family.

  >>> emoji_family("man walking facing right")
  'walking'
  """
  label = label.lower()
  rest = _GENDER_WORDS.sub("", label.replace("facing right", "").replace(":", ""))
  return " ".join(rest.split()) or label


def emoji_split(family: str, style: str) -> str:
  """Split of the image of one family in one style (steps 2-4 of the module docstring)."""
  bucket = _sha256_int("split:" + family) % 20
  if bucket < 2:
    return "val_concept"
  if bucket < 5 and STYLES[_sha256_int("style:" + family) % len(STYLES)] == style:
    return "val_style"
  return "train"


def load_emoji(path: str | Path | None = None) -> EmojiSet:
  """Reads and decodes the packed set (about two seconds, no network).

  Args:
    path: folder with ``index.json`` and ``emoji64.zip``; `DEFAULT_PATH` by default.

  Returns:
    The set; images are ordered by concept, then style.

  Raises:
    ValueError: if a file is missing or damaged, or the two files do not match.
  """
  folder = Path(path) if path is not None else DEFAULT_PATH
  index = _read_index(folder / "index.json")
  zip_path = folder / index["container"]
  try:
    packed = zip_path.read_bytes()
  except OSError as error:
    raise ValueError(f"{zip_path}: must be a readable zip of WebP images ({error.strerror}); {WRITE_IT}") from error
  digest = hashlib.sha256(packed).hexdigest()
  if digest != index["sha256"]:
    raise ValueError(f"{zip_path}: must have sha256 {index['sha256']} as index.json says, we instead got {digest}")

  emoji, style, concept, split, names = [], [], [], [], []
  try:
    for codepoint, label, tags, group, subgroup, family, splits in index["emoji"]:
      emoji.append(Emoji(codepoint, label, tuple(tags), index["groups"][group], index["subgroups"][subgroup], family))
      for style_number, split_number in enumerate(splits):
        if split_number < 0:  # no image in this style
          continue
        style.append(style_number)
        concept.append(len(emoji) - 1)
        split.append(split_number)
        names.append(f"{STYLES[style_number]}/{codepoint}.webp")
  except (TypeError, ValueError, IndexError) as error:
    raise ValueError(
      f"{folder / 'index.json'}: entry {len(emoji)} must be [codepoint, label, tags, group, subgroup, "
      f" family, splits] ({error})"
    ) from error

  rgba = np.empty((len(names), IMAGE_SIZE, IMAGE_SIZE, 4), np.uint8)
  try:
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
      for number, name in enumerate(names):
        image = Image.open(io.BytesIO(archive.read(name)))
        rgba[number] = np.asarray(image.convert("RGBA"))  # opaque images come back as RGB
  except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
    raise ValueError(
      f"{zip_path}: must hold {len(names)} WebP images of {IMAGE_SIZE}x{IMAGE_SIZE} pixels ({error})"
    ) from error
  rgba[rgba[..., 3] == 0] = 0  # the WebP encoder is free to change invisible pixels
  return EmojiSet(rgba, np.array(style, np.int32), np.array(concept, np.int32), np.array(split, np.int32), tuple(emoji))


def _read_index(path: Path) -> dict:
  try:
    index = json.loads(path.read_text(encoding="utf-8"))
  except OSError as error:
    raise ValueError(f"{path}: must be the readable index of the emoji set ({error.strerror}); {WRITE_IT}") from error
  except ValueError as error:
    raise ValueError(f"{path}: must be JSON ({error})") from error
  expected = {"format": FORMAT_VERSION, "styles": list(STYLES), "splits": list(SPLITS)}
  found = {name: index.get(name) for name in expected} if isinstance(index, dict) else index
  if found != expected:
    raise ValueError(f"{path}: must have {expected}, we instead got {found}")
  missing = [name for name in ("container", "sha256", "groups", "subgroups", "emoji") if name not in index]
  if missing:
    raise ValueError(f"{path}: must have the fields {missing}")
  return index


def _index_of(name: str, names: tuple[str, ...], what: str) -> int:
  if name not in names:
    raise ValueError(f"{what} must be one of {names}, we instead got {name!r}")
  return names.index(name)


def _sha256_int(text: str) -> int:
  return int(hashlib.sha256(text.encode()).hexdigest(), 16)
