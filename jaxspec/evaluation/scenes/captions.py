"""Captions: the grammar that turns requests into text and text into requests.

  caption     = [opening] [background] scene [background]
  opening     = "a picture of" | "an image of" | "there is" | "there are"
  scene       = phrase | phrase "and" phrase | phrase ["is"] relation phrase
  phrase      = number [size] [colour] noun
  background  = "on a yellow background" | "against a yellow background" | "on yellow" | "on wood" | "on yellow wood"

Words are compared after `jaxspec.io.text.prompt_spelling.normalize_prompt`: case, punctuation and articles do not matter.
Attributes that the words do not constrain (colour, size, background, material, the number of "some") are unconstrained in
the request too. Style is always unconstrained.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np

from jaxspec.evaluation.scenes.requests import SAID_MATERIALS, Phrase, Request
from jaxspec.evaluation.scenes.world import BACKGROUNDS, COLOURS, GLYPHS, MATERIALS, NOUNS, SIZES
from jaxspec.io.text.prompt_spelling import normalize_prompt

_PLURALS = {"fish": "fish", "strawberry": "strawberries", "cactus": "cacti"}
_NUMBERS = {"one": 1, "two": 2, "three": 3, "four": 4, "1": 1, "2": 2, "3": 3, "4": 4}
_NUMBERS |= {"some": None, "few": None, "several": None}
_NUMBER_WORDS = {1: ("a",), 2: ("two",), 3: ("three",), 4: ("four",), None: ("some", "a few", "several")}
_SIZES = {"large": "large", "big": "large", "small": "small", "little": "small"}
# The first wording of each relation is the plain one.
_RELATIONS = {
  "left": ("left of", "to the left of"),
  "right": ("right of", "to the right of"),
  "above": ("above", "over"),
  "below": ("below", "under"),
}
_OPENINGS = ("a picture of", "an image of")
_LINKS = ("and", "is", "on", "against", "background", "there", "are", "left", "right", "to", "of", "picture", "image")
_PARAPHRASED = 0.3  # probability of a paraphrase, for each part of a caption of `caption_of`


def plural(noun: str) -> str:
  """The noun for several objects."""
  return _PLURALS.get(noun, noun + "s")


def caption_of(request: Request, generator: np.random.Generator | None = None) -> str:
  """A caption of a request, such that ``parse(caption) == request``.

  Args:
    request: content of the caption.
    generator: chooses among paraphrases; None takes the plain wording.
  """
  phrases = [_phrase_text(phrase, generator) for phrase in request.phrases]
  opening = _choose(generator, "", _OPENINGS)
  if request.relation is not None:
    relation = _choose(generator, _RELATIONS[request.relation][0], _RELATIONS[request.relation][1:])
    scene = f"{phrases[0]} {relation} {phrases[1]}"
    if not opening and (verb := _choose(generator, "", ("is", "there is"))):
      scene = f"there is {scene}" if verb == "there is" else f"{phrases[0]} is {relation} {phrases[1]}"
  else:
    scene = " and ".join(phrases)
    if not opening and _choose(generator, "", ("there",)):
      opening = "there is" if request.phrases[0].number == 1 else "there are"
  text = f"{opening} {scene}".strip()
  name = request.background
  if request.material is not None:
    return _on_material(text, " ".join(filter(None, (name, request.material))), generator)
  if name is None:
    return text
  where = _choose(generator, "after", ("before", "against", "short"))
  if where == "before":
    return f"on a {name} background {text}"
  endings = {"after": f"on a {name} background", "against": f"against a {name} background", "short": f"on {name}"}
  return f"{text} {endings[where]}"


def _on_material(text: str, material: str, generator: np.random.Generator | None) -> str:
  where = _choose(generator, "after", ("before", "against"))
  if where == "before":
    return f"on {material} {text}"
  return f"{text} {'on' if where == 'after' else 'against'} {material}"


def parse(caption: str) -> Request:
  """The request that a caption states.

  Raises:
    ValueError: if it has an unknown word, does not follow the grammar, or requests an impossible scene.
  """
  if unknown := unknown_words(caption):
    raise ValueError(
      f"Must have words that the model knows, we instead got {', '.join(map(repr, unknown))} in {caption!r}; it knows "
      f"{', '.join(NOUNS)}; the colours {', '.join(COLOURS)} of {', '.join(GLYPHS)}; the backgrounds "
      f"{', '.join(BACKGROUNDS)}; the materials {', '.join(SAID_MATERIALS)}; numbers from one to four, some; small, large; "
      "left of, right of, above, below, and"
    )
  words = normalize_prompt(caption).split()
  try:
    return _parse(words)
  except _GrammarError as error:
    at = f"cannot read on at {words[error.position]!r}" if error.position < len(words) else "it ends too early"
    raise ValueError(
      f"Must have a caption such as 'two cats and a red heart on a blue background', we instead got {caption!r} ({at})"
    ) from None
  except ValueError as error:
    raise ValueError(f"{caption!r}: {error}") from None


def unknown_words(caption: str) -> tuple[str, ...]:
  """Words of a caption that are not in the grammar, in their order."""
  return tuple(word for word in normalize_prompt(caption).split() if word not in vocabulary())


@functools.lru_cache(maxsize=2)
def vocabulary(materials: tuple[str, ...] = MATERIALS) -> frozenset[str]:
  """All words that captions of a world with these materials may have, apart from articles."""
  words = {*NOUNS, *map(plural, NOUNS), *_NUMBERS, *_SIZES, *COLOURS, *BACKGROUNDS, *_LINKS}
  words |= {*materials} & {*SAID_MATERIALS}
  return frozenset(words | {"above", "over", "below", "under"})


def _phrase_text(phrase: Phrase, generator: np.random.Generator | None) -> str:
  size = phrase.size
  if size is not None:
    size = _choose(generator, size, [word for word, meaning in _SIZES.items() if meaning == size and word != size])
  noun = phrase.noun if phrase.number == 1 else plural(phrase.noun)
  rest = " ".join(filter(None, (size, phrase.colour, noun)))
  number = _choose(generator, _NUMBER_WORDS[phrase.number][0], _NUMBER_WORDS[phrase.number][1:])
  if number == "a" and rest[0] in "aeiou":
    number = "an"
  return f"{number} {rest}"


def _choose(generator: np.random.Generator | None, plain: str, others) -> str:
  """The plain wording, or one of the others with the probability ``_PARAPHRASED``."""
  if generator is None or not others or generator.random() >= _PARAPHRASED:
    return plain
  return others[int(generator.integers(len(others)))]


class _GrammarError(Exception):
  def __init__(self, position: int):
    self.position = position


class _Reader:
  """Words with a position."""

  def __init__(self, words: list[str]):
    self.words, self.position = words, 0

  def peek(self, ahead: int = 0) -> str:
    position = self.position + ahead
    return self.words[position] if position < len(self.words) else ""

  def take(self, *expected: str) -> bool:
    """Consumes the next words if they are the expected ones; returns whether they are."""
    found = all(self.peek(ahead) == word for ahead, word in enumerate(expected))
    self.position += len(expected) if found else 0
    return found

  def take_from(self, table: dict):
    """The meaning of the next word; an error if the table lacks it."""
    if self.peek() not in table:
      raise _GrammarError(self.position)
    self.position += 1
    return table[self.words[self.position - 1]]


def _parse(words: list[str]) -> Request:
  reader = _Reader(words)
  where = _parse_background(reader)
  for opening in (("picture", "of"), ("image", "of"), ("there", "is"), ("there", "are")):
    if reader.take(*opening):
      break
  where = where or _parse_background(reader)
  phrases, relation = [_parse_phrase(reader)], None
  if reader.take("and"):
    phrases.append(_parse_phrase(reader))
  else:
    before = reader.position
    said_is = reader.take("is")
    relation = next((name for name, wording in _wordings() if reader.take(*wording)), None)
    if relation is not None:
      phrases.append(_parse_phrase(reader))
    elif said_is and reader.peek() not in ("on", "against"):  # "a cat is on a red background" is read, "a cat is" not
      raise _GrammarError(before + 1)
  if reader.position < len(words):
    if where is not None:
      raise _GrammarError(reader.position)
    where = _parse_background(reader)
  if reader.position < len(words):
    raise _GrammarError(reader.position)
  return Request(tuple(phrases), relation, *(where or (None, None)))


def _parse_background(reader: _Reader) -> tuple[str | None, str | None] | None:
  """Background and material, one of which may be None; None where the next words are about neither."""
  if not (reader.take("on") or reader.take("against")):
    return None
  if reader.peek() in SAID_MATERIALS:
    return None, reader.take_from({name: name for name in SAID_MATERIALS})
  name = reader.take_from({name: name for name in BACKGROUNDS})
  if reader.peek() in SAID_MATERIALS:
    return name, reader.take_from({name: name for name in SAID_MATERIALS})
  reader.take("background")
  return name, None


def _parse_phrase(reader: _Reader) -> Phrase:
  counted = reader.peek() in _NUMBERS
  number = reader.take_from(_NUMBERS) if counted else 1
  size = reader.take_from(_SIZES) if reader.peek() in _SIZES else None
  colour = reader.take_from({name: name for name in COLOURS}) if reader.peek() in COLOURS else None
  is_plural = reader.peek() not in NOUNS
  noun = reader.take_from(_nouns())
  if is_plural and not counted:
    number = None  # "cats"
  return Phrase(noun, number, colour, size)


def _wordings() -> Iterator[tuple[str, list[str]]]:
  """Relations and their wordings, without articles."""
  for name, wordings in _RELATIONS.items():
    for wording in wordings:
      yield name, normalize_prompt(wording).split()


@functools.lru_cache(maxsize=1)
def _nouns() -> dict[str, str]:
  return {**{plural(noun): noun for noun in NOUNS}, **{noun: noun for noun in NOUNS}}


assert set(_SIZES.values()) == set(SIZES)
