"""The packed emoji set: counts of the sources, splits by family, and clear errors for damaged files."""

import hashlib
import json
import shutil
from collections import defaultdict

import numpy as np
import pytest

from jaxspec.data import SPLITS, STYLES, emoji_family, emoji_split, load_emoji
from jaxspec.data.emoji import DEFAULT_PATH


@pytest.fixture
def copy(tmp_path):
  """A copy of the packed files that a test may damage."""
  return shutil.copytree(DEFAULT_PATH, tmp_path / "emoji")


def test_counts_are_those_of_the_sources(emoji_set):
  assert len(emoji_set) == 4839
  assert [len(emoji_set.indices(style=style)) for style in STYLES] == [1631, 1610, 1598]
  assert [len(emoji_set.indices(split=split)) for split in SPLITS] == [4213, 435, 191]
  assert len(emoji_set.emoji) == len({emoji.label for emoji in emoji_set.emoji}) == 1632
  assert len({emoji.family for emoji in emoji_set.emoji}) == 1433
  assert len({emoji.subgroup for emoji in emoji_set.emoji}) == 95
  groups = defaultdict(int)
  for concept in emoji_set.concept:
    groups[emoji_set.emoji[concept].group] += 1
  assert groups == {
    "People & Body": 1102,
    "Objects": 789,
    "Symbols": 671,
    "Travel & Places": 654,
    "Smileys & Emotion": 503,
    "Animals & Nature": 475,
    "Food & Drink": 390,
    "Activities": 255,
  }


def test_shapes_and_types(emoji_set):
  assert emoji_set.rgba.shape == (4839, 64, 64, 4) and emoji_set.rgba.dtype == np.uint8
  for field in (emoji_set.style, emoji_set.concept, emoji_set.split):
    assert field.shape == (4839,) and field.dtype == np.int32
  assert (np.diff(emoji_set.concept * len(STYLES) + emoji_set.style) > 0).all()  # by concept, then style; no pair twice


def test_invisible_pixels_are_zero(emoji_set):
  assert not emoji_set.rgba[emoji_set.rgba[..., 3] == 0].any()


def test_images_are_distinct_within_a_style(emoji_set):
  for style in STYLES:
    images = emoji_set.indices(style=style)
    assert len({emoji_set.rgba[i].tobytes() for i in images}) == len(images)


def test_known_image(emoji_set):
  concept = next(i for i, emoji in enumerate(emoji_set.emoji) if emoji.codepoint == "1f34e")
  emoji = emoji_set.emoji[concept]
  assert (emoji.label, emoji.group, emoji.subgroup) == ("red apple", "Food & Drink", "food-fruit")
  assert {"apple", "fruit", "red"} <= set(emoji.tags)
  images = np.flatnonzero(emoji_set.concept == concept)
  assert list(emoji_set.style[images]) == [0, 1, 2]
  red, green, blue, alpha = np.moveaxis(emoji_set.rgba[images, 36, 24].astype(int), -1, 0)
  assert (red > green + 60).all() and (red > blue + 60).all() and (alpha == 255).all()
  assert (emoji_set.rgba[images][:, [0, 0, -1, -1], [0, -1, 0, -1], 3] == 0).all()  # empty corners


def test_splits_follow_the_family_rule(emoji_set):
  for concept, style, split in zip(emoji_set.concept, emoji_set.style, emoji_set.split, strict=True):
    emoji = emoji_set.emoji[concept]
    assert emoji.family == emoji_family(emoji.label)
    assert SPLITS[split] == emoji_split(emoji.family, STYLES[style])


def test_splits_are_disjoint(emoji_set):
  positions = defaultdict(set)  # split -> {(family, style)}
  families = defaultdict(set)
  for concept, style, split in zip(emoji_set.concept, emoji_set.style, emoji_set.split, strict=True):
    positions[SPLITS[split]].add((emoji_set.emoji[concept].family, int(style)))
    families[SPLITS[split]].add(emoji_set.emoji[concept].family)
  assert not families["val_concept"] & (families["train"] | families["val_style"])
  assert not positions["val_style"] & positions["train"]
  styles = defaultdict(set)
  for family, style in positions["val_style"]:
    styles[family].add(style)
  assert all(len(held_out) == 1 for held_out in styles.values())
  # Every held-out style belongs to a concept that training shows in another style.
  assert families["val_style"] <= families["train"]


@pytest.mark.parametrize(
  "label, family",
  [
    ("man walking facing right", "walking"),
    ("woman walking", "walking"),
    ("man", "man"),
    ("Red Apple", "red apple"),
    ("family: man, woman, boy", "family , ,"),
    ("mango", "mango"),
    ("man’s shoe", "’s shoe"),
  ],
)
def test_family_rule(label, family):
  assert emoji_family(label) == family


def test_indices(emoji_set):
  both = emoji_set.indices("val_style", "fluent")
  assert set(both) == set(emoji_set.indices("val_style")) & set(emoji_set.indices(style="fluent"))
  assert len(emoji_set.indices()) == len(emoji_set)
  with pytest.raises(ValueError, match="split must be one of .* we instead got 'test'"):
    emoji_set.indices("test")
  with pytest.raises(ValueError, match="style must be one of"):
    emoji_set.indices(style="apple")


def test_attribution_names_every_source():
  text = (DEFAULT_PATH / "ATTRIBUTION.md").read_text(encoding="utf-8")
  for source in ("Noto Emoji", "Twemoji", "Fluent Emoji", "Microsoft", "LobeHub", "emojibase"):
    assert source in text
  for licence in ("Apache-2.0", "CC-BY-4.0", "MIT"):
    assert licence in text
  assert sum((DEFAULT_PATH / name).stat().st_size for name in ("emoji64.zip", "index.json")) < 20e6


def test_a_missing_folder_is_an_error(tmp_path):
  with pytest.raises(ValueError, match="index.json: must be the readable index"):
    load_emoji(tmp_path / "nowhere")


def test_a_missing_container_is_an_error(copy):
  (copy / "emoji64.zip").unlink()
  with pytest.raises(ValueError, match="emoji64.zip: must be a readable zip"):
    load_emoji(copy)


def test_a_damaged_container_is_an_error(copy):
  path = copy / "emoji64.zip"
  damaged = bytearray(path.read_bytes())
  damaged[len(damaged) // 2] ^= 1
  path.write_bytes(damaged)
  with pytest.raises(ValueError, match="emoji64.zip: must have sha256"):
    load_emoji(copy)


@pytest.mark.parametrize("container", [b"", b"not a zip", b"PK\x05\x06" + bytes(18)])
def test_a_container_without_images_is_an_error(copy, container):
  (copy / "emoji64.zip").write_bytes(container)
  index = json.loads((copy / "index.json").read_text(encoding="utf-8"))
  index["sha256"] = hashlib.sha256(container).hexdigest()
  (copy / "index.json").write_text(json.dumps(index), encoding="utf-8")
  with pytest.raises(ValueError, match="emoji64.zip: must hold 4839 WebP images"):
    load_emoji(copy)


@pytest.mark.parametrize(
  "text, message",
  [
    ("{", "must be JSON"),
    ("[]", "must have"),
    ('{"format": 99}', "must have .*'format': 1.*'format': 99"),
    (
      '{"format": 1, "styles": ["noto", "twemoji", "fluent"], "splits": ["train", "val_concept", "val_style"]}',
      "must have the fields",
    ),
  ],
)
def test_a_damaged_index_is_an_error(copy, text, message):
  (copy / "index.json").write_text(text)
  with pytest.raises(ValueError, match="index.json: " + message):
    load_emoji(copy)


def test_a_damaged_index_entry_is_an_error(copy):
  index = json.loads((copy / "index.json").read_text(encoding="utf-8"))
  index["emoji"][3] = ["1f600"]
  (copy / "index.json").write_text(json.dumps(index), encoding="utf-8")
  with pytest.raises(ValueError, match="index.json: entry 3"):
    load_emoji(copy)
