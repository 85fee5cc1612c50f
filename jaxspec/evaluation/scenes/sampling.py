"""Random requests, scenes and images, each identified by a seed and an index.

A request is drawn from a task, its caption from the paraphrases, its scene from the distribution of the painter:

1. Background: uniform over those that the request allows.
2. Style: one of the three for all sprites of an image, uniform. Number of "some": uniform.
3. Size and, for glyphs, colour: one per phrase, uniform over what the request, the background and training allow.
4. Layout: uniform over all legal ones (`jaxspec.evaluation.scenes.layouts`), among them only those with the requested
   relation.
5. Material: uniform over those of the world, unless the request states one.

``materials`` are those of the world (`jaxspec.evaluation.scenes.world`): the flat one where none are given. Both worlds have
the same grammar and the same objects; their captions differ.

`freedom_nats` is the entropy of this distribution given the caption.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence

import numpy as np

from jaxspec.evaluation.scenes import held_out
from jaxspec.evaluation.scenes.captions import caption_of, parse
from jaxspec.evaluation.scenes.layouts import OPPOSITES, RELATIONS, count_layouts, draw_layout
from jaxspec.evaluation.scenes.painter import paint
from jaxspec.evaluation.scenes.requests import SAID_MATERIALS, TASKS, Phrase, Request
from jaxspec.evaluation.scenes.world import (
  FLAT_WORLD,
  GLYPHS,
  NOUNS,
  PLAIN,
  SIZES,
  SPRITES,
  STYLES,
  Look,
  Object,
  Scene,
  clashes,
)

SPLITS = ("train", "validation", "held_out")  # validation: as train, other images; held_out: combinations not in train
HELD_OUT_TASKS = ("two_objects", "counting", "colours", "position", "colour_attribution")

# Shares of the tasks in `draw`.
_TASK_SHARES = {
  "single_object": 0.20,
  "two_objects": 0.20,
  "counting": 0.20,
  "colours": 0.10,
  "position": 0.20,
  "colour_attribution": 0.10,
}
# Shares of requests that state an optional attribute.
_SAY_BACKGROUND = 0.30
_SAY_MATERIAL = 0.30  # in a world with several
_SAY_SIZE = 0.12  # of phrases
_SAY_COLOUR = 0.30  # of glyphs, in tasks that are not about colours
_SAY_SOME = 0.25  # of countings
_COUNT_BESIDE = 0.25  # of countings: a phrase for the other noun too


def draw(
  seed: int, index: int, split: str = "train", materials: Sequence[str] = FLAT_WORLD
) -> tuple[str, Scene, np.ndarray]:
  """Caption, scene and image ``[96, 96, 3]`` uint8 with an index; the same in every process.

  Args:
    seed: from 0. Splits with the same seed have different images.
    index: from 0.
    split: a name in ``SPLITS``.
  """
  caption, scene = draw_scene(seed, index, split, materials)
  return caption, scene, paint(scene, np.random.default_rng((seed, SPLITS.index(split), index, 1)))


def draw_scene(seed: int, index: int, split: str = "train", materials: Sequence[str] = FLAT_WORLD) -> tuple[str, Scene]:
  """`draw` without the image."""
  if split not in SPLITS:
    raise ValueError(f"Must have a split among {SPLITS}, we instead got {split!r}")
  if seed < 0 or index < 0:
    raise ValueError(f"Must have a seed and a number from 0, we instead got {seed} and {index}")
  generator = np.random.default_rng((seed, SPLITS.index(split), index))
  request = sample_request(generator, _draw_task(generator, split), split, materials)
  caption = caption_of(request, generator)
  return caption, sample_scene(generator, request, materials)


def sample_request(
  generator: np.random.Generator, task: str, split: str = "train", materials: Sequence[str] = FLAT_WORLD
) -> Request:
  """A random request of one task.

  Args:
    generator: the source of chance.
    task: a name in ``TASKS``.
    split: a name in ``SPLITS``. Requests of ``held_out`` have a combination that is not in training, all others have none.
  Raises:
    ValueError: for an unknown task or split, or held-out single objects, which do not exist.
  """
  if task not in TASKS or split not in SPLITS:
    raise ValueError(f"Must have a task among {TASKS} and a split among {SPLITS}, we instead got {task!r} and {split!r}")
  said = tuple(name for name in SAID_MATERIALS if name in materials)
  wanted = split == "held_out"
  if wanted and task not in HELD_OUT_TASKS:
    raise ValueError(f"Must have a task among {HELD_OUT_TASKS} for held-out requests, we instead got {task!r}")
  while True:
    phrases, relation = _MAKERS[task](generator, wanted)
    phrases = tuple(_with_size(generator, phrase) for phrase in phrases)
    request = Request(phrases, relation)
    if bool(held_out.reasons(request)) != wanted:
      continue
    if generator.random() < _SAY_BACKGROUND:
      request = dataclasses.replace(request, background=_one_of(generator, request.backgrounds))
    if len(materials) > 1 and said and generator.random() < _SAY_MATERIAL:
      request = dataclasses.replace(request, material=_one_of(generator, said))
    return request


def sample_scene(generator: np.random.Generator, request: Request | str, materials: Sequence[str] = FLAT_WORLD) -> Scene:
  """A random scene that satisfies a request (or a caption), from the distribution of the painter.

  Raises:
    ValueError: for a caption that cannot be parsed.
  """
  request = parse(request) if isinstance(request, str) else request
  background = _one_of(generator, request.backgrounds)
  style = _one_of(generator, STYLES)
  kinds, sizes = [], []
  for phrase in request.phrases:
    number = _one_of(generator, request.numbers(phrase))
    size = phrase.size or _one_of(generator, tuple(SIZES))
    colour = None
    if phrase.noun in GLYPHS:
      colour = phrase.colour or _one_of(generator, _colours(phrase.noun, background))
    kinds += [Look(phrase.noun, PLAIN if phrase.noun in GLYPHS else style, colour)] * number
    sizes += [size] * number
  layout = draw_layout(generator, tuple(sizes), request.relation)
  objects = [
    Object(noun, style, colour, size, row, column)
    for (noun, style, colour), size, (row, column) in zip(kinds, sizes, layout, strict=True)
  ]
  material = request.material or _one_of(generator, materials)
  return Scene(background, tuple(sorted(objects, key=lambda one: (one.row, one.column))), material)


def freedom_nats(caption: Request | str, materials: Sequence[str] = FLAT_WORLD) -> float:
  """Entropy in nats of the scenes that the painter paints for a caption (or a request); exact, textures not counted.

  Raises:
    ValueError: for a caption that cannot be parsed.
  """
  request = parse(caption) if isinstance(caption, str) else caption
  nats = math.log(len(request.backgrounds)) + (math.log(len(materials)) if request.material is None else 0.0)
  if any(phrase.noun in SPRITES for phrase in request.phrases):
    nats += math.log(len(STYLES))
  for phrase in request.phrases:
    if phrase.noun in GLYPHS and phrase.colour is None:
      options = [len(_colours(phrase.noun, background)) for background in request.backgrounds]
      nats += sum(map(math.log, options)) / len(options)
  # Number and size of each phrase, then layouts; swapping equal objects leaves the image unchanged.
  options = [
    [(number, size) for number in request.numbers(phrase) for size in ((phrase.size,) if phrase.size else SIZES)]
    for phrase in request.phrases
  ]
  outcomes = list(itertools.product(*options))
  nats += math.log(len(outcomes))
  for outcome in outcomes:
    sizes = tuple(size for number, size in outcome for _ in range(number))
    same = math.prod(math.factorial(number) for number, _ in outcome)
    nats += math.log(count_layouts(sizes, request.relation) / same) / len(outcomes)
  return nats


def _colours(glyph: str, background: str) -> tuple[str, ...]:
  """Colours of a glyph with unconstrained colour: those of training that do not clash."""
  return tuple(colour for colour in held_out.train_colours(glyph) if not clashes(glyph, colour, background))


def _one_of(generator: np.random.Generator, options):
  return options[int(generator.integers(len(options)))]


def _draw_task(generator: np.random.Generator, split: str) -> str:
  tasks = HELD_OUT_TASKS if split == "held_out" else TASKS
  shares = np.cumsum([_TASK_SHARES[task] for task in tasks])
  return tasks[int(np.searchsorted(shares, generator.random() * shares[-1], side="right"))]


def _with_size(generator: np.random.Generator, phrase: Phrase) -> Phrase:
  if generator.random() >= _SAY_SIZE:
    return phrase
  return Phrase(phrase.noun, phrase.number, phrase.colour, _one_of(generator, tuple(SIZES)))


def _with_colour(generator: np.random.Generator, noun: str, number: int | None = 1) -> Phrase:
  if noun not in GLYPHS or generator.random() >= _SAY_COLOUR:
    return Phrase(noun, number)
  return Phrase(noun, number, _one_of(generator, held_out.train_colours(noun)))


def _nouns(generator: np.random.Generator, wanted: bool) -> tuple[str, str]:
  """Two nouns that are a held-out pair, or are not."""
  while True:
    first = _one_of(generator, NOUNS)
    if others := held_out.partners(first, wanted):
      return first, _one_of(generator, others)


def _single_object(generator, wanted):
  del wanted
  return [Phrase(_one_of(generator, NOUNS))], None


def _two_objects(generator, wanted):
  phrases = [_with_colour(generator, noun) for noun in _nouns(generator, wanted)]
  if all(phrase.colour for phrase in phrases):
    phrases[1] = Phrase(phrases[1].noun)  # with both colours it would be colour attribution
  return phrases, None


def _counting(generator, wanted):
  number = None if generator.random() < _SAY_SOME else int(generator.integers(2, 5))
  if not wanted and (number == 4 or generator.random() >= _COUNT_BESIDE):
    return [_with_colour(generator, _one_of(generator, NOUNS), number)], None
  number = 3 if number == 4 else number
  first, second = _nouns(generator, wanted)
  phrases = [_with_colour(generator, first, number), _with_colour(generator, second)]
  return (phrases if generator.random() < 0.5 else phrases[::-1]), None


def _colours_task(generator, wanted):
  if wanted:
    colour, noun = _one_of(generator, sorted(held_out.COLOUR_GLYPHS))
  else:
    noun = _one_of(generator, GLYPHS)
    colour = _one_of(generator, held_out.train_colours(noun))
  return [Phrase(noun, 1, colour)], None


def _position(generator, wanted):
  relation = _one_of(generator, RELATIONS)
  if wanted and generator.random() < 0.5:
    side = relation if generator.random() < 0.5 else OPPOSITES[relation]
    first = _one_of(generator, held_out.SIDES[side])
    second = _one_of(generator, held_out.partners(first, False))
    nouns = (first, second) if side == relation else (second, first)
  else:
    nouns = _nouns(generator, wanted)
  return [_with_colour(generator, noun) for noun in nouns], relation


def _colour_attribution(generator, wanted):
  first = _one_of(generator, GLYPHS)
  if wanted and generator.random() < 0.5:
    first = _one_of(generator, sorted(held_out.GLYPH_PAIR))
    second = next(iter(held_out.GLYPH_PAIR - {first}))
    colours = [held_out.train_colours(noun) for noun in (first, second)]
  else:
    second = _one_of(generator, [noun for noun in GLYPHS if noun in held_out.partners(first, False)])
    colours = [held_out.train_colours(noun) for noun in (first, second)]
    if wanted:  # one of the two has its held-out colour
      number = int(generator.integers(2))
      colours[number] = tuple(colour for colour, noun in held_out.COLOUR_GLYPHS if noun == (first, second)[number])
  while True:
    chosen = [_one_of(generator, options) for options in colours]
    if chosen[0] != chosen[1]:
      return [Phrase(noun, 1, colour) for noun, colour in zip((first, second), chosen, strict=True)], None


_MAKERS = {
  "single_object": _single_object,
  "two_objects": _two_objects,
  "counting": _counting,
  "colours": _colours_task,
  "position": _position,
  "colour_attribution": _colour_attribution,
}
