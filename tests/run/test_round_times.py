"""Measured times of rounds: once for each program, and kept beside the compiled programs."""

import jax
import numpy as np
import pytest

from jaxspec import methods
from jaxspec.run import round_times
from jaxspec.run.decoder import Decoder
from tests.helpers import labels
from tests.methods.networks import markov


@pytest.mark.slow
def test_a_table_is_measured_once_and_kept(tmp_path, monkeypatch):
  measured = []
  whole = round_times._measured
  monkeypatch.setattr(round_times, "_measured", lambda *args: measured.append(whole(*args)) or measured[-1])
  monkeypatch.setattr(round_times, "jax_setting", lambda name: str(tmp_path))
  make = lambda: Decoder(markov(0), methods.Speculative(draft=markov(1), gamma="auto"))
  decode = lambda decoder: decoder(labels(2), key=jax.random.key(1), max_len=9)
  first = make()
  out = decode(first)
  (kept,) = first.round_times.values()
  assert measured == [kept] and kept.times.shape == (4,) and min(kept.times) > 0
  tested, rejected = kept.drafts
  assert 0 < rejected < tested
  (file,) = tmp_path.iterdir()
  np.testing.assert_array_equal(out.report.times, [kept.times, kept.times])
  # Every program and process that reads this table draws the same tokens.
  for decoder in (first, make()):
    np.testing.assert_array_equal(decode(decoder).tokens, out.tokens)
  *_, last = make().iterate(labels(2), key=jax.random.key(1), max_len=9)
  np.testing.assert_array_equal(last.tokens, out.tokens)
  assert len(measured) == 1
  file.write_text("damaged")
  decode(make())
  assert len(measured) == 2 and "times" in file.read_text()


@pytest.mark.slow
def test_a_given_table_is_not_measured(monkeypatch):
  monkeypatch.setattr(round_times, "_measured", lambda *args: pytest.fail("measured"))
  method = methods.Speculative(draft=markov(1), gamma="auto", round_times=("0:1", "2:1.5"))
  out = Decoder(markov(0), method)(labels(2), key=jax.random.key(1), max_len=9)
  assert out.report.rounds.sum() == out.counters.rounds.sum()
