"""Combinations that never occur together in a training caption, so that composition is tested and not memory.

- Pairs of nouns: one in eight pairs with a sprite, by hash; and one pair of glyphs.
- Colours of glyphs: one colour of each glyph. If a caption does not constrain the colour, the painter leaves these out too,
  so that no training image shows them.
- Positions: three nouns for each side. "A cat left of a tree" and "a tree right of a cat" both put the cat on the left.

Every noun, colour and relation is frequent in training with other partners.
"""

from __future__ import annotations

import functools
import hashlib

from jaxspec.evaluation.scenes.layouts import OPPOSITES
from jaxspec.evaluation.scenes.requests import Request
from jaxspec.evaluation.scenes.world import COLOURS, GLYPHS, NOUNS

PAIR_MODULUS = 8
GLYPH_PAIR = frozenset({"star", "circle"})

COLOUR_GLYPHS = frozenset({("purple", "heart"), ("green", "star"), ("orange", "circle"), ("blue", "square")})

# The side on which a noun never is in training captions.
SIDES: dict[str, tuple[str, ...]] = {
  "left": ("dog", "mushroom", "square"),
  "right": ("frog", "car", "apple"),
  "above": ("tree", "key", "heart"),
  "below": ("rocket", "panda", "banana"),
}


def is_pair_held_out(one: str, other: str) -> bool:
  """Whether two nouns never occur together in training captions."""
  if one in GLYPHS and other in GLYPHS:
    return frozenset((one, other)) == GLYPH_PAIR
  text = "pair:" + ":".join(sorted((one, other)))
  return int(hashlib.sha256(text.encode()).hexdigest(), 16) % PAIR_MODULUS == 0


@functools.cache
def partners(noun: str, held_out: bool) -> tuple[str, ...]:
  """Nouns that occur with ``noun`` in training captions, or that never do."""
  return tuple(other for other in NOUNS if other != noun and is_pair_held_out(noun, other) == held_out)


@functools.cache
def train_colours(glyph: str) -> tuple[str, ...]:
  """Colours in which training shows a glyph."""
  return tuple(colour for colour in COLOURS if (colour, glyph) not in COLOUR_GLYPHS)


def reasons(request: Request) -> frozenset[str]:
  """The held-out combinations of a request: ``pair``, ``colour``, ``side``; none for training captions."""
  found = {"colour" for phrase in request.phrases if (phrase.colour, phrase.noun) in COLOUR_GLYPHS}
  if len(request.phrases) == 2:
    first, second = (phrase.noun for phrase in request.phrases)
    if is_pair_held_out(first, second):
      found.add("pair")
    if request.relation is not None:
      if first in SIDES[request.relation] or second in SIDES[OPPOSITES[request.relation]]:
        found.add("side")
  return frozenset(found)
