"""Prompts are padded to a few lengths: few programs, the same tokens, and only the last programs are kept."""

import jax
import numpy as np
import pytest

import jaxspec
from jaxspec import pipeline
from jaxspec.models.conditions import Prompt, padded_length
from tests.cli import fake_language


@pytest.fixture(scope="module")
def pipe(tmp_path_factory):
  return jaxspec.load_pipeline(fake_language.make(tmp_path_factory.mktemp("texts")) / "target")


def test_lengths_are_few():
  assert {padded_length(own) for own in range(1, 34)} == {8, 16, 32, 64}
  assert padded_length(8) == 8 and padded_length(9) == 16


def test_eight_lengths_share_a_program_and_draw_the_tokens_of_prompts_without_padding(pipe):
  key = jax.random.key(3)
  for length in range(1, 9):
    encoded = pipe.encode("a" * length)
    assert encoded.condition.tokens.shape == (1, 8) and encoded.condition.longest == length
    padded = pipe(encoded, key=key, max_len=6, method="ar").tokens
    if length in (1, 5):
      bare = Prompt(*(leaf[:, -length:] for leaf in encoded.condition))
      np.testing.assert_array_equal(padded, pipe(bare, key=key, max_len=6, method="ar").tokens)
  program = pipe._program(pipe.decoder("ar"), 6)
  assert program._cache_size() == 3  # eight lengths with padding, two without


def test_only_the_last_programs_are_kept(pipe, monkeypatch):
  monkeypatch.setattr(pipeline, "_KEPT", 3)
  decoder = pipe.decoder("ar")
  programs = [pipe._program(decoder, length) for length in (2, 3, 4)]
  assert pipe._program(decoder, 2) is programs[0]
  pipe._program(decoder, 5)  # the least recently used goes: that of 3 tokens
  assert pipe._program(decoder, 2) is programs[0] and pipe._program(decoder, 4) is programs[2]
  assert pipe._program(decoder, 3) is not programs[1]
