"""The transformer agrees with the official code on every golden array."""

import numpy as np
import pytest

from tests.helpers import slow_but
from tests.models import llamagen_parity as parity


def _failures(rows):
  assert rows
  return [row for row in rows if not row.passed]


@pytest.mark.parametrize(
  "check",
  slow_but(parity.TRANSFORMER_CHECKS, [check for check in parity.TRANSFORMER_CHECKS if check.__name__ == "c2i_tiny"]),
  ids=lambda check: check.__name__,
)
def test_every_array_agrees(check):
  assert not _failures(check())


@pytest.mark.slow
@pytest.mark.parametrize("check", [parity.gpt_b_c2i, parity.gpt_b_t2i], ids=lambda check: check.__name__)
def test_published_size_with_recipe_weights(check):
  assert not _failures(check())


def test_recipe_spot_values():
  first = parity.recipe_tensor("tok_embeddings.weight", (16384, 768), 3001)[0, :2]
  norm = parity.recipe_tensor("norm.weight", (768,), 3001)[:2]
  assert parity.max_error(first, [-0.71579117, -0.50147933]) < 1e-7
  assert parity.max_error(norm, [1.1257168, 1.0911577]) < 1e-6


def test_one_wrong_bit_or_shape_is_an_error():
  expected = np.ones((2, 4, 144, 144), bool)
  wrong = expected.copy()
  wrong[1, 0, 3, 2] = False  # a padding row; the logits do not depend on it
  assert parity.max_error(expected, expected) == 0
  assert not parity.Row("g", "a", parity.max_error(wrong, expected), 0).passed
  assert not parity.Row("g", "a", parity.max_error(expected[:1], expected), 1).passed
  assert not parity.Row("g", "a", parity.max_error([np.nan], [0.0]), 1).passed


def test_all_wrappers_are_compared():
  assert len({row.golden for row in parity.wrappers()}) == 7
