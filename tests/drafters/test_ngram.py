"""Copied drafts: which tokens are found in a prompt, a row and an image, and the exact distribution."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec import methods, testing
from jaxspec.core.constructors import History, from_history
from jaxspec.core.types import Cursor
from jaxspec.drafters.ngram_drafter import NgramLookup, RowAbove
from jaxspec.models.conditions import ClassLabels, Prompt
from jaxspec.testing.drafted import require_draft

MAX_LEN = 12


def _draft(function, rows, prompts=None):
  """The drafts of rows of committed tokens, as lists."""
  tokens = np.full((len(rows), MAX_LEN), 7, np.int32)  # what is not committed must not be read
  for row, committed in enumerate(rows):
    tokens[row, : len(committed)] = committed
  condition = ClassLabels(jnp.zeros(len(rows), jnp.int32))
  if prompts is not None:
    size = max(map(len, prompts))
    mask = np.asarray([[index < len(prompt) for index in range(size)] for prompt in prompts])
    condition = Prompt(np.asarray([[*prompt, *[9] * (size - len(prompt))] for prompt in prompts], np.int32), mask)
  length = jnp.asarray([len(committed) for committed in rows], jnp.int32)
  cursor = Cursor(jnp.asarray([committed[-1] for committed in rows], jnp.int32), length, length > 0, jnp.int32(0))
  history = History(condition, jnp.asarray(tokens))
  draft = jax.jit(lambda cursor, history: function((), None, cursor, history))(cursor, history)
  require_draft(draft, from_history(function, window=function.window), cursor)
  return [list(map(int, row[:number])) for row, number in zip(np.asarray(draft.tokens), np.asarray(draft.num_drafted))]


def test_the_longest_run_is_continued_and_of_these_the_latest():
  lookup = NgramLookup(window=3, vocab_size=10, longest=3, shortest=2)
  rows = [
    [1, 2, 3, 4, 5, 1, 2],  # once
    [1, 2, 3, 1, 2, 4, 1, 2],  # twice: the latest
    [0, 1, 2, 3, 5, 1, 2, 4, 0, 1, 2],  # the longest, although earlier
    [1, 2, 3, 4, 2],  # one token alone is too short
    [1, 1, 1, 1],  # runs may overlap: what is known of the continuation
    [4],
  ]
  assert _draft(lookup, rows) == [[3, 4, 5], [4, 1, 2], [3, 5, 1], [], [1], []]
  short = NgramLookup(window=3, vocab_size=10, longest=3, shortest=1)
  assert _draft(short, [rows[3], [4, 5]]) == [[3, 4, 2], []]


def test_a_prompt_is_searched_too_and_its_padding_is_not():
  lookup = NgramLookup(window=4, vocab_size=10, longest=4, shortest=2)
  prompts = [[1, 2, 3, 4], [5, 1], [9, 9, 2]]
  assert _draft(lookup, [[1, 2], [6, 5, 1], [8, 9, 9]], prompts) == [[3, 4, 1, 2], [6, 5, 1], [2, 8, 9, 9]]


def test_the_prompt_of_an_image_is_not_searched():
  """Its ids are those of another vocabulary."""
  lookup = NgramLookup(window=2, vocab_size=10, longest=4, shortest=2, reads_prompt=False)
  assert _draft(lookup, [[1, 2], [6, 5, 6, 5]], [[1, 2, 3], [6, 5, 9, 9]]) == [[], [6, 5]]
  of = lambda toy: methods.Ngram(copy="ngram").build(toy.target, None, toy.context).drafter.draft_fn
  assert of(testing.toys.prompt_toy()).reads_prompt and not of(testing.toys.grid_toy()).reads_prompt


def test_the_row_above_is_copied():
  above = RowAbove(window=2, vocab_size=10, columns=3)
  assert _draft(above, [[1, 2], [1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4, 5]]) == [[], [1, 2], [2, 3], [3, 4]]
  assert _draft(RowAbove(window=5, vocab_size=10, columns=3), [[1, 2, 3, 4]]) == [[2, 3, 4]]


@pytest.mark.slow
def test_exact():
  assert testing.check_exact(methods.Ngram(window=2, shortest=1, copy="ngram"), targets=("prompt",)) > 1e-4


@pytest.mark.slow
def test_exact_in_an_image():
  assert testing.check_exact(methods.Ngram(window=2), targets=("grid",)) > 1e-4


def test_settings_that_do_not_fit_are_errors():
  with pytest.raises(ValueError, match="Must have shortest of at most longest, 2, we instead got 3"):
    methods.Ngram(longest=2, shortest=3)
  toy = testing.toys.prompt_toy()
  with pytest.raises(ValueError, match="Must have a grid"):
    methods.Ngram(copy="above").build(toy.target, None, toy.context)
