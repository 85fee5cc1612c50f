"""The spelling of prompts, shared by texts of training and of users."""

import re
import unicodedata

ARTICLES = frozenset({"a", "an", "the"})

_WORD = re.compile(r"[^\W_]+(?:[-'][^\W_]+)*")  # inner hyphens and apostrophes belong to the word
_APOSTROPHES = str.maketrans("\u2018\u2019\u02bc\u2010\u2011", "'''--")
_ALONE = re.compile(r"(?<!\S)([#*&])(?!\S)")
_SPOKEN = {"#": "hash", "*": "asterisk", "&": "and"}  # the first two are captions of keycaps
_SPELLING = {"grey": "gray"}


def normalize_prompt(text: str) -> str:
  """The common spelling of training and user texts. Idempotent.

  Lower-case; accents, punctuation and symbols removed, apart from hyphens and apostrophes inside words; articles
  dropped; "grey" spelled "gray"; single spaces.

  >>> normalize_prompt("Two stars, and a red heart on the GREY background!")
  'two stars and red heart on gray background'
  """
  # Decompose before and after lower-casing: each can produce characters that the other one changes.
  text = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text.translate(_APOSTROPHES)).lower())
  text = "".join(character for character in text if not unicodedata.combining(character)).translate(_APOSTROPHES)
  text = _ALONE.sub(lambda match: _SPOKEN[match[1]], text)
  found: list[str] = _WORD.findall(text)
  words = (_SPELLING.get(word, word) for word in found)
  return " ".join(word for word in words if word not in ARTICLES)
