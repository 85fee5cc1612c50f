"""Text tokenizer: the vocabulary is reproducible, padding is on the left, and no text crashes it."""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxspec.evaluation import scenes
from jaxspec.io.text import (
  PAD_ID,
  UNK_ID,
  encode,
  learn_text_tokenizer,
  load_text_tokenizer,
  normalize_prompt,
  save_text_tokenizer,
)

NUM_TOKENS = 160


@functools.cache
def captions():
  return [normalize_prompt(scenes.draw_scene(0, number)[0]) for number in range(3000)]


def learn():
  return learn_text_tokenizer([*captions(), *["red apple"] * 50], NUM_TOKENS)


@pytest.fixture(scope="module")
def tokenizer():
  return learn()


def test_vocabulary(tokenizer):
  assert tokenizer.get_vocab_size() == NUM_TOKENS
  assert (tokenizer.token_to_id("[PAD]"), tokenizer.token_to_id("[UNK]")) == (PAD_ID, UNK_ID) == (0, 1)


def test_frequent_words_are_single_tokens(tokenizer):
  words = ["on", "background", "small", "two", "apple", "heart", "red", "blue"]
  assert encode(tokenizer, words).mask.sum(1).tolist() == [1] * len(words)


def test_learning_is_deterministic(tokenizer):
  assert learn().to_str() == tokenizer.to_str()


def test_save_and_load(tokenizer, tmp_path):
  save_text_tokenizer(tokenizer, tmp_path / "text.json")
  again = load_text_tokenizer(tmp_path / "text.json")
  assert again.to_str() == tokenizer.to_str()


def test_captions_fit(tokenizer):
  encoded = encode(tokenizer, captions())
  assert not encoded.num_dropped.any() and not (encoded.ids == UNK_ID).any()


def test_left_padding_and_truncation(tokenizer):
  short, long = "A red apple", "red " * 30 + "blue"
  encoded = encode(tokenizer, [short, long], max_tokens=8)
  assert encoded.ids.shape == encoded.mask.shape == (2, 8)
  assert encoded.ids.dtype == np.int32 and encoded.mask.dtype == bool and encoded.num_dropped.dtype == np.int32
  assert encoded.mask.tolist() == [[False] * 6 + [True] * 2, [True] * 8]
  assert (encoded.ids[~encoded.mask] == PAD_ID).all()
  assert encoded.num_dropped.tolist() == [0, 23]
  red = tokenizer.token_to_id("red")
  assert encoded.ids[0].tolist() == [PAD_ID] * 6 + [red, tokenizer.token_to_id("apple")]
  assert encoded.ids[1].tolist() == [red] * 8


def test_user_spelling_does_not_matter(tokenizer):
  typed, canonical = "Look: a RED apple on a grey background!", "look red apple on gray background"
  one, two = encode(tokenizer, [typed, canonical]).ids
  np.testing.assert_array_equal(one, two)


@given(st.text(max_size=40))
@settings(deadline=None)
def test_any_text_encodes_or_raises_a_clear_error(tokenizer, text):
  if not normalize_prompt(text):
    with pytest.raises(ValueError, match="prompt 1 must have at least one word"):
      encode(tokenizer, [text])
    return
  encoded = encode(tokenizer, [text])
  assert encoded.mask[0, -1]
  assert (np.diff(encoded.mask[0].astype(int)) >= 0).all()  # padding first
  assert (encoded.ids[encoded.mask] != PAD_ID).all() and (encoded.ids < NUM_TOKENS).all()


def test_foreign_words_become_unknown(tokenizer):
  assert encode(tokenizer, ["日本 apple"]).ids[0, -2:].tolist() == [UNK_ID, tokenizer.token_to_id("apple")]
  assert not (encode(tokenizer, ["pad [PAD] unk"]).ids[0, -3:] == PAD_ID).any()


def test_bad_arguments_are_errors(tokenizer, tmp_path):
  with pytest.raises(ValueError, match="prompt 2 must have at least one word, we instead got ' !! '"):
    encode(tokenizer, ["apple", " !! "])
  with pytest.raises(ValueError, match="texts must be a sequence of prompts"):
    encode(tokenizer, "apple")
  with pytest.raises(ValueError, match="max_tokens must be positive, we instead got 0"):
    encode(tokenizer, ["apple"], max_tokens=0)
  with pytest.raises(ValueError, match="Cannot read .*none.json"):
    load_text_tokenizer(tmp_path / "none.json")
  (tmp_path / "bad.json").write_text("{}")
  with pytest.raises(ValueError, match="bad.json: must be a JSON file of the tokenizers library"):
    load_text_tokenizer(tmp_path / "bad.json")
  (tmp_path / "other.json").write_text(tokenizer.to_str().replace("[PAD]", "[EOS]"))
  with pytest.raises(ValueError, match="other.json: .* must be tokens 0 and 1"):
    load_text_tokenizer(tmp_path / "other.json")
