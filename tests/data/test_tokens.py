"""Painted batches and the token set."""

import numpy as np
import pytest

from jaxspec.data.emoji import Emoji, EmojiSet
from jaxspec.data.paint import paint
from jaxspec.data.tokens import (
  BACKGROUND_NAMES,
  WHITE,
  Painting,
  TokenSet,
  draw,
  random_paintings,
  token_paintings,
  tokenize,
)


@pytest.fixture(scope="module")
def emoji():
  rgba = np.random.default_rng(0).integers(0, 256, (4, 64, 64, 4), np.uint8)
  entry = Emoji("1f34e", "red apple", (), "Food & Drink", "food-fruit", "red apple")
  return EmojiSet(rgba, np.arange(4) % 3, np.zeros(4, int), np.array([0, 1, 0, 2]), (entry,))


def test_draw_equals_paint_one_by_one(emoji):
  painting = Painting(np.array([WHITE, 3, 1, 2]), np.array([False, False, True, True]), np.array([(0, 0)] * 3 + [(2, -3)]))
  pixels = draw(emoji.rgba, painting)
  for i, size in enumerate(("normal", "normal", "small", "small")):
    expected = paint(emoji.rgba[i], BACKGROUND_NAMES[painting.background[i]], size, tuple(painting.offset[i]))
    np.testing.assert_array_equal(pixels[i], expected)


def test_random_paintings_follow_their_fractions():
  painting = random_paintings(np.random.default_rng(0), 4000, white_fraction=0.5, small_fraction=0.25, max_offset=6)
  counts = np.bincount(painting.background, minlength=len(BACKGROUND_NAMES))
  assert abs(counts[WHITE] / 4000 - 0.5) < 0.03
  assert np.delete(counts, WHITE).min() > 150
  assert abs(painting.small.mean() - 0.25) < 0.03
  assert np.all(painting.offset[~painting.small] == 0)
  assert set(np.unique(painting.offset)) == set(range(-6, 7))


def test_token_set(emoji, tmp_path):
  sizes = []

  def encode(pixels):
    sizes.append(len(pixels))
    return pixels[:, ::16, ::16, 0].reshape(len(pixels), -1)

  made = tokenize(emoji, encode, train_variants=3, val_variants=2, batch=4)
  assert set(sizes) == {4}
  np.testing.assert_array_equal(made.image, [0, 0, 0, 1, 1, 2, 2, 2, 3, 3])
  np.testing.assert_array_equal(made.split, emoji.split[made.image])
  plain = made.variant == 0
  np.testing.assert_array_equal(made.background[plain], WHITE)
  assert not made.small[plain].any()
  image, variant, painting = token_paintings(emoji, train_variants=3, val_variants=2)
  np.testing.assert_array_equal(made.tokens, encode(draw(emoji.rgba[image], painting)))
  np.testing.assert_array_equal(variant, made.variant)
  made.save(tmp_path / "tokens.npz")
  loaded = TokenSet.load(tmp_path / "tokens.npz")
  assert loaded.tokens.dtype == np.int16
  np.testing.assert_array_equal(loaded.tokens, made.tokens)
  np.savez(tmp_path / "other.npz", a=np.zeros(1))
  with pytest.raises(ValueError, match="token set"):
    TokenSet.load(tmp_path / "other.npz")
  (tmp_path / "half.npz").write_bytes((tmp_path / "tokens.npz").read_bytes()[:100])
  with pytest.raises(ValueError, match="token set"):
    TokenSet.load(tmp_path / "half.npz")
  with pytest.raises(ValueError, match="experiments.data.tokenize_emoji"):
    TokenSet.load(tmp_path / "none.npz")
