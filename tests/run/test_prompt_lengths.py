"""Prompts are padded to a few lengths: few programs, the same tokens, and eviction of old programs."""

import jax
import numpy as np
import pytest

import jaxspec
from jaxspec.models.conditions import Prompt, padded_length
from jaxspec.run import programs
from tests.cli import fake_language


@pytest.fixture(scope="module")
def pipe(tmp_path_factory):
  return jaxspec.load_pipeline(fake_language.make(tmp_path_factory.mktemp("texts")) / "target")


def test_lengths_are_few():
  assert {padded_length(own) for own in range(1, 34)} == {8, 16, 32, 64}
  assert padded_length(8) == 8 and padded_length(9) == 16


@pytest.mark.slow
def test_eight_lengths_share_a_program_and_draw_the_tokens_of_prompts_without_padding(pipe):
  key = jax.random.key(3)
  for length in range(1, 9):
    encoded = pipe.encode("a" * length)
    assert encoded.condition.tokens.shape == (1, 8) and encoded.condition.longest == length
    padded = pipe(encoded, key=key, max_len=6, method="ar").tokens
    if length == 5:
      bare = Prompt(*(leaf[:, -length:] for leaf in encoded.condition))
      np.testing.assert_array_equal(padded, pipe(bare, key=key, max_len=6, method="ar").tokens)
  assert len(pipe.programs) == 2  # eight lengths with padding share one, the one without has its own


def test_only_the_last_programs_are_kept(monkeypatch):
  monkeypatch.setattr(programs, "KEPT", 3)
  kept = programs.Programs()
  first = [kept.get(key, object) for key in "abc"]
  assert kept.get("a", object) is first[0]
  kept.get("d", object)  # evicts the least recently used, that of b
  assert "b" not in kept and len(kept) == 3 and kept.get("c", object) is first[2]


def test_a_program_is_compiled_once_for_each_shape():
  kept, double = programs.Programs(), lambda: lambda x: 2 * x
  program, seconds = kept.compiled("double", double, np.ones(2, np.float32))
  again, none = kept.compiled("double", double, np.zeros(2, np.float32))
  other, _ = kept.compiled("double", double, np.ones(3, np.float32))
  assert again is program and seconds > 0 and none == 0 and other is not program
  np.testing.assert_array_equal(other(np.ones(3, np.float32)), [2, 2, 2])
