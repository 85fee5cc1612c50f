"""Trials of a calibration are made once, also by a process that is started again."""

from types import SimpleNamespace

import numpy as np
import pytest

from jaxspec.evaluation.threshold_trials import Trials
from jaxspec.serving.edge.journal import Journal

SETTINGS = {"seed": 3, "sampling": {"top_p": 0.95}, "widths": (1, 2), "weights": "ab"}


@pytest.fixture
def decode():
  """A decode of 4 rows of 10 tokens whose calls fall in the threshold; ``decode.made`` has all that were asked for."""

  def call(tau, part, first):
    call.made.append((tau, part, first))
    rows = first or 8
    calls = np.full(rows, 10 if tau == 0 else 5 - part) - (np.arange(rows) % 2)
    report = SimpleNamespace(scores=np.linspace(0, 1, 10 * rows).reshape(rows, 10))
    counters = SimpleNamespace(target_calls=calls)
    return SimpleNamespace(lengths=np.full(rows, 10), counters=counters, origin=np.zeros((rows, 10)), report=report)

  call.made = []
  return call


def test_a_trial_is_made_once(decode):
  trials = Trials(decode, SETTINGS)
  assert trials.at(0.1, 0) == trials.at(0.1, 0)
  assert trials.at(0.1, 0).rate == 0.45 and trials.at(0.1, 1).rate == 0.35
  low, high = trials.at(0.1, 0).interval
  assert 0 <= low < 0.45 < high <= 1
  assert decode.made == [(0.1, 0, None), (0.1, 1, None)]


def test_starts_are_quantiles_of_scores(decode):
  trials = Trials(decode, SETTINGS)
  assert trials.starts([0.25, 0.5], 2) == pytest.approx([0.75, 0.5]) and decode.made == [(0.0, 0, 2)]
  assert trials.starts([1.0], None) == [1e-12], "a search begins above 0"


def test_a_journal_goes_on(decode, tmp_path):
  """After a stop nothing is decoded twice, and what comes out is the same to the last bit."""
  path = tmp_path / "trials.journal"

  def work(trials):
    return trials.starts([0.3], 2), trials.at(1 / 3, 0, 2), trials.at(1 / 3, 0), trials.at(0.1, 1, 1)

  def stopped(tau, part, first):
    if part:
      raise KeyboardInterrupt
    return decode(tau, part, first)

  with Journal(path) as journal, pytest.raises(KeyboardInterrupt):
    work(Trials(stopped, SETTINGS, journal))
  before = list(decode.made)
  with Journal(path) as journal:
    found = work(Trials(decode, SETTINGS, journal))
  assert decode.made == [*before, (0.1, 1, 1)]
  assert found == work(Trials(decode, SETTINGS)) and found[-1].interval is None


def test_a_journal_of_other_settings_is_refused(decode, tmp_path):
  with Journal(tmp_path / "trials.journal") as journal:
    Trials(decode, SETTINGS, journal)
  with Journal(tmp_path / "trials.journal") as journal, pytest.raises(ValueError, match="one with other seed, weights$"):
    Trials(decode, SETTINGS | {"weights": "cd", "seed": 4}, journal)
  with Journal(tmp_path / "replies.journal") as journal:
    journal.append(b"\x0a\x10 a reply of a cloud")
    with pytest.raises(ValueError, match="of a calibration, we instead got one of something else"):
      Trials(decode, SETTINGS, journal)
