"""Prompts: the texts that describe images in training, and the spelling shared by training and user texts.

Canonical form: ``{style} {label} on {colour} background small``, where the style, the background and "small" may be missing.
Training prompts vary around this form at the rates of ``PromptRates``. ``normalize_prompt`` brings user texts to it.
"""

import re
import unicodedata
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from jaxspec.data.emoji import STYLES, Emoji
from jaxspec.data.paint import BACKGROUNDS

ARTICLES = frozenset({"a", "an", "the"})

_WORD = re.compile(r"[^\W_]+(?:[-'][^\W_]+)*")  # inner hyphens and apostrophes belong to the word
_APOSTROPHES = str.maketrans("\u2018\u2019\u02bc\u2010\u2011", "'''--")
_ALONE = re.compile(r"(?<!\S)([#*&])(?!\S)")
_SPOKEN = {"#": "hash", "*": "asterisk", "&": "and"}  # the first two are captions of keycaps
_SPELLING = {"grey": "gray"}


@dataclass(frozen=True)
class PromptRates:
  """How often each part appears in a training prompt; parts that are not listed always appear.

  Attributes:
    style: the style name. Left out in 30 % of the prompts, so that users need not name one.
    label: the label alone.
    label_and_tags: the label and one or two tags.
    tags: one to three tags instead of the label, so that near synonyms work.
    white_background: "on white background" when the background is white; other backgrounds are always named.
  """

  style: float = 0.70
  label: float = 0.75
  label_and_tags: float = 0.15
  tags: float = 0.10
  white_background: float = 0.50

  def __post_init__(self):
    values = (self.style, self.label, self.label_and_tags, self.tags, self.white_background)
    if not all(0 <= value <= 1 for value in values):
      raise ValueError(f"PromptRates must be probabilities, we instead got {self}")
    total = self.label + self.label_and_tags + self.tags
    if abs(total - 1) > 1e-9:
      raise ValueError(f"label, label_and_tags and tags must sum to 1, we instead got {total}")


DEFAULT_RATES = PromptRates()


def normalize_prompt(text: str) -> str:
  """The common spelling of training and user texts. Idempotent.

  Lower-case; accents, punctuation and symbols removed, apart from hyphens and apostrophes inside words; articles
  dropped; "grey" spelled "gray"; single spaces.

  >>> normalize_prompt("Twemoji, a red apple on a blue background, small!")
  'twemoji red apple on blue background small'
  """
  # Decompose before and after lower-casing: each can produce characters that the other one changes.
  text = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text.translate(_APOSTROPHES)).lower())
  text = "".join(character for character in text if not unicodedata.combining(character)).translate(_APOSTROPHES)
  text = _ALONE.sub(lambda match: _SPOKEN[match[1]], text)
  words = (_SPELLING.get(word, word) for word in _WORD.findall(text))
  return " ".join(word for word in words if word not in ARTICLES)


def canonical_prompt(emoji: Emoji, style: str | None = None, background: str = "white", small: bool = False) -> str:
  """The plain prompt of an image, for evaluation: label, style if given, background unless white.

  Args:
    emoji: the concept.
    style: a name in ``STYLES``, or None to leave it open.
    background: a name in ``BACKGROUNDS``.
    small: whether the image is shown small.

  Returns:
    A normalized prompt.
  """
  return _join(style, emoji.label, background if background != "white" else None, small)


def make_prompt(
  rng: np.random.Generator,
  emoji: Emoji,
  style: str,
  background: str = "white",
  small: bool = False,
  rates: PromptRates = DEFAULT_RATES,
) -> str:
  """A random training prompt of an image.

  Args:
    rng: numpy generator; the only source of chance.
    emoji: the concept.
    style: a name in ``STYLES``.
    background: a name in ``BACKGROUNDS``.
    small: whether the image is shown small.
    rates: how often each part appears.

  Returns:
    A normalized prompt.
  """
  say_style, kind, say_white = rng.random(3)
  subject = emoji.label
  if kind >= rates.label and emoji.tags:
    with_label = kind < rates.label + rates.label_and_tags
    most = 2 if with_label else 3
    number = min(int(rng.integers(1, most + 1)), len(emoji.tags))
    tags = " ".join(emoji.tags[i] for i in rng.permutation(len(emoji.tags))[:number])
    # A tag may consist of symbols only, of which nothing is left; the label never does.
    if with_label:
      subject = f"{emoji.label} {tags}"
    elif normalize_prompt(tags):
      subject = tags
  named = background != "white" or say_white < rates.white_background
  return _join(style if say_style < rates.style else None, subject, background if named else None, small)


class PromptParts(NamedTuple):
  """The parts of a prompt.

  Attributes:
    subject: what is to be drawn, normalized.
    style: a name in ``STYLES``, or None if the prompt leaves it open.
    background: a name in ``BACKGROUNDS``; white if none is named, as in training.
    small: whether the image is to be small.
  """

  subject: str
  style: str | None
  background: str
  small: bool


def parse_prompt(text: str) -> PromptParts:
  """Reads a prompt in the canonical form of the module docstring; the inverse of ``canonical_prompt``.

  Attributes are read at their canonical positions only: the style at the beginning, the background and "small" at the end.
  If a text names nothing but attributes, the whole text is the subject.

  >>> parse_prompt("Twemoji, a red apple on a blue background, small")
  PromptParts(subject='red apple', style='twemoji', background='blue', small=True)
  """
  words = normalize_prompt(text).split()
  whole, style, background, small = words, None, "white", False
  if words and words[0] in STYLES:
    style, words = words[0], words[1:]
  if words and words[-1] == "small":
    small, words = True, words[:-1]
  if len(words) >= 3 and words[-3] == "on" and words[-2] in BACKGROUNDS and words[-1] == "background":
    background, words = words[-2], words[:-3]
  return PromptParts(" ".join(words or whole), style, background, small)


def _join(style: str | None, subject: str, background: str | None, small: bool) -> str:
  if style is not None and style not in STYLES:
    raise ValueError(f"style must be one of {STYLES}, we instead got {style!r}")
  if background is not None and background not in BACKGROUNDS:
    raise ValueError(f"background must be one of {tuple(BACKGROUNDS)}, we instead got {background!r}")
  parts = [style or "", subject, f"on {background} background" if background else "", "small" if small else ""]
  return normalize_prompt(" ".join(parts))
