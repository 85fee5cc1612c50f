"""Prompts: the common spelling, the rates, determinism."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxspec.data import (
  BACKGROUNDS,
  STYLES,
  Emoji,
  PromptRates,
  canonical_prompt,
  make_prompt,
  normalize_prompt,
  parse_prompt,
)

APPLE = Emoji("1f34e", "red apple", ("apple", "fruit", "ripe", "health"), "Food & Drink", "food-fruit", "red apple")
UNTAGGED = APPLE._replace(tags=())


@pytest.mark.parametrize(
  "text, normal",
  [
    ("a red apple", "red apple"),
    ("Twemoji, a red apple on a blue background, small", "twemoji red apple on blue background small"),
    ("  The\tRED\napple!! ", "red apple"),
    ("An apple on the GREY background", "apple on gray background"),
    ("eight o’clock", "eight o'clock"),
    ("T-Rex", "t-rex"),
    ("'quoted' -dashed- e-mail", "quoted dashed e-mail"),
    ("piñata", "pinata"),
    ("keycap: #", "keycap hash"),
    ("keycap: *", "keycap asterisk"),
    ("rock & roll", "rock and roll"),
    ("Japanese “here” button", "japanese here button"),
    ("snake_case", "snake case"),
    ("日本", "日本"),
    ("🍎", ""),
    ("the a an", ""),
    ("", ""),
  ],
)
def test_normalize(text, normal):
  assert normalize_prompt(text) == normal


@given(st.text(max_size=40))
def test_normalize_is_idempotent(text):
  once = normalize_prompt(text)
  assert normalize_prompt(once) == once
  assert "  " not in once and once == once.strip()
  assert normalize_prompt(f"  {text}\n") == once


@given(st.text(alphabet="aAn the'-,.#*&’ﬁİıßK_0", max_size=30))
def test_normalize_is_idempotent_on_hard_letters(text):
  once = normalize_prompt(text)
  assert normalize_prompt(once) == once
  assert not {"a", "an", "the"} & set(once.split())


def test_labels_stay_distinct(emoji_set):
  labels = {normalize_prompt(emoji.label) for emoji in emoji_set.emoji}
  assert len(labels) == len(emoji_set.emoji) and "" not in labels


def test_canonical_prompt():
  assert canonical_prompt(APPLE) == "red apple"
  assert canonical_prompt(APPLE, "noto", "blue", small=True) == "noto red apple on blue background small"
  assert canonical_prompt(APPLE, "fluent", small=True) == "fluent red apple small"


def test_make_prompt_is_deterministic(emoji_set):
  def prompts(seed):
    rng = np.random.default_rng(seed)
    return [make_prompt(rng, emoji, "noto", "white", True) for emoji in emoji_set.emoji[:50]]

  assert prompts(3) == prompts(3) != prompts(4)


@pytest.mark.parametrize("background, small", [("white", False), ("white", True), ("pink", False), ("pink", True)])
def test_rates(background, small):
  rng = np.random.default_rng(0)
  num = 4000
  prompts = [make_prompt(rng, APPLE, "twemoji", background, small) for _ in range(num)]
  assert all(normalize_prompt(prompt) == prompt for prompt in prompts)
  assert all(prompt.endswith(" small") == small for prompt in prompts)
  ending = f" on {background} background" + (" small" if small else "")
  named = [prompt.endswith(ending) for prompt in prompts]
  subjects = [prompt.removesuffix(ending).removesuffix(" small").removeprefix("twemoji ") for prompt in prompts]

  def close(found, rate):  # five standard deviations
    return abs(np.mean(found) - rate) < 5 * np.sqrt(0.25 / num)

  assert all(named) if background == "pink" else close(named, 0.5)
  assert close([prompt.startswith("twemoji ") for prompt in prompts], 0.7)
  assert close([subject == "red apple" for subject in subjects], 0.75)
  with_tags = [subject for subject in subjects if subject.startswith("red apple ")]
  assert abs(len(with_tags) / num - 0.15) < 0.03
  for subject in with_tags:
    tags = subject.split()[2:]
    assert 1 <= len(tags) <= 2 and len(set(tags)) == len(tags) and set(tags) <= set(APPLE.tags)
  tags_only = [subject.split() for subject in subjects if not subject.startswith("red apple")]
  assert abs(len(tags_only) / num - 0.10) < 0.03
  assert {len(tags) for tags in tags_only} == {1, 2, 3} and set(sum(tags_only, [])) == set(APPLE.tags)


def test_extreme_rates():
  rng = np.random.default_rng(0)
  silent = PromptRates(style=0.0, label=1.0, label_and_tags=0.0, tags=0.0, white_background=0.0)
  assert {make_prompt(rng, APPLE, "noto", rates=silent) for _ in range(50)} == {"red apple"}
  tags = PromptRates(label=0.0, label_and_tags=0.0, tags=1.0)
  assert all("red apple" in make_prompt(rng, UNTAGGED, "noto", rates=tags) for _ in range(50))


def test_bad_arguments_are_errors():
  with pytest.raises(ValueError, match="must sum to 1, we instead got 1.1"):
    PromptRates(label=0.85)
  with pytest.raises(ValueError, match="must be probabilities"):
    PromptRates(style=1.5)
  rng = np.random.default_rng(0)
  with pytest.raises(ValueError, match="background must be one of .* we instead got 'cyan'"):
    make_prompt(rng, APPLE, STYLES[0], "cyan")
  with pytest.raises(ValueError, match="style must be one of .* we instead got 'apple'"):
    canonical_prompt(APPLE, "apple", next(iter(BACKGROUNDS)))


def test_parsing_is_the_inverse_of_the_canonical_prompt(emoji_set):
  """Every label is combined with every attribute at some point; labels that name colours and sizes keep their words."""
  for number, emoji in enumerate(emoji_set.emoji):
    style = (None, *STYLES)[number % 4]
    background, small = list(BACKGROUNDS)[number % 10], number % 3 == 0
    expected = (normalize_prompt(emoji.label), style, background, small)
    assert parse_prompt(canonical_prompt(emoji, style, background, small)) == expected


def test_a_prompt_of_attributes_alone_is_its_own_subject():
  assert parse_prompt("noto").subject == "noto"
  assert parse_prompt("on blue background") == ("on blue background", None, "blue", False)
  assert parse_prompt("small red heart").small is False
