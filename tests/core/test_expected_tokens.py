"""Tokens of a round at an acceptance, and back."""

import pytest

from jaxspec.core.expected_tokens import acceptance_for, expected_tokens


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.9, 1.0])
def test_acceptance_is_recovered_from_tokens(alpha):
  assert abs(acceptance_for(expected_tokens(alpha, 5), 5) - alpha) < 1e-6


def test_expected_tokens_is_the_sum_of_powers():
  assert expected_tokens(0.8, 3) == pytest.approx(1 + 0.8 + 0.8**2 + 0.8**3) and expected_tokens(1.0, 3) == 4


def test_more_tokens_than_drafts_allow():
  assert acceptance_for(9.0, 3) == 1 and acceptance_for(0.5, 3) == 0
