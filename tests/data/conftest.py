"""The packed emoji set, decoded once for all data tests."""

import pytest

from jaxspec.data import EmojiSet, load_emoji


@pytest.fixture(scope="session")
def emoji_set() -> EmojiSet:
  return load_emoji()
