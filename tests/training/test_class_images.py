"""Image sets of continuous tokens: drawn images, held-out images, and the reader of digits."""

import json

import numpy as np
import pytest

from experiments.data import digits as fetch_digits
from experiments.data.class_images import _digits, _emoji, load_images
from experiments.data.emoji import load_emoji
from tests.io.text.packed_emoji import pack


def test_emoji_are_those_of_their_splits(tmp_path):
  emoji, images = load_emoji(pack(tmp_path / "emoji")), _emoji(tmp_path / "emoji")
  assert images.side == 64 and images.classes == ("food-fruit", "face-smiling")
  for split, name in ((images.train, "train"), (images.held_out, "val_style"), (images.unseen, "val_concept")):
    numbers = emoji.indices(name)
    assert len(split.labels) == len(numbers) > 0
    subgroups = [emoji.emoji[emoji.concept[number]].subgroup for number in numbers]
    assert [images.classes[label] for label in split.labels] == subgroups
  rows = np.arange(3)
  plain, painted = images.train.draw(rows, None), images.train.draw(rows, np.random.default_rng(1))
  assert plain.shape == (3, 64, 64, 3) and plain.dtype == np.uint8 and (plain != painted).any()
  with pytest.raises(ValueError, match="emoji, digits"):
    load_images("photographs")
  with pytest.raises(ValueError, match="python -m experiments.data.pack_emoji"):
    _emoji(tmp_path / "none")


@pytest.mark.slow
def test_digits_are_split_by_their_pixels_and_shifted(tmp_path):
  package = tmp_path / "package" / "src" / "digits"
  package.mkdir(parents=True)
  generator = np.random.default_rng(0)
  values = generator.integers(0, 256, size=(10, 30, 28 * 28))
  for digit, rows in enumerate(values):
    (package / f"{digit}.json").write_text(json.dumps({"data": np.round(rows / 255, 3).ravel().tolist()}))
  pixels, labels = fetch_digits.read(tmp_path / "package")
  np.testing.assert_array_equal(pixels.reshape(10, 30, -1), values)
  assert labels[::30].tolist() == list(range(10))
  # A digit that occurs twice must not be in both splits.
  np.savez(tmp_path / "digits.npz", pixels=np.concatenate([pixels, pixels]), labels=np.concatenate([labels, labels]))
  digits = _digits(tmp_path / "digits.npz")
  sizes = len(digits.train.labels), len(digits.held_out.labels)
  assert sum(sizes) == 600 and 0 < sizes[1] < 120
  every = [split.draw(np.arange(size), None) for split, size in zip((digits.train, digits.held_out), sizes)]
  there = [{image.tobytes() for image in part} for part in every]
  assert not there[0] & there[1]
  plain = every[0][0]
  assert plain.shape == (32, 32, 3) and not plain[:2].any() and not plain[:, -2:].any() and plain[2:30, 2:30].any()
  moved = digits.train.draw(np.zeros(40, int), np.random.default_rng(2))
  assert {image[..., 0].sum() for image in moved.astype(int)} == {plain[..., 0].astype(int).sum()}
  assert len({image.tobytes() for image in moved}) > 5
  with pytest.raises(ValueError, match="experiments.data.digits"):
    _digits(tmp_path / "none.npz")
