"""Requests: the content of a caption, without its wording.

A request has one or two phrases ("two small cats"), an optional relation between two single objects, and an optional
background and material. Its task is named as in GenEval (Ghosh et al. 2023, arXiv:2310.11513).
"""

from __future__ import annotations

import dataclasses

from jaxspec.evaluation.scenes.layouts import RELATIONS
from jaxspec.evaluation.scenes.world import (
  BACKGROUNDS,
  COLOURS,
  FLAT,
  GLYPHS,
  MATERIALS,
  MOST_OBJECTS,
  NOUNS,
  SIZES,
  clashes,
)

TASKS = ("single_object", "two_objects", "counting", "colours", "position", "colour_attribution")
SAID_MATERIALS = tuple(material for material in MATERIALS if material != FLAT)  # no caption demands a flat background
LEAST_SOME = 2  # fewest objects of "some"; the upper limit is the rest of MOST_OBJECTS


@dataclasses.dataclass(frozen=True)
class Phrase:
  """Objects of one noun.

  Attributes:
    noun: a name in ``NOUNS``.
    number: one to four, or None for "some".
    colour: a name in ``COLOURS`` for glyphs, or None for any.
    size: a name in ``SIZES``, or None for any.
  Raises:
    ValueError: if there are no such objects.
  """

  noun: str
  number: int | None = 1
  colour: str | None = None
  size: str | None = None

  def __post_init__(self):
    if self.noun not in NOUNS:
      raise ValueError(f"Must have a noun among {NOUNS}, we instead got {self.noun!r}")
    if self.number is not None and not 1 <= self.number <= MOST_OBJECTS:
      raise ValueError(f"Must have one to {MOST_OBJECTS} objects, we instead got {self.number}")
    if self.colour is not None and self.colour not in COLOURS:
      raise ValueError(f"Must have a colour among {tuple(COLOURS)}, we instead got {self.colour!r}")
    if self.colour is not None and self.noun not in GLYPHS:
      raise ValueError(f"Must have a colour for {GLYPHS} only, we instead got {self.colour} for {self.noun!r}")
    if self.size is not None and self.size not in SIZES:
      raise ValueError(f"Must have a size among {tuple(SIZES)}, we instead got {self.size!r}")


@dataclasses.dataclass(frozen=True)
class Request:
  """Content of a caption.

  Attributes:
    phrases: one or two, of different nouns, with at most four objects.
    relation: of the first object to the second, a name in ``RELATIONS``; None for any.
    background: a name in ``BACKGROUNDS``, or None for any.
    material: a name in ``MATERIALS`` other than ``FLAT``, or None for any.
  Raises:
    ValueError: if no scene could satisfy it.
  """

  phrases: tuple[Phrase, ...]
  relation: str | None = None
  background: str | None = None
  material: str | None = None

  def __post_init__(self):
    if self.material is not None and self.material not in SAID_MATERIALS:
      raise ValueError(f"Must have a material among {SAID_MATERIALS}, we instead got {self.material!r}")
    nouns = [phrase.noun for phrase in self.phrases]
    if len(nouns) not in (1, 2) or len(set(nouns)) < len(nouns):
      raise ValueError(f"Must have one noun or two different ones, we instead got {nouns}")
    least = sum(LEAST_SOME if phrase.number is None else phrase.number for phrase in self.phrases)
    if least > MOST_OBJECTS:
      raise ValueError(f"Must have at most {MOST_OBJECTS} objects, we instead got {least}")
    if sum(phrase.number is None for phrase in self.phrases) > 1:
      raise ValueError("Must have at most one open number, we instead got two")
    if self.relation is not None:
      if self.relation not in RELATIONS:
        raise ValueError(f"Must have a relation among {RELATIONS}, we instead got {self.relation!r}")
      if [phrase.number for phrase in self.phrases] != [1, 1]:
        raise ValueError("Must have a relation between two single objects, we instead got other numbers")
    if self.background is not None:
      if self.background not in BACKGROUNDS:
        raise ValueError(f"Must have a background among {tuple(BACKGROUNDS)}, we instead got {self.background!r}")
    if not self.backgrounds:
      raise ValueError(
        f"Must have objects that can be seen on their background, we instead got "
        f"{', '.join(' '.join(filter(None, (p.colour, p.noun))) for p in self.phrases)} on {self.background or 'any'}"
      )

  @property
  def task(self) -> str:
    """A name in ``TASKS``."""
    if self.relation is not None:
      return "position"
    if any(phrase.number != 1 for phrase in self.phrases):
      return "counting"
    coloured = sum(phrase.colour is not None for phrase in self.phrases)
    if len(self.phrases) == 2:
      return "colour_attribution" if coloured == 2 else "two_objects"
    return "colours" if coloured else "single_object"

  @property
  def backgrounds(self) -> tuple[str, ...]:
    """Backgrounds that the request allows and on which its objects can be seen."""
    return tuple(
      name
      for name in BACKGROUNDS
      if self.background in (None, name) and not any(clashes(phrase.noun, phrase.colour, name) for phrase in self.phrases)
    )

  def numbers(self, phrase: Phrase) -> tuple[int, ...]:
    """Numbers of objects that a phrase of this request allows."""
    if phrase.number is not None:
      return (phrase.number,)
    others = sum(other.number for other in self.phrases if other.number is not None)
    return tuple(range(LEAST_SOME, MOST_OBJECTS - others + 1))
