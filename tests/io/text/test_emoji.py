"""The packed emoji set: splits by family, and clear errors for damaged files."""

import hashlib
import json

import pytest

from experiments.data.emoji import SPLITS, STYLES, emoji_family, emoji_split, load_emoji
from tests.io.text.packed_emoji import pack


@pytest.fixture
def packed(tmp_path):
  """Files that a test may damage."""
  return pack(tmp_path / "emoji")


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


def test_splits_follow_the_family_rule():
  """A tenth of the families is held out in all styles, a seventh in one style."""
  families = [f"family {number}" for number in range(2000)]
  found = [tuple(emoji_split(family, style) for style in STYLES) for family in families]
  whole = [set(splits) == {"val_concept"} for splits in found]
  one = [sorted(splits) == ["train", "train", "val_style"] for splits in found]
  rest = [set(splits) == {"train"} for splits in found]
  assert all(sum(kinds) == 1 for kinds in zip(whole, one, rest, strict=True))
  assert abs(sum(whole) / 2000 - 0.10) < 0.03 and abs(sum(one) / 2000 - 0.15) < 0.03
  held_out = [splits.index("val_style") for splits in found if "val_style" in splits]
  assert all(held_out.count(style) > 60 for style in range(len(STYLES)))


def test_indices(packed):
  emoji = load_emoji(packed)
  assert SPLITS == ("train", "val_concept", "val_style") and len(emoji) == 5
  assert emoji.indices("train").tolist() == [0, 1, 3] and emoji.indices("train", "noto").tolist() == [0, 3]
  assert emoji.indices(style="fluent").tolist() == [2, 4] and emoji.indices().tolist() == [0, 1, 2, 3, 4]
  with pytest.raises(ValueError, match="split must be one of .* we instead got 'test'"):
    emoji.indices("test")
  with pytest.raises(ValueError, match="style must be one of"):
    emoji.indices(style="apple")


def test_attribution_names_every_source(packed):
  text = (packed / "ATTRIBUTION.md").read_text(encoding="utf-8")
  for source in ("Noto Emoji", "Twemoji", "Fluent Emoji", "Microsoft", "LobeHub", "emojibase"):
    assert source in text
  for licence in ("Apache-2.0", "CC-BY-4.0", "MIT"):
    assert licence in text


def test_a_missing_folder_is_an_error(tmp_path):
  with pytest.raises(ValueError, match="index.json: must be the readable index"):
    load_emoji(tmp_path / "nowhere")


def test_a_missing_container_is_an_error(packed):
  (packed / "emoji64.zip").unlink()
  with pytest.raises(ValueError, match="emoji64.zip: must be a readable zip"):
    load_emoji(packed)


def test_a_damaged_container_is_an_error(packed):
  path = packed / "emoji64.zip"
  damaged = bytearray(path.read_bytes())
  damaged[len(damaged) // 2] ^= 1
  path.write_bytes(damaged)
  with pytest.raises(ValueError, match="emoji64.zip: must have sha256"):
    load_emoji(packed)


@pytest.mark.parametrize("container", [b"", b"not a zip", b"PK\x05\x06" + bytes(18)])
def test_a_container_without_images_is_an_error(packed, container):
  (packed / "emoji64.zip").write_bytes(container)
  index = json.loads((packed / "index.json").read_text(encoding="utf-8"))
  index["sha256"] = hashlib.sha256(container).hexdigest()
  (packed / "index.json").write_text(json.dumps(index), encoding="utf-8")
  with pytest.raises(ValueError, match="emoji64.zip: must hold 5 WebP images"):
    load_emoji(packed)


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
def test_a_damaged_index_is_an_error(packed, text, message):
  (packed / "index.json").write_text(text)
  with pytest.raises(ValueError, match="index.json: " + message):
    load_emoji(packed)


def test_a_damaged_index_entry_is_an_error(packed):
  index = json.loads((packed / "index.json").read_text(encoding="utf-8"))
  index["emoji"][1] = ["1f600"]
  (packed / "index.json").write_text(json.dumps(index), encoding="utf-8")
  with pytest.raises(ValueError, match="index.json: entry 1"):
    load_emoji(packed)
