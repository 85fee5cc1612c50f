"""Captions state the demands of requests, and are parsed to the same request."""

import numpy as np
import pytest

from jaxspec.evaluation.scenes import SPLITS, TASKS, Phrase, Request, caption_of, parse, sample_request, unknown_words
from jaxspec.evaluation.scenes.captions import plural, vocabulary
from jaxspec.evaluation.scenes.held_out import COLOUR_GLYPHS, partners, reasons
from jaxspec.evaluation.scenes.sampling import HELD_OUT_TASKS
from jaxspec.evaluation.scenes.world import NOUNS


@pytest.mark.parametrize("split", SPLITS)
def test_captions_parse_back_to_their_request(split):
  generator = np.random.default_rng(1)
  for task in HELD_OUT_TASKS if split == "held_out" else TASKS:
    for _ in range(150):
      request = sample_request(generator, task, split)
      assert request.task == task
      assert parse(caption_of(request)) == request
      caption = caption_of(request, generator)
      assert parse(caption) == request
      assert parse(caption.upper() + "!") == request


@pytest.mark.parametrize(
  "caption, request_",
  [
    ("a cat", Request((Phrase("cat"),))),
    ("one cat", Request((Phrase("cat"),))),
    ("two stars", Request((Phrase("star", 2),))),
    ("some frogs", Request((Phrase("frog", None),))),
    ("cats", Request((Phrase("cat", None),))),
    ("a few fish on grey", Request((Phrase("fish", None),), background="gray")),
    ("a small key", Request((Phrase("key", size="small"),))),
    ("a red heart and a blue star", Request((Phrase("heart", 1, "red"), Phrase("star", 1, "blue")))),
    ("a cat left of a tree on a yellow background", None),
    (
      "On a white background, a cat is to the left of a big tree.",
      Request((Phrase("cat"), Phrase("tree", size="large")), "left", "white"),
    ),
    ("there is a dog under an apple", Request((Phrase("dog"), Phrase("apple")), "below")),
    ("3 little black hearts against a pink background", Request((Phrase("heart", 3, "black", "small"),), background="pink")),
  ],
)
def test_examples_of_the_grammar(caption, request_):
  if request_ is None:
    with pytest.raises(ValueError, match="can be seen"):
      parse(caption)
  else:
    assert parse(caption) == request_


@pytest.mark.parametrize(
  "caption, message",
  [
    ("a zebra", "'zebra'.*cat, dog"),
    ("five cats", "'five'"),
    ("", "too early"),
    ("a cat and", "too early"),
    ("a cat is", "too early"),
    ("a cat left", "'left'"),
    ("a cat on red", "'red'"),
    ("a cat on blue on blue", "'on'"),
    ("on blue a cat on white", "'on'"),
    ("two cats two", "'two'"),
    ("a cat and a dog and a pig", "'and'"),
    ("a red cat", "colour"),
    ("a cat and a cat", "different"),
    ("four cats and a dog", "at most 4"),
    ("some cats and some dogs", "open number"),
    ("a cat left of two dogs", "single objects"),
    ("a black heart on black", "can be seen"),
  ],
)
def test_other_captions_are_refused(caption, message):
  with pytest.raises(ValueError, match=message):
    parse(caption)


def test_unknown_words_are_named_in_order():
  assert unknown_words("A zebra and a red unicorn") == ("zebra", "unicorn")
  assert unknown_words("two cacti on a pink background") == ()
  assert "the" not in vocabulary()


def test_training_has_no_held_out_combination_and_held_out_always_has_one():
  generator = np.random.default_rng(2)
  seen = set()
  for task in TASKS:
    for _ in range(300):
      assert not reasons(sample_request(generator, task, "train"))
  for task in HELD_OUT_TASKS:
    for _ in range(100):
      found = reasons(sample_request(generator, task, "held_out"))
      assert found
      seen |= found
  assert seen == {"pair", "colour", "side"}
  with pytest.raises(ValueError, match="held-out"):
    sample_request(generator, "single_object", "held_out")


def test_held_out_sides_follow_the_meaning_of_a_relation():
  assert reasons(parse("a dog left of a tree")) == {"side"}
  assert reasons(parse("a tree right of a dog")) == {"side"}
  assert not reasons(parse("a dog right of a tree"))


def test_every_noun_keeps_most_partners():
  for noun in NOUNS:
    assert len(partners(noun, False)) >= 20
  assert len(COLOUR_GLYPHS) == len({glyph for _, glyph in COLOUR_GLYPHS}) == 4
  assert len({plural(noun) for noun in NOUNS}) == len(NOUNS)
