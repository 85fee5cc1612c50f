"""MAR, its head, its autoencoder and the couplings agree with the official code on every golden array."""

import pytest

from tests.models import mar_parity as parity


def _failures(rows):
  assert rows
  return [row for row in rows if not row.passed]


@pytest.mark.slow
@pytest.mark.parametrize("check", parity.FAST_CHECKS, ids=lambda check: check.__name__)
def test_every_array_agrees(check):
  assert not _failures(check())


@pytest.mark.slow
def test_a_complete_generation_agrees():
  assert not _failures(parity.mar_sample_program("b"))


@pytest.mark.slow
@pytest.mark.parametrize("check", parity.SLOW_CHECKS, ids=lambda check: check.__name__)
def test_every_array_of_long_runs_agrees(check):
  assert not _failures(check())
