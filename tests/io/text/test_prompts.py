"""Prompts: the common spelling."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxspec.io.text import normalize_prompt


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
