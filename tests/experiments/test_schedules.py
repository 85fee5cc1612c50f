"""Replayed rules of waiting, against counting by hand and against the counters of decodes."""

import numpy as np
import pytest

import jaxspec
from experiments.engine.pass_times import CloudPass, ExchangePasses
from experiments.engine.schedules import Round, cloud_seconds, fastest, replay, rounds_of
from jaxspec.core.state import Origin
from tests import ciar_pair
from tests.helpers import labels

PASSES = ExchangePasses(1.0, (CloudPass(4, 1, 6, 10.0), CloudPass(8, 2, 6, 100.0)))


def test_rounds_of_a_row():
  """Runs of at most three local tokens, windows of two drafts, and a last position without a draft."""
  kinds = {"F": Origin.FIRST, "L": Origin.LOCAL, "D": Origin.DRAFT, "R": Origin.REPLACED, "B": Origin.BONUS}
  origin = np.array([kinds[letter] for letter in "F LLLL DR R DDB L B".replace(" ", "")])
  assert rounds_of(origin, window=2, max_run=3) == [
    Round(3, None, 4), Round(3, 5, 7), Round(2, 7, 8), Round(2, 8, 11), Round(2, 12, 13),
  ]  # fmt: skip
  assert rounds_of(np.array([Origin.FIRST, Origin.LOCAL]), window=2, max_run=3) == [Round(1, None, 2)]


def test_passes_of_the_cloud():
  assert cloud_seconds([4], PASSES) == 10 and cloud_seconds([], PASSES) == 0
  assert cloud_seconds([5], PASSES) == 100  # more inputs than a narrow pass has
  assert cloud_seconds([2, 2], PASSES) == 100  # more rows
  assert cloud_seconds([8], PASSES) == 100 + 10  # a row takes six of a pass
  assert cloud_seconds([6, 6], PASSES) == 100 + 10  # two are left of the second


def test_waiting_by_hand():
  """Row 0 asks after one pass and then ends locally; row 1 asks after three."""
  rows = [[Round(1, 1, 2), Round(3, None, 5)], [Round(3, 3, 4)]]
  # The edge stops as soon as a row waits: its pass, a call of 2 inputs, 2 passes, a call of 4, the last pass.
  assert replay(rows, 0.5, PASSES, window=1) == 1 + 10 + 2 + 10 + 1
  # Row 0 waits for row 1, and both ask in one wide pass.
  assert replay(rows, 1.0, PASSES, window=1) == 3 + 100 + 3
  assert fastest([rows, rows], PASSES, window=1) == (0.5, 24)


@pytest.mark.slow
def test_rounds_have_the_passes_of_the_decode():
  """Passes of the edge and calls of the rounds are those that the decode counted."""
  cloud, edge = np.random.default_rng(0).dirichlet(np.full(4, 0.3), size=(2, 4))
  params, parts = ciar_pair.markov_gated(cloud, edge, window=2, max_run=3, tau=0.3)
  result = jaxspec.speculate(params, ciar_pair.keys_of(6), labels(6), max_len=24, **parts)
  counters, origins = result.counters, np.asarray(result.origin)
  for row, origin in enumerate(origins):
    rounds = rounds_of(origin, window=2, max_run=3)
    assert 1 + sum(each.edge for each in rounds) == counters.draft_calls[row]
    calls = sum(each.first is not None for each in rounds)
    assert calls + (origin[0] == Origin.FIRST) == counters.target_calls[row]
  assert set(origins.flat) == set(Origin) - {Origin.EMPTY}
